"""Whether the decoder reads the sampled rows with the types that were guessed for them; if not, which types do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

from backfill_cli.decode.guesses import DIGITS, PLACES, ColumnProfile, ddl, nested
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.formats import schemas
from backfill_cli.model.schema import schema_text
from backfill_cli.model.units import spell_count

_TRIED = 1_000
"""Of the rows that cannot be read, those with which other types are tried."""


def that_read(
    columns: Mapping[str, ColumnProfile], shape: Mapping[str, Any], records: Sequence[bytes]
) -> tuple[dict[str, ColumnProfile], str]:
    """The columns with types that read all of these records; and which they do not, in words, empty if they do.

    shape: the structure of each column's values. records: JSON objects. DOUBLE is a type only for numbers that are
    each the shortest text of a double: nothing is rounded then.
    """
    found = dict(columns)
    faults = _faults(found, records)
    tried = [records[index] for index in list(faults)[:_TRIED]]
    for name in columns if faults else ():
        left = len(_faults({name: found[name]}, tried))
        for other in _others(found[name], shape[name], _numbers(name, records)) if left else ():
            if len(_faults({name: other}, tried)) < left:
                found[name] = other
                break
    if faults:
        faults = _faults(found, records)
    if not faults:
        return found, ""
    said = next(iter(faults.values()))
    return found, f"{spell_count(len(faults), 'row')} cannot be read with these types; the first: {said}"


def _faults(columns: Mapping[str, ColumnProfile], records: Sequence[bytes]) -> dict[int, str]:
    """Why records cannot be read, by index."""
    if not columns or not records:
        return {}
    told = JsonRows(schema_text(schemas.of_ddl(ddl(columns))), kept_apart=False)(records).error
    return {} if told is None else {i: said for i, said in enumerate(told.to_pylist()) if said is not None}


def _others(one: ColumnProfile, shape: Any, numbers: Sequence[Decimal]) -> Iterator[ColumnProfile]:
    """The column with other types for these numbers in its values: decimals, doubles."""
    if not numbers:
        return
    places = max(0, *(-int(number.as_tuple().exponent) for number in numbers))
    digits = max(1, *(number.adjusted() + 1 for number in numbers))
    if places <= PLACES and places + digits <= DIGITS:
        fixed = nested(shape, f"DECIMAL({DIGITS},{places})")
        yield replace(one, fixed=fixed, digits=digits, places=places)
    if all(Decimal(repr(float(number))) == number for number in numbers):
        yield replace(one, fixed=nested(shape, "DOUBLE"))


def _numbers(name: str, records: Sequence[bytes]) -> list[Decimal]:
    """Those in a column's values."""
    found: list[Decimal] = []
    for record in records:
        with suppress(ValueError, RecursionError):  # the decoder says so
            found += _within(json.loads(record, parse_float=Decimal, parse_int=Decimal).get(name))
    return found


def _within(value: Any) -> Iterator[Decimal]:
    if isinstance(value, Decimal):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(inner)
