"""Finds types that hold all values of a text column exactly; a type that fits only most of them is not used."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.formats.exact import DOUBLE_DIGITS

if TYPE_CHECKING:
    import duckdb

_WHOLE = "-?(0|[1-9][0-9]*)"
_TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?"
_ZONE = "(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)"
_KINDS = {
    "boolean": "regexp_full_match({c}, 'true|false', 'i')",
    "whole": f"regexp_full_match({{c}}, '{_WHOLE}')",
    "number": f"regexp_full_match({{c}}, '{_WHOLE}([.][0-9]+)?')",
    "digits": "regexp_full_match({c}, '[0-9]+')",
    "float": "TRY_CAST({c} AS DOUBLE) IS NOT NULL",
    "date": "regexp_full_match({c}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}') AND TRY_CAST({c} AS DATE) IS NOT NULL",
    "time": f"regexp_full_match({{c}}, '{_TIME.replace('{', '{{').replace('}', '}}')}') "
    "AND TRY_CAST({c} AS TIMESTAMP) IS NOT NULL",
    "instant": f"regexp_full_match({{c}}, '{(_TIME + _ZONE).replace('{', '{{').replace('}', '}}')}')",
}
"""For each kind of text, the SQL condition for it. Text with leading zeros is no number: it would lose them."""

_BIGINT_DIGITS, _DIGITS = 18, 38
_PLACES = 9
"""A number with more places was computed in binary: a scale taken from the sample would not hold the next one."""
_SHORT, _ROOM = 18, 3
"""A decimal of 18 digits fits a 64-bit integer; _ROOM of them are left for rows outside the sample."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = {"key", "table", "select", "from", "where", "order", "group", "primary", "constraint", "unique"}
_NAMED_LIKE_A_KEY = re.compile(r"(?i)id|.*_(id|key)|.*[a-z]I[dD]|key|uuid|guid")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the values of a column have in common. digits: before the point. fixed: a type that the file states.

    zoned: the side whose times have a zone, if the other side's have none: "changes" or "snapshot". binary:
    whether the changes have its numbers as doubles.
    """

    rows: int
    values: int
    distinct: int
    kinds: frozenset[str]
    digits: int = 0
    places: int = 0
    fixed: str = ""
    zoned: str = ""
    binary: bool = False

    def with_more(self, other: "Seen") -> "Seen":
        """The snapshot's sample combined with that of its changes; uniqueness is that of the snapshot."""
        kinds, zoned = self.kinds & other.kinds, ""
        if not kinds and "time" in self.kinds and "instant" in other.kinds:
            kinds, zoned = frozenset({"instant"}), "changes"
        elif not kinds and "instant" in self.kinds and "time" in other.kinds:
            kinds, zoned = frozenset({"instant"}), "snapshot"
        return Seen(
            self.rows,
            self.values + other.values,
            self.distinct,
            kinds,
            max(self.digits, other.digits),
            max(self.places, other.places),
            self.fixed,
            zoned,
        )

    @property
    def identifies(self) -> bool:
        return 0 < self.rows == self.values == self.distinct

    @property
    def kind(self) -> str:
        """The column's type in Spark DDL."""
        if self.fixed:
            return self.fixed
        if not self.values:
            return "STRING"
        if "whole" in self.kinds:
            return _of_digits(self.digits)
        if "number" in self.kinds and self.places <= _PLACES and self.digits + self.places <= _DIGITS:
            digits = self.digits + self.places
            if self.binary and digits <= DOUBLE_DIGITS:
                return f"DECIMAL({DOUBLE_DIGITS},{self.places})"
            return f"DECIMAL({_SHORT if digits <= _SHORT - _ROOM else _DIGITS},{self.places})"
        named = {"boolean": "BOOLEAN", "date": "DATE", "time": "TIMESTAMP_NTZ", "instant": "TIMESTAMP"}
        return next((ddl for kind, ddl in named.items() if kind in self.kinds), "STRING")

    def remark(self, name: str) -> str:
        """What a reader should know about the type; empty if it is obvious."""
        if not self.values and not self.fixed:
            return f"'{name}' has no value in these rows: STRING until you set its type"
        if self.kind == "STRING" and "digits" in self.kinds:
            return f"'{name}' holds digits that are not a number: with leading zeros, or too many digits"
        if self.kind == "STRING" and "float" in self.kinds:
            return f"'{name}' holds numbers that neither BIGINT nor DECIMAL keeps exactly; DOUBLE would round them"
        if self.kind.startswith("DECIMAL"):
            return f"'{name}' has at most {self.digits} digits before the point and {self.places} after it"
        if self.zoned:
            bare = "snapshot" if self.zoned == "changes" else "changes"
            return (
                f"'{name}' has a time zone in the {self.zoned} only: TIMESTAMP, which reads the times of the "
                f"{bare} as UTC; if they are not UTC, write them with their zone"
            )
        if self.kind == "TIMESTAMP_NTZ":
            return f"'{name}' has no time zone: TIMESTAMP if it is UTC"
        return ""


def _of_digits(digits: int) -> str:
    if digits <= _BIGINT_DIGITS:
        return "BIGINT"
    return f"DECIMAL({_DIGITS},0)" if digits <= _DIGITS else "STRING"


def of_relation(rows: "duckdb.DuckDBPyRelation", names: Sequence[str]) -> dict[str, Seen]:
    """For each column, what its texts have in common. rows: columns of text, in the order of `names`."""
    found = {}
    for name, column in zip(names, rows.columns, strict=True):
        c = text_name(column)
        wanted = [
            f"coalesce(bool_and({said.format(c=c)}) FILTER ({c} IS NOT NULL), true)" for said in _KINDS.values()
        ]
        numbers = [
            f"coalesce(max(length(regexp_extract({c}, '{part}', 1))), 0)"
            for part in ("^-?([0-9]+)", "[.]([0-9]+)$")
        ]
        told = rows.aggregate(", ".join(["count(*)", f"count({c})", f"count(DISTINCT {c})", *numbers, *wanted]))
        count, values, distinct, digits, places, *fits = told.fetchall()[0]
        kinds = frozenset(kind for kind, fit in zip(_KINDS, fits, strict=True) if fit)
        found[name] = Seen(count, values, distinct, kinds, digits, places)
    return found


def ddl(columns: Mapping[str, Seen]) -> str:
    return ", ".join(f"{spelt(name)} {seen.kind}" for name, seen in columns.items())


def spelt(name: str) -> str:
    plain = _PLAIN.fullmatch(name) and name.lower() not in _RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


def text_name(column: str) -> str:
    """The column in SQL."""
    return '"' + column.replace('"', '""') + '"'


def key_of(columns: Mapping[str, Seen], table: str) -> tuple[str | None, list[str]]:
    """(the column named like this table's key, all columns that could be it). A key needs both the name and unique
    values: a wrong key loses rows."""
    able = [name for name, seen in columns.items() if seen.identifies]
    named = [name for name in able if _NAMED_LIKE_A_KEY.fullmatch(name)]
    own = {"id", f"{table}_id", f"{table}_key", f"{table.removesuffix('s')}_id", f"{table.removesuffix('s')}_key"}
    best = [name for name in named if name.lower() in own]
    for one in (best, named):
        if len(one) == 1:
            return one[0], [*named, *(name for name in able if name not in named)]
        if one:
            break
    return None, [*named, *(name for name in able if name not in named)]
