"""Change files of AWS DMS: a column `Op` (I, U, D) first, then the time of the commit if asked for, then the row.

DMS documents no image before a change: a key that changes leaves its old row behind, so `immutable_key` promises
that none does. An insert of what is there and a delete of what is not are no errors.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oracle import plain
from oracle.answer import Answer, Refused, Rows
from oracle.readers import delimited
from oracle.readers.kinds import Doubts, Kind, No

Change = tuple[str, plain.Row]


def of_csv(
    columns: dict[str, Kind], time: bool, many_lines: bool, raw: bytes, null: str, doubts: Doubts
) -> list[Change]:
    names = list(columns)
    found = []
    for record in delimited.records(raw, many_lines, doubts):
        if len(record) != len(names) + 1 + time:
            raise No(f"{len(record)} fields")
        row = record[1 + time :]
        told = {
            name: delimited.value(columns[name], field, null, doubts)
            for name, field in zip(names, row, strict=True)
        }
        found.append((record[0][0], told))
    return found


def of_parquet(columns: dict[str, Kind], raw: bytes) -> list[Change]:
    held = pq.read_table(pa.BufferReader(raw))
    lacking = [name for name in ("Op", *columns) if name not in held.column_names]
    if lacking:
        raise No(f"no column {lacking}")
    return [
        (held["Op"][i].as_py(), {name: plain.of_arrow(held[name][i]) for name in columns})
        for i in range(held.num_rows)
    ]


def table(key: str, rows: Sequence[plain.Row], files: Iterable[tuple[str, Any]]) -> Answer:
    """files: name and what gives its changes, in the order of their names."""
    held = {row[key]: row for row in rows}
    doubts: Doubts = []
    name = ""
    try:
        for name, changes in files:  # noqa: B007, the failing file's name is told below
            for op, row in changes(doubts):
                if row[key] is None:
                    raise No("the key is NULL")
                if op not in ("I", "U", "D"):
                    raise No(f"Op {op!r}")
                held.pop(row[key], None)
                if op != "D":
                    held[row[key]] = row
    except No as exc:
        return Refused(str(exc), (name.rsplit("/", 1)[-1],))
    return Rows(tuple(held.values()), None, "; ".join(doubts[:3]))
