"""What a sample of texts shows about the columns of a table: types that hold each value exactly, and a key.

DuckDB reads the sample as text columns: no value is converted before its type has been guessed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from backfill_cli.decode.encodings import DOUBLE_DIGITS
from backfill_cli.spark.names import backticked, plain

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

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

_BIGINT_DIGITS, DIGITS = 18, 38
PLACES = 9
"""A number with more places was computed in binary: a scale taken from the sample would not hold the next one."""
_SHORT, _ROOM = 18, 3
"""A decimal of 18 digits fits a 64-bit integer; _ROOM of them are left for rows outside the sample."""

_RESERVED = {"key", "table", "select", "from", "where", "order", "group", "primary", "constraint", "unique"}
_NAMED_LIKE_A_KEY = re.compile(r"(?i)id|.*_(id|key)|.*[a-z]I[dD]|key|uuid|guid")


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What the values of a column have in common. digits: before the point. fixed: a type that the file states.

    zoned: the side whose times have a zone, if the other side's have none: "changes" or "snapshot". binary:
    whether the changes have its numbers as doubles. narrow: the type then, instead of `fixed`. unsettled: whether
    values, or parts of them, are of several kinds or of none: they are read as text.
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
    narrow: str = ""
    unsettled: bool = False

    def with_more(self, other: "ColumnProfile") -> "ColumnProfile":
        """The snapshot's sample combined with that of its changes; uniqueness is that of the snapshot."""
        kinds, zoned = self.kinds & other.kinds, ""
        if not kinds and "time" in self.kinds and "instant" in other.kinds:
            kinds, zoned = frozenset({"instant"}), "changes"
        elif not kinds and "instant" in self.kinds and "time" in other.kinds:
            kinds, zoned = frozenset({"instant"}), "snapshot"
        digits, places = max(self.digits, other.digits), max(self.places, other.places)
        values = self.values + other.values
        return replace(self, values=values, kinds=kinds, digits=digits, places=places, zoned=zoned)

    @property
    def identifies(self) -> bool:
        return 0 < self.rows == self.values == self.distinct

    @property
    def kind(self) -> str:
        """The column's type in Spark DDL."""
        if self.fixed:
            return self.narrow if self.binary and self.narrow else self.fixed
        if not self.values:
            return "STRING"
        if "whole" in self.kinds:
            return _of_digits(self.digits)
        if "number" in self.kinds and self.places <= PLACES and self.digits + self.places <= DIGITS:
            digits = self.digits + self.places
            if self.binary and digits <= DOUBLE_DIGITS:
                return f"DECIMAL({DOUBLE_DIGITS},{self.places})"
            return f"DECIMAL({_SHORT if digits <= _SHORT - _ROOM else DIGITS},{self.places})"
        named = {"boolean": "BOOLEAN", "date": "DATE", "time": "TIMESTAMP_NTZ", "instant": "TIMESTAMP"}
        return next((ddl for kind, ddl in named.items() if kind in self.kinds), "STRING")

    def remark(self, name: str) -> str:
        """What a reader should know about the type; empty if it is obvious."""
        if not self.values and not self.fixed:
            return f"'{name}' has no value in these rows: STRING until you set its type"
        if self.unsettled:
            where = "" if self.kind == "STRING" else f" in {self.kind}"
            return f"'{name}' has values of several kinds, or of none: STRING{where} keeps them as text"
        if self.kind == "STRING" and "digits" in self.kinds:
            return f"'{name}' holds digits that are not a number: with leading zeros, or too many digits"
        if self.kind == "STRING" and "float" in self.kinds:
            return f"'{name}' holds numbers that neither BIGINT nor DECIMAL keeps exactly; DOUBLE would round them"
        if "DOUBLE" in self.kind:
            return f"'{name}' has numbers as doubles are written; a number of more digits would be rounded"
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
    return f"DECIMAL({DIGITS},0)" if digits <= DIGITS else "STRING"


def literal(value: str) -> str:
    """The text in DuckDB's SQL."""
    return "'" + value.replace("'", "''") + "'"


def identifier(value: str) -> str:
    """The name in DuckDB's SQL."""
    return '"' + value.replace('"', '""') + '"'


