"""Whether the decoder reads the sampled rows with the types that were guessed for them; if not, which types do.

Python reads numbers here with all their digits; what DuckDB tells of a number with a point is that of a double.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

from backfill_cli.decode.encodings import DOUBLE_DIGITS
from backfill_cli.decode.guesses import DIGITS, PLACES, ColumnProfile, ddl, spelt
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.formats import schemas
from backfill_cli.model.schema import schema_text
from backfill_cli.model.units import spell_count

_TRIED = 1_000
"""Of the rows that cannot be read, those with which other types are tried."""


def with_numbers(
    columns: Mapping[str, ColumnProfile], shape: Mapping[str, Any], rows: Sequence[Any], most: int = DIGITS
) -> dict[str, ColumnProfile]:
    """The columns; those whose numbers were to be text have a type of numbers, if one holds all of them exactly.

    rows: the objects, their numbers as Decimal. As text they would be read, too, but for one like 0.0, or 1e22.
    most: how many digits a decimal may have. Inside other values each number has the type of those in its place.
    """
    found = dict(columns)
    for name, one in columns.items():
        values = [row.get(name) for row in rows]
        if not isinstance(shape[name], str):
            narrow = _nested(shape[name], values, DOUBLE_DIGITS, DIGITS)
            found[name] = replace(one, fixed=_nested(shape[name], values, most), narrow=narrow)
        elif shape[name] == "DOUBLE" and one.kind == "STRING":
            found[name] = next(_others(one, [*_within(values)], most), replace(one, fixed="STRING"))
    return found


def _nested(shape: Any, values: Sequence[Any], *most: int) -> str:
    """The type of nested values, each number in it with a type that holds all in its place; text if none does.

    most: how many digits a decimal may have; the first that suits.
    """
    if isinstance(shape, list):
        inner = [one for value in values if isinstance(value, list) for one in value]
        return f"ARRAY<{_nested(shape[0], inner, *most) if shape else 'STRING'}>"
    if isinstance(shape, dict):
        held = [value for value in values if isinstance(value, dict)]
        told = {name: _nested(one, [value.get(name) for value in held], *most) for name, one in shape.items()}
        return f"STRUCT<{', '.join(f'{spelt(name)}: {kind}' for name, kind in told.items())}>"
    numbers = [value for value in values if isinstance(value, Decimal)]
    if shape == "DOUBLE":
        return next((kind for digits in most for kind, *_ in _kinds(numbers, digits)), "STRING")
    if shape in ("UBIGINT", "BIGINT", "HUGEINT"):
        return "BIGINT" if all(-(1 << 63) <= number < 1 << 63 for number in numbers) else f"DECIMAL({DIGITS},0)"
    return "BOOLEAN" if shape == "BOOLEAN" else "STRING"


def parsed(record: str | bytes) -> Any:
    """The value, its numbers as Decimal; None for what is no JSON: the decoder says so."""
    with suppress(ValueError, RecursionError):
        return json.loads(record, parse_float=Decimal, parse_int=Decimal)
    return None


def that_read(
    columns: Mapping[str, ColumnProfile], shape: Mapping[str, Any], records: Sequence[bytes]
) -> tuple[dict[str, ColumnProfile], str]:
    """The columns with types that read all of these records; and which they do not, in words, empty if they do.

    shape: the structure of each column's values. records: JSON objects. DOUBLE is a type only for numbers that are
    each the shortest text of a double: nothing is rounded then.
    """
    found = with_numbers(columns, shape, _objects(records))
    faults = _faults(found, records)
    tried = [records[index] for index in list(faults)[:_TRIED]]
    for name in found if faults else ():
        left = len(_faults({name: found[name]}, tried))
        alone = left and isinstance(shape[name], str)
        for other in _others(found[name], _numbers(name, records)) if alone else ():
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


def _others(one: ColumnProfile, numbers: Sequence[Decimal], most: int = DIGITS) -> Iterator[ColumnProfile]:
    """The column with other types for these numbers: decimals of at most so many digits, doubles."""
    for kind, digits, places in _kinds(numbers, most):
        yield (
            replace(one, fixed=kind)
            if kind == "DOUBLE"
            else replace(one, fixed=kind, digits=digits, places=places)
        )


def _kinds(numbers: Sequence[Decimal], most: int) -> Iterator[tuple[str, int, int]]:
    """(type, digits before the point, after it) of the types that hold these numbers, the best one first."""
    if not numbers:
        return
    exponents = [int(number.as_tuple().exponent) for number in numbers]
    places = max(0, *(-exponent for exponent in exponents))
    digits = max(1, *(number.adjusted() + 1 for number in numbers))
    doubles = all(Decimal(repr(float(number))) == number for number in numbers)
    if doubles and max(exponents) > PLACES:  # as 1e22: decimals are not written so
        yield "DOUBLE", digits, places
    if places <= PLACES and places + digits <= most:
        yield f"DECIMAL({most},{places})", digits, places
    if doubles:
        yield "DOUBLE", digits, places


def _numbers(name: str, records: Sequence[bytes]) -> list[Decimal]:
    """Those in a column's values."""
    return [number for row in _objects(records) for number in _within(row.get(name))]


def _objects(records: Sequence[bytes]) -> list[dict[str, Any]]:
    return [row for record in records if isinstance(row := parsed(record), dict)]


def _within(value: Any) -> Iterator[Decimal]:
    if isinstance(value, Decimal):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(inner)
