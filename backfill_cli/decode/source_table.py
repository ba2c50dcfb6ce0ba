"""Finds the table of a Debezium envelope by its `source`, and whether changes of that table are read.

A table's full name is `db.schema.table`, as far as the envelope has these parts.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts.decoder import Asked
from backfill_cli.contracts.refusals import in_toml
from backfill_cli.errors import ConfigError, Hint, in_config

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
    shared: of those that match, only `source` is the table. unseen: no record had shown it when the job began, so
    another one that matches may be meant, and is not skipped. theirs: full names of tables whose records are not
    skipped by the job, but read for another table.
    """

    tables: tuple[str, ...] = ()
    source: str | None = None
    named: tuple[str, str] | None = None
    shared: bool = False
    unseen: bool = False
    theirs: frozenset[str] = frozenset()

    @property
    def of_one(self) -> bool:
        """Whether all that is read is certainly of one table."""
        if self.shared:
            return not self.unseen
        return not self.tables and self.source is not None and self.named is not None

    def reads(self, of: str) -> bool:
        """Whether an envelope of this table is read rather than skipped."""
        if self.shared and not self.unseen:
            return of in ("", self.source)
        return not self.tables or of == "" or re.search(matching(self.tables), of) is not None

    def is_other(self, of: str) -> bool:
        """Whether an envelope of this table must not be here."""
        if self.shared:
            return of != self.source and self.reads(of)
        if self.tables or self.named is None:
            return False
        if self.source is not None:
            return of != self.source
        place, table = self.named
        qualified, last = re.search(_QUALIFIED, of), re.search(_TABLE, of)
        by_place = qualified is not None and f".{place}".endswith(f".{qualified[0]}")
        return of != "" and not by_place and (last is None or last[0] != table)

    def is_alone(self, of: str) -> bool:
        """Whether all rows that are read are of this table: they are gone when it is emptied."""
        return not self.tables or self.tables == (of,) or (self.shared and of == self.source)

    def is_mine(self, of: str) -> bool:
        """Whether this table's rows are read."""
        return of != "" and self.reads(of) and not self.is_other(of)

    def is_within(self, database: str) -> bool:
        """Whether a table that is read is, or can be, one of this database's."""
        named = [one.rpartition(".")[0] for one in self._named]
        return any(not one or re.search(matching((one,)), database) is not None for one in named or [""])

    def is_all_of(self, database: str) -> bool:
        """Whether all rows that are read are of a table of this database."""
        return any(one.rpartition(".")[0] == database and self.is_alone(one) for one in self._named)

    @property
    def _named(self) -> tuple[str, ...]:
        """What is known of the names of the tables that are read."""
        if self.tables and not self.shared:
            return self.tables
        return () if self.source is None else (self.source,)

    def fault(self, of: str) -> str:
        """What is wrong with an envelope of this other table."""
        if self.shared and of == "":
            return f"{NAMELESS}, in a topic of several tables"
        one = self.source or (self.named[1] if self.named else "")
        told = f"a record of another table than '{one}': {of or NAMELESS}"
        if not self.shared:
            return told
        return (
            f"{told}; no record showed the table's full name when the job began: if this one is meant, start over "
            f"with name = {in_toml(of)} in [[tables]]"
        )


def known_of(asked: Asked, facts: Mapping[str, Any]) -> Known:
    """Which tables are read of a place, by what was remembered of it (`remembered`)."""
    tables, source = tuple(asked.options.get("tables") or ()), facts.get("source")
    named = (asked.name, asked.table) if "source" in facts else None
    shared, unseen = asked.shared and source is not None, bool(facts.get("unseen"))
    return Known(tables, source, named, shared, unseen, asked.theirs)


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


def reading(asked: Asked) -> Callable[[str], bool]:
    """Whether records of a table are read, by its full name."""
    tables = asked.options.get("tables")
    if asked.source is not None:
        return lambda of: of == asked.source
    pattern = re.compile(matching(tables)) if tables else None
    return lambda of: pattern is None or pattern.search(of) is not None


