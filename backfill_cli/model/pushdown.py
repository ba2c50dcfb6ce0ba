"""What a job needs of a table's rows: which columns, and which rows at most. A source may leave out the rest.

It is a filter ahead of the real one: Spark evaluates the transform's `where` again, over what was read. So a
condition is here only if every system decides it as Spark does, for every value of the column's type.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

Value: TypeAlias = bool | int | Decimal | str | date | datetime
Op = Literal["=", "<>", "<", "<=", ">", ">=", "IN", "NOT IN", "IS NULL", "IS NOT NULL"]

WHOLE: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""Spark's whole numbers, and how many bits each has."""

_DIGITS = 38
"""Of Spark's decimals, at most: beyond it a comparison rounds."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_TEXT = re.compile(r"[ -~]*")
"""Characters that every encoding of a database has."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One column compared with constants. column: as the source spells it, once it is `fitting`.

    values: one for a comparison, some for IN, none for IS NULL. A condition that is NULL is not met.
    """

    column: str
    op: Op
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """names: in lower case, those of columns that may be read. others: whether all others are, too, but `dropped`.

    where: all of these are met by each row that the transform keeps.
    """

    names: frozenset[str] = frozenset()
    others: bool = True
    dropped: frozenset[str] = frozenset()
    where: tuple[Condition, ...] = ()

    def needs(self, column: str) -> bool:
        name = column.lower()
        return name in self.names or (self.others and name not in self.dropped)

    def fitting(self, columns: Iterable[Mapping[str, Any]]) -> tuple[Condition, ...]:
        """The conditions that can be decided upstream for these columns (fields of a Spark schema)."""
        by_name = {str(column["name"]).lower(): column for column in columns}
        found = []
        for one in self.where:
            column = by_name.get(one.column.lower())
            fits = None if column is None else _fitting(one, column)
            if column is not None and fits is not None:
                found.append(replace(fits, column=str(column["name"])))
        return tuple(found)


def _fitting(condition: Condition, column: Mapping[str, Any]) -> Condition | None:
    """The condition with values of the column's type; None if another system could decide it otherwise."""
    kind = column["type"]
    if condition.op in ("IS NULL", "IS NOT NULL"):
        return condition
    if not isinstance(kind, str) or "__COLLATIONS" in column.get("metadata", {}):
        return None
    if kind in ("boolean", "string") and condition.op not in ("=", "<>", "IN", "NOT IN"):
        return None
    values = tuple(_typed(value, kind) for value in condition.values)
    found = tuple(value for value in values if value is not None)
    return replace(condition, values=found) if len(found) == len(values) else None


def _typed(value: Value, kind: str) -> Value | None:
    """A constant as Spark compares it with a column of this type; None where that is not certain."""
    if isinstance(value, bool) or kind == "boolean":
        return value if isinstance(value, bool) and kind == "boolean" else None
    if kind in WHOLE:
        return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None
    if kind.startswith("decimal("):
        return _decimal(value, kind)
    if kind == "string":
        return value if isinstance(value, str) and _TEXT.fullmatch(value) else None
    if kind == "date":
        return _day(value)
    return _moment(value) if kind in ("timestamp", "timestamp_ntz") else None


def _decimal(value: Value, kind: str) -> Decimal | None:
    """Spark compares both as decimals wide enough for either; if that takes too many digits, it rounds."""
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    if isinstance(value, int):
        digits, places = (10 if -(2**31) <= value < 2**31 else 20), 0
        exact = -(2**63) <= value < 2**63
    elif isinstance(value, Decimal):
        places = max(0, -int(value.as_tuple().exponent))
        digits, exact = max(0, len(value.as_tuple().digits) - places), True
    else:
        return None
    fits = exact and max(precision - scale, digits) + max(scale, places) <= _DIGITS
    return Decimal(value) if fits else None


def _day(value: Value) -> date | None:
    if isinstance(value, str):
        return day_of(value)
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _moment(value: Value) -> datetime | None:
    if isinstance(value, str):
        return moment_of(value)
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def day_of(text: str) -> date | None:
    """The date that Spark reads in a text; None where it could be another one, or none."""
    return date.fromisoformat(text) if _DATE.fullmatch(text) and _exists(text) else None


def moment_of(text: str) -> datetime | None:
    """The same of a timestamp, without a zone: every session's is UTC."""
    written = _DATE.fullmatch(text) or _TIMESTAMP.fullmatch(text)
    return datetime.fromisoformat(text) if written and _exists(text) else None


def _exists(text: str) -> bool:
    """Whether the calendar and the day have it: of the 30th of February, Spark says so."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
