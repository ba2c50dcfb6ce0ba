"""Which of the values that were read a sink's types do not hold (contracts/domain.py), by whole columns.

A UUID has one text from here on, however it was written: as a key it is one row.

Where no transform follows, a value of a source is one of the sink. Refused here, it is refused with its place, and
can be quarantined: a commit only knows the key of its row.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa

from backfill_cli.contracts.decoder import Decoded
from backfill_cli.contracts.domain import Domain
from backfill_cli.decode.upserts import faulty
from backfill_cli.formats.compute import pc
from backfill_cli.model.schema import Columns

_CANONICAL = r"\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z"
_DIGITS = "-?".join(f"([0-9a-fA-F]{{{digits}}})" for digits in (8, 4, 4, 4, 12))
_UUID = rf"\A(?:{_DIGITS}|\{{{_DIGITS}\}})\z"
"""As PostgreSQL and DuckDB take it: in braces or not, with hyphens or without."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_ENDLESS = {"date": 2**31 - 1, "timestamp": 2**63 - 1, "timestamp_ntz": 2**63 - 1}
"""Infinity, negated for -infinity."""


def held(columns: Columns, found: Decoded, domain: Domain) -> Decoded:
    """The rows; an error for each record of which one row has a value that is not held."""
    told = refused(columns, found.columns, domain)
    uuids = [name for name, one in columns.items() if _logical(one) == "uuid" in domain.logical]
    if any(name in found.columns for name in uuids):
        made = {name: _canonical(found.columns[name]) for name in uuids if name in found.columns}
        found = replace(found, columns=found.columns | made)
    if not told:
        return found
    count = len(next(iter(found.columns.values())))
    record = list(range(count)) if found.record is None else found.record.to_pylist()
    known: list[str | None] = [None] * count if found.error is None else found.error.to_pylist()
    reasons = {record[row]: reason for row, reason in sorted(told.items(), reverse=True)}
    kept, errors, before = list[int](), list[str | None](), set[int]()
    for row, of in enumerate(record):
        if of in reasons and of in before:
            continue  # the other row of a change of a key: the record is refused as a whole
        before.add(of)
        kept.append(row)
        errors.append(known[row] or reasons.get(of))
    if len(kept) < count:
        found = _taken(found, pa.array(kept, pa.int32()))
    return faulty(found, pa.array(errors, pa.string()))


def _taken(found: Decoded, rows: pa.Array) -> Decoded:
    def one(array: pa.Array | None) -> pa.Array | None:
        return None if array is None else array.take(rows)

    return Decoded(
        {name: column.take(rows) for name, column in found.columns.items()},
        one(found.record),
        one(found.op),
        one(found.ms),
        one(found.error),
        one(found.fault),
        {name: column.take(rows) for name, column in found.beside.items()},
        found.skipped,
    )


def refused(columns: Columns, found: Mapping[str, pa.Array], domain: Domain) -> dict[int, str]:
    """The rows, by index, with a value that is not held, each with the reason for the first such column."""
    told: dict[int, str] = {}
    for name, column in columns.items():
        for row, why in _of_column(column, found[name], domain).items() if name in found else ():
            told.setdefault(row, f"column '{name}': {why}")
    return told


def _logical(column: Mapping[str, Any]) -> Any:
    return (column.get("metadata") or {}).get("logical")


def _of_column(column: Mapping[str, Any], values: pa.Array, domain: Domain) -> Mapping[int, str]:
    kind, logical = column["type"], _logical(column)
    if logical in domain.logical:
        return _not_uuids(values) if logical == "uuid" else _not_json(values, domain.halves)
    told: dict[int, str] = {}
    if isinstance(kind, dict):
        for of, inner, row_of in _inside(kind, values, domain.deep):
            for at, why in _of_column({"type": of}, inner, domain).items():
                told.setdefault(row_of[at], why)
        return told
    if kind == "string" and not domain.nul:
        lacks = f"text with the character NUL, which {domain.system} does not hold"
        return dict.fromkeys(_rows(pc.match_substring(values, "\0")), lacks)
    if kind in domain.first:
        early = _beyond(values, pc.less, domain.first[kind], kind, domain)
        told |= dict.fromkeys(early, f"a {_what(kind)} before the first one that {domain.system} holds")
    if kind in domain.last:
        late = _beyond(values, pc.greater, domain.last[kind], kind, domain)
        told |= dict.fromkeys(late, f"a {_what(kind)} after the last one that {domain.system} holds")
    return told


def _what(kind: str) -> str:
    return "date" if kind == "date" else "time"


def _beyond(
    values: pa.Array, is_beyond: Callable[[pa.Array, int], pa.Array], end: int, kind: str, domain: Domain
) -> list[int]:
    """The rows with a date or a time beyond this end."""
    count = values.cast(pa.int32() if kind == "date" else pa.int64())
    beyond = is_beyond(count, end)
    if domain.endless:
        endless = pa.array([_ENDLESS[kind], -_ENDLESS[kind]], count.type)
        beyond = pc.and_not(beyond, pc.is_in(count, endless))
    return _rows(beyond)


def _inside(
    kind: Mapping[str, Any], values: pa.Array, deep: bool
) -> Iterator[tuple[Any, pa.Array, Sequence[int]]]:
    """(type, values, the row of each) of what is in a nested column and has to be looked at."""
    match kind["type"]:
        case "array" if deep or isinstance(kind["elementType"], str):
            yield kind["elementType"], pc.list_flatten(values), pc.list_parent_indices(values).to_pylist()
        case "map" if deep:
            lists = pa.ListArray.from_arrays(values.offsets, values.items)
            yield kind["valueType"], pc.list_flatten(lists), pc.list_parent_indices(lists).to_pylist()
        case "struct" if deep:
            for at, one in enumerate(kind["fields"]):
                yield one["type"], pc.struct_field(values, [at]), range(len(values))


def _rows(bad: pa.Array) -> list[int]:
    if not pc.any(bad).as_py():
        return []
    found: list[int] = pc.indices_nonzero(bad).to_pylist()
    return found


def _not_uuids(values: pa.Array) -> Mapping[int, str]:
    bad = _rows(pc.invert(pc.match_substring_regex(values, _UUID)))
    return {row: f"no UUID: {_shown(values[row])}" for row in bad}


def _canonical(values: pa.Array) -> pa.Array:
    """UUIDs as they are usually written; what is none stays as it is."""
    if pc.all(pc.match_substring_regex(values, _CANONICAL), min_count=0).as_py():
        return values
    is_one = pc.fill_null(pc.match_substring_regex(values, _UUID), False)
    written = pc.replace_substring_regex(pc.utf8_trim(values, "{}"), rf"\A{_DIGITS}\z", r"\1-\2-\3-\4-\5")
    return pc.if_else(is_one, pc.ascii_lower(written), values)


def _not_json(values: pa.Array, halves: bool) -> Mapping[int, str]:
    texts = values.to_pylist()
    return {
        row: f"no JSON: {_shown(values[row])}"
        for row, text in enumerate(texts)
        if text is not None and not _is_json(text, halves)
    }


def _is_json(text: str, halves: bool) -> bool:
    """What is nested too deeply to be looked at is left to the sink."""
    try:
        value = json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_number)
        if not halves and _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        return True
    except ValueError:  # of the text, or of half a surrogate
        return False
    return True


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


def _shown(value: pa.Scalar) -> str:
    text: str = value.as_py()
    return json.dumps(text, ensure_ascii=False)[:100]