def others(asked: Asked, named: Iterable[str]) -> frozenset[str]:
    """Of the tables that the records of a place are of, those that are not read."""
    reads = reading(asked)
    return frozenset(one for one in named if one and not reads(one))


def remembered(asked: Asked, named: Iterable[str]) -> dict[str, Any]:
    """What must be remembered of the tables that the records of a place are of.

    Raises as `one_source`; and ConfigError where nothing shows the full name of a table that shares the place.
    """
    seen, reads = sorted({*named} - {""}), reading(asked)
    source = one_source(asked, filter(reads, seen))
    if source is None and asked.shared:
        full = _expected(asked.table, seen)
        if full is None and not asked.begun:
            raise _nameless(asked, seen)
        return {"source": asked.table if full is None else full, "unseen": True}
    return {"source": source}


def _expected(table: str, named: Sequence[str]) -> str | None:
    """The full name of a table that no record has shown: with what it lacks as all others have it.

    A name counts as full that has as many parts as another, or several where there are no others. None: nothing
    shows the name.
    """
    own = table.split(".")
    lacking = {of.count(".") + 1 - len(own) for of in named}
    if 0 in lacking or (not named and len(own) > 1):
        return table
    if len(lacking) != 1 or min(lacking) < 0:
        return None
    (more,) = lacking
    places = {tuple(of.split(".")[:more]) for of in named}
    return ".".join([*places.pop(), *own]) if len(places) == 1 else None


def _nameless(asked: Asked, seen: Sequence[str]) -> ConfigError:
    """For a table of which nothing shows the full name."""
    own = asked.table.split(".")
    shown = f"where records name: {', '.join(seen[:5])}" if seen else "which has no record that names one"
    place = ["DATABASE"]
    if seen:
        many = {of.count(".") for of in seen}
        # names of several lengths have dots in them, or come from several databases: none says where this one is
        place = seen[0].split(".")[:-1] if len(many) == 1 else ["DATABASE", *["SCHEMA"] * min(many)][: min(many)]
    size = len(place) + 1
    full = ".".join([*place[: max(size - len(own), 0)], *own[-size:]])
    fault = f"tables: nothing shows the full name of '{asked.table}' in {asked.place}, {shown}"
    name = f"name = {in_toml(full)}, target = {in_toml(own[-1])}"
    return ConfigError("config", [fault], in_config(f"name it in [[tables]] as its records will: {name}"))


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
    if len(found) < 2:
        return found[0] if found else None
    mine = [of for of in found if not Known(named=(asked.name, asked.table)).is_other(of)]
    mine = [of for of in found if f".{of}".endswith(f".{asked.table}")] or mine
    if asked.sets_aside and len(mine) == 1:
        return mine[0]
    option = "topics" if asked.of_several else "topic"
    fault = f"{asked.at.rpartition('.')[0]}.{option}: '{asked.name}' holds records of several tables: "
    raise ConfigError("upstream", [fault + ", ".join(found[:5])], _which(asked, found, mine))


def _which(asked: Asked, found: Sequence[str], mine: Sequence[str]) -> Hint | str:
    """The hint where a place that is one table's has records of these, of which some can be meant by its name."""
    aside = (
        f"to read '{mine[0]}', and put the records of the others, as all that cannot be read, into a quarantine "
        'table of the sink: upstream.on_error = "quarantine"'
        if len(mine) == 1 and asked.whole is None
        else ""
    )
    if not asked.of_several:
        named = f'name those to read: {asked.at}.tables = ["{(*mine, *found)[0]}"]'
        return in_config("; or, ".join(filter(None, (named, aside))))
    if aside:
        return in_config(aside)
    if len(mine) == 1:
        return "let each of these topics have the records of one table"
    name = f'name = "{found[0]}", target = "{asked.table}"'
    return in_config(f"name in [[tables]] the one that is meant, and its topic in {asked.at[:-6]}.topics: {name}")
