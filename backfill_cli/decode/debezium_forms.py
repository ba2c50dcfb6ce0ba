"""Finds the options that a Debezium change log without schema blocks needs, from a few rows, before any is copied.

Without blocks a decimal can be base64, text or a number, and a time a number in any unit; `decimals` and
`timestamps` say which. Missing options are found here for all columns at once, with the value that fits.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts.refusals import as_json
from backfill_cli.decode.encodings import PER_SECOND
from backfill_cli.model.schema import Columns, SparkType, shown

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FORMS = ("precise", "string", "double")
_WRITTEN = {
    "decimals": ("decimals are", "decimal.handling.mode = string"),
    "timestamps": ("times are", "time.precision.mode = adaptive"),
}
"""By option: what is written, and the setting of Debezium's connector that writes it so that it can be read."""

_BEGIN_S, _END_S = 946_684_800, 4_102_444_800  # 2000 and 2100: a number is between them in one unit only


@dataclass(frozen=True, slots=True)
class Lack:
    """A required option that is missing. fits: its values that fit the rows; all or none of them if undecided.

    why: what of the rows shows that it is needed. fault: the same as an error, with the value that fits.
    """

    option: str
    fits: tuple[str, ...]
    why: str
    fault: str


def lacks(
    columns: Columns, rows: Sequence[Mapping[str, Any]], timestamps: str | None, decimals: str | None, at: str
) -> list[Lack]:
    """The options at `at` that these rows need and that are missing.

    rows: images as JSON parses them, of envelopes without a schema block.
    """
    faults = []
    exact = _leaves_of(columns, rows, lambda kind: kind.startswith("decimal"))
    if exact and decimals is None:
        fits = _common(map(_forms_of, exact.values()), _FORMS)
        faults.append(_lack(at, "decimals", exact, columns, fits, _FORMS))
    times = _leaves_of(columns, rows, lambda kind: kind.startswith("timestamp"))
    dates = _leaves_of(columns, rows, lambda kind: kind == "date")
    unread = {name: found for name, values in (times | dates).items() if (found := [*filter(_is_other, values)])}
    if unread:
        faults.append(_lack(at, "timestamps", unread, columns, (), ()))
    numbers = {name: found for name, values in times.items() if (found := [v for v in values if _whole(v)])}
    if numbers and timestamps is None:
        fits = _common(map(_units_of, numbers.values()), tuple(PER_SECOND))
        faults.append(_lack(at, "timestamps", numbers, columns, fits, tuple(PER_SECOND)))
    return faults


def _is_other(value: Any) -> bool:
    """Whether no form of a decimal or a time is written like this."""
    return isinstance(value, dict | list | bool)


def undeclared(columns: Columns, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Columns of these rows without a declared type, each with the type that its values suggest."""
    found: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            if name not in columns:
                found[name] = max(found.get(name, ""), _suggested(value), key=_SUGGESTED.index)
    return found


def _lack(
    at: str,
    option: str,
    values: Mapping[str, Sequence[Any]],
    columns: Columns,
    fits: tuple[str, ...],
    all_forms: Sequence[str],
) -> Lack:
    what, cure = _WRITTEN[option]
    names = ", ".join(f"'{name}' {shown(columns[name]['type'])}" for name in values)
    structure = next((v for found in values.values() for v in found if _is_other(v)), None)
    if structure is not None:
        why = f"{what} written in a form that no setting reads ({names}, like {as_json(structure)})"
        way = f"set {cure} in Debezium's connector, and write the topic or files again"
        return Lack(option, fits, why, f"{at}.{option}: {why}: {way}")
    example = next((as_json(v) for found in values.values() for v in found), None)
    seen = "" if example is None else f", like {example}"
    written = " or ".join(f'"{form}"' for form in (fits or all_forms))
    why = f"how {what} written ({names}{seen})"
    return Lack(option, fits, why, f"{at}.{option}: nothing says {why}: set {at}.{option} = {written}")


def _leaves_of(
    columns: Columns, rows: Sequence[Mapping[str, Any]], wanted: Callable[[str], bool]
) -> dict[str, list[Any]]:
    """The non-NULL values of the columns that hold such a type, also inside arrays, maps and structs."""
    found: dict[str, list[Any]] = {}
    for name, column in columns.items():
        present = [row[name] for row in rows if name in row]
        if present and _holds(column["type"], wanted):
            found[name] = [leaf for value in present for leaf in _inner(value, column["type"], wanted)]
    return found


def _holds(kind: SparkType, wanted: Callable[[str], bool]) -> bool:
    if isinstance(kind, str):
        return wanted(kind)
    parts = [kind[part] for part in ("elementType", "valueType") if part in kind]
    return any(_holds(one, wanted) for one in (*parts, *(f["type"] for f in kind.get("fields", ()))))


def _inner(value: Any, kind: SparkType, wanted: Callable[[str], bool]) -> list[Any]:
    if value is None:
        return []
    if isinstance(kind, str):
        return [value] if wanted(kind) else []
    if isinstance(value, list) and "elementType" in kind:
        return [leaf for one in value for leaf in _inner(one, kind["elementType"], wanted)]
    if isinstance(value, dict) and "valueType" in kind:
        return [leaf for one in value.values() for leaf in _inner(one, kind["valueType"], wanted)]
    if isinstance(value, dict):
        return [leaf for f in kind.get("fields", ()) for leaf in _inner(value.get(f["name"]), f["type"], wanted)]
    return []


def _common(each: Iterable[Sequence[str]], every: Sequence[str]) -> tuple[str, ...]:
    """The forms that fit all columns; none if the columns contradict each other."""
    kept = list(every)
    for fits in each:
        kept = [form for form in kept if form in fits]
    return tuple(kept)


def _forms_of(values: Sequence[Any]) -> tuple[str, ...]:
    return _common(map(_form, values), _FORMS)


def _form(value: Any) -> tuple[str, ...]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ("double",)
    if not isinstance(value, str):
        return ()
    fits = ["precise"] if is_precise(value) else []
    return (*fits, *(["string"] if _DECIMAL.fullmatch(value) else []))


def is_precise(text: str) -> bool:
    """Whether it could be a decimal in base64, of at most 38 digits."""
    try:
        return 0 < len(base64.b64decode(text, validate=True)) <= 16  # 38 digits
    except ValueError:
        return False


def _units_of(values: Sequence[int]) -> tuple[str, ...]:
    """The units that fit all values; a number that is not between 2000 and 2100 in any unit is ignored."""
    told = ([u for u, per_s in PER_SECOND.items() if _BEGIN_S <= v / per_s < _END_S] for v in values)
    return _common((units or list(PER_SECOND) for units in told), tuple(PER_SECOND))


def time_units(values: Sequence[Any]) -> tuple[str, ...]:
    """The units in which all of these numbers are times between 2000 and 2100; none if there are no values."""
    if not values or not all(map(_whole, values)):
        return ()
    return tuple(u for u, per_s in PER_SECOND.items() if all(_BEGIN_S <= v / per_s < _END_S for v in values))


def are_days(values: Sequence[Any]) -> bool:
    """Whether all of these numbers are days since 1970 of dates between 2000 and 2100."""
    return all(_whole(value) and _BEGIN_S <= value * 86_400 < _END_S for value in values)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SUGGESTED = ("", "BOOLEAN", "BIGINT", "DOUBLE", "STRING")
"""From no evidence to the type that holds anything."""


def _suggested(value: Any) -> str:
    kinds = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", type(None): ""}
    return kinds.get(type(value), "STRING")
