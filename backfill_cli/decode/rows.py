"""What formats share whose records are rows: reading them one by one, and having nothing to check afterwards."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from backfill_cli.contracts.decoder import Decode, Decoded
from backfill_cli.decode import stored
from backfill_cli.decode.tokens import DEEP
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.model.schema import Columns
from backfill_cli.model.skipped import Skipped
from backfill_cli.spark.api import Column, DataFrame

_Record = TypeVar("_Record")


def one_by_one(
    columns: Columns, records: Sequence[_Record | None], read: Callable[[_Record], Sequence[Any]]
) -> Decoded:
    """A row for each record, in order; one of NULLs for a record without a value.

    read: the values of these columns in a record, in their stored form (stored.py). Raises Unreadable.
    """
    import pyarrow as pa

    empty = (None,) * len(columns)
    rows: list[Sequence[Any]] = []
    errors: list[str | None] = []
    faults: list[str | None] = []
    for record in records:
        row: Sequence[Any] = empty
        error = fault = None
        try:
            row = empty if record is None else read(record)
        except Unreadable as exc:
            error, fault = str(exc.args[0]), exc.fault
        except RecursionError:  # nested hundreds deep
            error = DEEP
        rows.append(row)
        errors.append(error)
        faults.append(fault)
    made = {
        name: stored.array([row[i] for row in rows], column["type"])
        for i, (name, column) in enumerate(columns.items())
    }
    if not any(errors):
        return Decoded(made)
    return Decoded(made, error=pa.array(errors, pa.string()), fault=pa.array(faults, pa.string()))


Change = tuple[str, int | None, Mapping[str, Any]]
"""(op, time in milliseconds since 1970, values by column in their stored form)"""


def changes_one_by_one(
    columns: Columns, records: Sequence[_Record | None], read: Callable[[_Record], Iterable[Change] | Skipped]
) -> Decoded:
    """The changes of each record, in order; none of a record that is skipped, as one without a value is.

    read: raises Unreadable, which is one change then.
    """
    import pyarrow as pa

    indices: list[int] = []
    made: list[Change] = []
    faults: list[Unreadable | None] = []
    skipped = Counter[Skipped]()
    for index, record in enumerate(records):
        fault, rows = None, list[Change]()
        try:
            told = Skipped.TOMBSTONE if record is None else read(record)
            if isinstance(told, Skipped):
                skipped[told] += 1
            else:
                rows = list(told)
        except Unreadable as exc:
            fault, rows = exc, [("U", None, {})]
        except RecursionError:  # nested hundreds deep
            fault, rows = Unreadable(DEEP), [("U", None, {})]
        indices += [index] * len(rows)
        made += rows
        faults += [fault] * len(rows)
    return Decoded(
        {
            name: stored.array([row.get(name) for *_, row in made], column["type"])
            for name, column in columns.items()
        },
        pa.array(indices, pa.int32()),
        pa.array([op for op, *_ in made], pa.string()),
        pa.array([ms for _, ms, _ in made], pa.int64()),
        pa.array([None if fault is None else str(fault.args[0]) for fault in faults], pa.string()),
        pa.array([None if fault is None else fault.fault for fault in faults], pa.string()),
        skipped=skipped,
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """An `Opened` that reads every window in one way, and has nothing to check afterwards."""

    reads: Decode

    def decode(self, recent: Callable[[], Sequence[bytes]]) -> Decode:
        return self.reads

    def checked(self, rows: DataFrame, decode: Decode, place: Column) -> DataFrame:
        return rows
