"""Finds the table of a Debezium envelope by its `source`, and whether changes of that table are read.

A table's full name is `db.schema.table`, as far as the envelope has these parts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts.decoder import Asked
from backfill_cli.errors import ConfigError, in_config

PARTS = ("db", "schema", "table")
"""The parts of `source` that name a table, in order."""

_TABLE, _QUALIFIED = r"[^.]*$", r"[^.]*[.][^.]*$"


NAMELESS = "its source names no table"
"""Shown instead of the table of an envelope that names none."""


@dataclass(frozen=True, slots=True)
class Known:
    """Which tables are read.

    tables: patterns of their names (`schema.table`, * for anything but a dot); envelopes of others are skipped. If
    empty, only `source` is read: the one table found when the job began, None if there was none yet. named: the
    place (a topic, a folder) and the configured table, one of which has to match the source's name then; None in
    jobs of older versions, which are not checked.
    """

    tables: tuple[str, ...] = ()
    source: str | None = None
    named: tuple[str, str] | None = None

    def reads(self, of: str) -> bool:
        """Whether an envelope of this table is read rather than skipped."""
        return not self.tables or of == "" or re.search(matching(self.tables), of) is not None

    def is_other(self, of: str) -> bool:
        """Whether an envelope of this table must not be here."""
        if self.tables or self.named is None:
            return False
        if self.source is not None:
            return of != self.source
        place, table = self.named
        qualified, last = re.search(_QUALIFIED, of), re.search(_TABLE, of)
        by_place = qualified is not None and f".{place}".endswith(f".{qualified[0]}")
        return of != "" and not by_place and (last is None or last[0] != table)

    def fault(self, of: str) -> str:
        """What is wrong with an envelope of this other table."""
        one = self.source or (self.named[1] if self.named else "")
        return f"a record of another table than '{one}': {of or NAMELESS}"


def source_of(envelope: Mapping[str, Any]) -> str:
    """The full name of an envelope's table; empty if it names none."""
    source = envelope.get("source")
    told = source if isinstance(source, dict) else {}
    return ".".join(str(told[part]) for part in PARTS if told.get(part))


def matching(tables: Sequence[str]) -> str:
    """The pattern of the tables' full names."""
    parts = ("[^.]*".join(map(re.escape, one.split("*"))) for one in tables)
    return rf"^(.*\.)?({'|'.join(parts)})$"


def matching_table(sources: Sequence[str], table: str) -> str | None:
    """The only one of these full names that ends with the table's name; None if there is none, or several."""
    mine = [one for one in sources if one.rpartition(".")[2] == table]
    return mine[0] if len(mine) == 1 else None


def others(asked: Asked, named: Iterable[str]) -> frozenset[str]:
    """Of the tables that the records of a place are of, those that are not read."""
    tables = asked.options.get("tables")
    return frozenset(one for one in named if one and tables and not re.search(matching(tables), one))


def one_source(asked: Asked, named: Iterable[str]) -> str | None:
    """The table that the records of a place are of; None if they name none, or the options say which are read.

    Raises ConfigError if they are of several.
    """
    found = sorted({*named} - {""})
    if asked.shared and len(found) > 1:
        fault = f"tables: '{asked.table}' is the end of several names in {asked.place}: {', '.join(found[:5])}"
        name = f'name = "{found[0]}", target = "{asked.table}"'
        raise ConfigError("config", [fault], in_config(f"name in [[tables]] the one that is meant: {name}"))
    if asked.options.get("tables") and not asked.shared:
        return None
    if len(found) > 1:
        fault = f"{asked.at.rpartition('.')[0]}.topic: '{asked.name}' holds records of several tables: "
        hint = in_config(f'name those to read: {asked.at}.tables = ["{found[0]}"]')
        raise ConfigError("upstream", [fault + ", ".join(found[:5])], hint)
    return found[0] if found else None
