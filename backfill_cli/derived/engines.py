"""How the engines spell what a reach is made of: quoting, and a row that one relation shares with another."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backfill_cli.contracts import own


@dataclass(frozen=True, slots=True)
class Engine:
    """dialect: its name in sqlglot. ignores_case: of names. semi: whether it has SEMI JOIN, which it plans well.

    compares_null: whether it can hash IS NOT DISTINCT FROM. tries: whether TRY(…) is NULL for what fails.
    types: SQL of the types of the columns of a table, {}, in order, without their modifiers; declared: with them;
    "" where the caller knows them. moments: whether the text 'today' can be read as a date. folds_all: whether
    names have no case in letters outside ASCII either. quote: of identifiers. lenient: whether it casts a value
    in a comparison by itself, which can fail for another row. scales: whether a number has a scale of its own
    beside that of its type, and can be none. averages: whether avg of exact numbers is the quotient of their sum
    and their count, exactly.
    strict: whether no comparison can fail. refreshes: whether derived.refresh is taken.
    """

    dialect: str
    ignores_case: bool
    semi: bool
    compares_null: bool
    tries: bool
    types: str
    declared: str
    moments: bool = False
    folds_all: bool = False
    quote: str = '"'
    lenient: bool = False
    scales: bool = False
    averages: bool = False
    strict: bool = False
    refreshes: bool = False

    def quoted(self, name: str) -> str:
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def listed(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.quoted, names))

    def name(self, text: str, quoted: bool) -> str:
        """An identifier as it is compared with others."""
        if quoted and not self.ignores_case:
            return text
        if self.folds_all:
            return own.fold(text)
        return text.lower() if text.isascii() else re.sub("[A-Z]+", lambda found: found[0].lower(), text)

    def same(self, left: str, right: str, nullable: bool) -> str:
        """SQL: both are equal, or both are NULL."""
        if not nullable:
            return f"{left} = {right}"
        if self.compares_null:
            return f"{left} IS NOT DISTINCT FROM {right}"
        # Arrays with NULL as their element are equal to each other, and can be hashed.
        return f"ARRAY[{left}] = ARRAY[{right}]"


ENGINES = {
    "duckdb": Engine(
        "duckdb",
        ignores_case=True,
        semi=True,
        compares_null=True,
        tries=True,
        types="SELECT column_type FROM (DESCRIBE {})",
        declared="SELECT column_type FROM (DESCRIBE {})",
        refreshes=True,
    ),
    "postgres": Engine(
        "postgres",
        ignores_case=False,
        semi=False,
        compares_null=False,
        tries=False,
        types="SELECT pg_catalog.format_type(atttypid, -1) FROM pg_catalog.pg_attribute "
        "WHERE attrelid = '{}'::pg_catalog.regclass AND attnum > 0 ORDER BY attnum",
        declared="SELECT pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute "
        "WHERE attrelid = '{}'::pg_catalog.regclass AND attnum > 0 ORDER BY attnum",
        moments=True,
        scales=True,
        averages=True,
        strict=True,
        refreshes=True,
    ),
    "spark": Engine(
        "spark",
        ignores_case=True,
        semi=True,
        compares_null=True,
        tries=False,
        types="",
        declared="",
        moments=True,  # DATE 'today'
        folds_all=True,
        quote="`",
        lenient=True,
    ),
}
"""By the sink's type; lakes have Spark's."""
