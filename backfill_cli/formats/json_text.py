"""Checks that a text is one JSON object and nothing else, before any reader of JSON parses it."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from backfill_cli.spark.api import Column, F

_LONE_SURROGATE = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
"""Half a surrogate pair, which Java would write as a question mark."""


def is_whole_object(told: Column) -> Column:
    """Whether a STRING is one object: UTF-8, whole characters, no duplicate name, nothing after it. Never NULL."""
    # Parsing alone would read only the first of two objects, and the last value of a duplicate name.
    alone = F.try_parse_json(F.concat(F.lit("["), told, F.lit("]")))
    whole = F.is_valid_utf8(told) & told.rlike(r"^\s*\{") & ~told.rlike(_LONE_SURROGATE)
    whole &= alone.isNotNull() & F.try_variant_get(alone, "$[1]", "variant").isNull()
    return F.coalesce(whole, F.lit(False))


_ROWS = ("$.after", "$.before", "$.payload.after", "$.payload.before")


def is_rounded(told: Column, names: Sequence[str]) -> Column:
    """Whether a row of an envelope has a number with a fraction in such a column. Never NULL.

    names: columns whose values `from_json` reads as text; it would give a double's digits (1.10 as 1.1).
    """
    if not names:
        return F.lit(False)

    def has(row: str) -> Column:
        members = F.try_variant_get(F.try_parse_json(told), row, "map<string,variant>")
        named = F.map_values(F.map_filter(members, lambda name, _: name.isin(*names)))
        return F.coalesce(
            F.exists(named, lambda one: F.schema_of_variant(one).rlike("DECIMAL|DOUBLE|VARIANT")), F.lit(False)
        )

    # parsed again only if the text has such a number at all
    return told.rlike(r"[:,\[]\s*-?[0-9]+[.eE]") & reduce(or_, map(has, _ROWS))
