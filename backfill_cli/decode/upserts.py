"""Rows by key: a value is the row as it is now, a record without a value deletes the row of its own key."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from backfill_cli.contracts.decoder import Decode, Decoded
from backfill_cli.decode import stored
from backfill_cli.decode.merged import merged
from backfill_cli.formats.compute import pc
from backfill_cli.model.schema import Columns

_KEY_ONLY = (
    " in the value: a key that is only in the record's key is not read; let the producer write it into the value "
    "too, or read the records as events (leave key out of [[tables]])"
)
_OF_TOMBSTONE = "the key of a tombstone: "


def upserts(
    columns: Columns,
    key: Sequence[str],
    of_value: Decode,
    of_key: Decode,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
) -> Decoded:
    """The changes of these records. of_key: reads the key columns alone."""
    there = [i for i, value in enumerate(values) if value is not None]
    gone = [i for i, value in enumerate(values) if value is None]
    parts = []
    if there or not gone:
        rows, by_key = _apart(_placed(of_value([values[i] for i in there]), there))
        parts.append(_rows(key, rows, keys))
        gone = sorted([*gone, *by_key])
    if gone:
        parts.append(_deletes(columns, key, of_key, gone, [keys[i] for i in gone]))
    return merged(parts)


def _placed(found: Decoded, at: Sequence[int]) -> Decoded:
    """The rows by their records among all of the batch."""
    record = pa.array(at, pa.int32())
    return replace(found, record=record if found.record is None else record.take(found.record))


def _apart(found: Decoded) -> tuple[Decoded, Sequence[int]]:
    """(the rows without those that only their record's key names, the records of those)."""
    if found.op is None or not pc.any(pc.equal(found.op, "K")).as_py():
        return found, ()
    assert found.record is not None
    kept = pc.not_equal(found.op, "K")
    arrays = {name: getattr(found, name) for name in ("record", "op", "ms", "error", "fault")}
    return (
        Decoded(
            {name: column.filter(kept) for name, column in found.columns.items()},
            **{name: None if array is None else array.filter(kept) for name, array in arrays.items()},
            beside={name: array.filter(kept) for name, array in found.beside.items()},
            skipped=found.skipped,
        ),
        found.record.filter(pc.invert(kept)).to_pylist(),
    )


def _rows(key: Sequence[str], found: Decoded, keys: Sequence[bytes | None]) -> Decoded:
    record = found.record
    assert record is not None
    for name in key:
        lacking = pc.is_null(found.columns[name])
        if found.error is not None:
            lacking = pc.and_(lacking, pc.is_null(found.error))
        if pc.any(lacking).as_py():
            said = f"column '{name}': the key is NULL"
            told = [said if keys[i] is None else said + _KEY_ONLY for i in record.to_pylist()]
            errors = pa.nulls(len(told), pa.string()) if found.error is None else found.error
            fault = pc.if_else(lacking, pa.array(told, pa.string()), errors)
            found = faulty(found, fault)
    return found


def faulty(found: Decoded, error: pa.Array) -> Decoded:
    """The rows with these errors, in which all columns are NULL where there is one."""
    bad = pc.is_valid(error)
    none = {
        name: pc.if_else(bad, pa.scalar(None, column.type), column)
        if not pa.types.is_nested(column.type)
        else _without(column, bad)
        for name, column in found.columns.items()
    }
    return replace(found, columns=none, error=error)


def _without(column: pa.Array, bad: pa.Array) -> pa.Array:
    """The array with NULLs where `bad` says so; Arrow has no `if_else` for all nested types."""
    return column.take(pc.if_else(bad, pa.scalar(None, pa.int64()), pa.array(range(len(column)), pa.int64())))


def _deletes(
    columns: Columns, key: Sequence[str], of_key: Decode, at: Sequence[int], keys: Sequence[bytes | None]
) -> Decoded:
    read = of_key(keys)
    errors: list[Any] = [None] * len(keys) if read.error is None else read.error.to_pylist()
    listed = {name: read.columns[name].is_null().to_pylist() for name in key}
    for n, raw in enumerate(keys):
        if raw is None:
            errors[n] = "a tombstone without a key"
        elif errors[n] is not None:
            errors[n] = _OF_TOMBSTONE + errors[n]
        else:
            lacking = next((name for name in key if listed[name][n]), None)
            errors[n] = None if lacking is None else f"{_OF_TOMBSTONE}column '{lacking}': the key is NULL"
    whole = stored.nulls(columns, len(keys)) | {name: read.columns[name] for name in key}
    found = Decoded(
        {name: whole[name] for name in columns},
        pa.array(at, pa.int32()),
        pa.repeat(pa.scalar("D"), len(keys)),
        error=pa.array(errors, pa.string()),
    )
    return faulty(found, found.error) if any(errors) else found
