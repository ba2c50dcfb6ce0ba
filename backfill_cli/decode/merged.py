"""Rows by their records: those of several ways of reading one batch together again, and each one's number."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from backfill_cli.contracts.decoder import Decoded
from backfill_cli.formats.compute import pc


def merged(parts: Sequence[Decoded]) -> Decoded:
    """All rows of these parts, by record; each part has `Decoded.record`, and at least one is given.

    Rows of one record, which are of one part, keep their order.
    """
    if len(parts) == 1:
        return parts[0]
    records = [_given(part.record) for part in parts]
    order = pc.array_sort_indices(pa.concat_arrays(records))

    def joined(name: str, kind: pa.DataType) -> pa.Array | None:
        arrays = [getattr(part, name) for part in parts]
        if all(array is None for array in arrays):
            return None
        given = [
            _default(name, kind, len(record)) if array is None else array
            for array, record in zip(arrays, records, strict=True)
        ]
        return pa.concat_arrays(given).take(order)

    def beside(name: str, kind: pa.DataType) -> pa.Array:
        """NULL in the rows of a part without it: a delete by its record's key has none."""
        given = zip(parts, records, strict=True)
        arrays = [part.beside.get(name, pa.nulls(len(record), kind)) for part, record in given]
        return pa.concat_arrays(arrays).take(order)

    first = parts[0]
    kinds = {name: array.type for part in parts for name, array in part.beside.items()}
    return Decoded(
        {name: pa.concat_arrays([part.columns[name] for part in parts]).take(order) for name in first.columns},
        joined("record", pa.int32()),
        joined("op", pa.string()),
        joined("ms", pa.int64()),
        joined("error", pa.string()),
        joined("fault", pa.string()),
        {name: beside(name, kind) for name, kind in kinds.items()},
        sum((Counter(part.skipped) for part in parts), Counter()),
    )


def within(found: Decoded) -> pa.Array:
    """INT32: the number of each row within its record."""
    if found.record is None or not len(found.record):
        return pa.array([0] * len(next(iter(found.columns.values()))), pa.int32())
    of = found.record
    if not pc.any(pc.equal(of.slice(1), of.slice(0, len(of) - 1))).as_py():  # each has one row
        return pa.repeat(pa.scalar(0, pa.int32()), len(of))
    records = of.to_pylist()
    numbers, before = [0] * len(records), None
    for n, record in enumerate(records):
        if record == before:
            numbers[n] = numbers[n - 1] + 1
        before = record
    return pa.array(numbers, pa.int32())


def _given(record: pa.Array | None) -> pa.Array:
    assert record is not None, "a part says which records its rows are of"
    return record


def _default(name: str, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar("U"), rows) if name == "op" else pa.nulls(rows, kind)
