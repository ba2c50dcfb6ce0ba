"""The partial aggregates of derived tables that are kept by contributions: a table of our own beside each.

They are a function of the job's tables at one commit, which is recorded with them. Those that are of another one
(an older backfill has kept the derived table meanwhile) are computed anew, and the groups once from all their
rows.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import EpochCommit
from backfill_cli.derived.contributions import Contributions, contributions
from backfill_cli.derived.rows import Maintained
from backfill_cli.sinks.sql.state import PARTIALS, SqlState
from backfill_cli.sinks.sql.upkeep import Kept, added_to, create_partials

if TYPE_CHECKING:
    from backfill_cli.sinks.sql.derived import SqlDerives


class Partials:
    """In a commit's transaction."""

    def __init__(self, derives: "SqlDerives[Any]", state: SqlState, commit: EpochCommit) -> None:
        self.derives, self.state, self.commit = derives, state, commit
        self.known = PARTIALS.name in state.there()  # `prepare` has created it
        self.recorded = state.partials(commit.job) if self.known else {}
        self.lacking: list[Maintained] = []  # kept ones without any
        self.made = False  # whether tables were created or dropped

    def of(self, one: Maintained, epoch: int) -> tuple[Contributions | None, str]:
        """What it is kept by, and where its partial aggregates are; (None, "") if its groups are computed again.

        epoch: the commit that it is of.
        """
        found = contributions(one) if self.known else ""
        if isinstance(found, str):
            return None, ""
        name, of = self.recorded.get(one.derived.name, ("", 0))
        if name == self._name(one) and of == epoch:
            return found, self.state.sql(name)
        if (name, of) != ("", _digest(self._name(one))):
            self.lacking.append(one)
        return None, ""

    def fill(self, one: Maintained, bag: str = "") -> str:
        """Its partial aggregates are there; returns a SELECT of its rows, made of them; "": it is kept without.

        bag: a table whose contributions make them up, unless they cannot be right.
        """
        self.drop(one)
        if not self.known or isinstance(contributions(one), str):
            return ""
        self.lacking = [each for each in self.lacking if each is not one]
        job, table, name = self.commit.job, one.derived.name, self._name(one)
        added = added_to(self.state.con, one)
        if isinstance(added, str):
            self.state.record_partials(job, table, "", _digest(name))
            return ""
        self.made, target = True, self.state.target(name)
        self.state.con.run(f"DROP TABLE IF EXISTS {target.sql}")  # of a job that a lost catalog was of
        if bag:
            functions = self.derives.dialect.functions
            self.state.con.run(f"CREATE TABLE {target.sql} AS SELECT * FROM {bag} WHERE FALSE")
            self.state.con.run(f"INSERT INTO {target.sql} {added.sum_up(bag, functions)}")
            if self.state.con.rows(added.impossible(target.sql)):  # somebody else wrote into a table meanwhile
                self.state.con.run(f"DROP TABLE {target.sql}")
                return self.fill(one)
        else:
            create_partials(self.state.con, self.derives.dialect, added, target.sql)
        for statement in self.derives.indexes(self.state, target, added.key_columns):
            self.state.con.run(statement)
        self.state.record_partials(job, table, name, self.commit.epoch)
        return added.visible(target.sql)

    def drop(self, one: Maintained) -> None:
        """It has no partial aggregates: those there were are of other rows, or of another SELECT."""
        name, _ = self.recorded.get(one.derived.name, ("", 0))
        if name:
            self.made = True
            self.state.con.run(f"DROP TABLE IF EXISTS {self.state.sql(name)}")
            self.state.record_partials(self.commit.job, one.derived.name, "", 0)

    def keep(self, kept: Sequence[Kept]) -> bool:
        """Those of the kept derived tables are of this commit. Returns whether tables were created or dropped."""
        if names := [one.name for one in kept if one.added is not None]:
            self.state.advance_partials(self.commit.job, names, self.commit.epoch)
        for one in self.lacking:
            self.fill(one)
        return self.made

    def _name(self, one: Maintained) -> str:
        """Of the table, without what all names of ours begin with: it tells what is in it."""
        told = repr((self.commit.job, one.derived.name, one.text, one.pushed))
        return f"{PARTIALS.name}_{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _digest(name: str) -> int:
    """Which definition was found not to be kept so: in place of a commit."""
    return -int(name.rpartition("_")[2][:15], 16)