def of_relation(rows: "DuckDBPyRelation", names: Sequence[str]) -> dict[str, ColumnProfile]:
    """For each column, what its texts have in common. rows: columns of text, in the order of `names`."""
    found = {}
    for name, column in zip(names, rows.columns, strict=True):
        c = identifier(column)
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
        found[name] = ColumnProfile(count, values, distinct, kinds, digits, places)
    return found


_SHOWN = 5


def remarks(columns: Mapping[str, ColumnProfile]) -> list[str]:
    """What a reader should know about the types, a line each."""
    found = [remark for name, one in columns.items() if (remark := one.remark(name))]
    more = [f"and {len(found) - _SHOWN} more like these"] if len(found) > _SHOWN else []
    return found[:_SHOWN] + more


def ddl(columns: Mapping[str, ColumnProfile]) -> str:
    """The columns as Spark DDL."""
    return ", ".join(f"{spelt(name)} {seen.kind}" for name, seen in columns.items())


def spelt(name: str) -> str:
    """The name in Spark DDL."""
    return backticked(name) if name.lower() in _RESERVED else plain(name)


def like_a_key(names: Sequence[str]) -> list[str]:
    """Those named like a key; only `id`, where it is one of them."""
    return [name for name in names if name.lower() == "id"] or [*filter(_NAMED_LIKE_A_KEY.fullmatch, names)]


def key_of(columns: Mapping[str, ColumnProfile], table: str) -> tuple[str | None, list[str]]:
    """(the column named like this table's key, all columns that could be it). A key needs both the name and unique
    values: a wrong key loses rows."""
    able = [name for name, seen in columns.items() if seen.identifies and seen.kind != "DOUBLE"]
    named = [name for name in able if _NAMED_LIKE_A_KEY.fullmatch(name)]
    own = {"id", f"{table}_id", f"{table}_key", f"{table.removesuffix('s')}_id", f"{table.removesuffix('s')}_key"}
    best = [name for name in named if name.lower() in own]
    for one in (best, named):
        if len(one) == 1:
            return one[0], [*named, *(name for name in able if name not in named)]
        if one:
            break
    return None, [*named, *(name for name in able if name not in named)]


_EXACT_IN_JSON = 15
"""DuckDB reads a number in JSON as a double: up to this many digits it identifies the number as written."""


def of_json(db: "DuckDBPyConnection", table: str) -> tuple[Mapping[str, Any] | None, "DuckDBPyRelation"]:
    """(the structure of each column's values, the columns as text); None: not all are objects.

    table: of `db`, with a column `json`, one object per row. Numbers in the structure have at most 17 digits.
    """
    ((whole,),) = db.sql(f"SELECT json_group_structure(json) FROM {table}").fetchall()
    shape = json.loads(whole) if whole else {}
    if not isinstance(shape, dict):
        return None, db.sql(f"SELECT json FROM {table}")
    pointers = ["/" + name.replace("~", "~0").replace("/", "~1") for name in shape]
    columns = ", ".join(
        f"json ->> {literal(at)} AS {identifier(name or ' ')}" for at, name in zip(pointers, shape, strict=True)
    )
    return shape, db.sql(f"SELECT {columns or 'json'} FROM {table}")


def profiles(shape: Mapping[str, Any], rows: "DuckDBPyRelation") -> dict[str, ColumnProfile]:
    """What the columns that `of_json` found have in common."""
    found = of_relation(rows, list(shape))
    return {name: _of_json(one, shape[name]) for name, one in found.items()}


def _of_json(one: ColumnProfile, shape: Any) -> ColumnProfile:
    """JSON strings stay text, even if they hold only digits. What a nested value holds is for exact_types.py."""
    if not isinstance(shape, str) or shape == "JSON":
        return replace(one, fixed="STRING", unsettled=_is_unsettled(shape))
    able = {"VARCHAR": {"date", "time", "instant"}, "BOOLEAN": {"boolean"}}.get(
        shape, {"whole", "number", "float"}
    )
    kinds = one.kinds & able
    if one.digits + one.places > _EXACT_IN_JSON and shape == "DOUBLE":
        kinds -= {"number"}
    return replace(one, kinds=kinds)


def _is_unsettled(shape: Any) -> bool:
    inner = shape.values() if isinstance(shape, dict) else shape if isinstance(shape, list) else ()
    return shape in ("JSON", "NULL") or any(map(_is_unsettled, inner))
