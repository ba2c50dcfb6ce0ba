"""Delta tables in memory: a commit whose number is not newer is skipped, without a word.

One that another of its application overtook fails, and one of rows that others touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from backfill_cli.contracts import EpochCommit
from backfill_cli.contracts.refusals import is_due, refuse_old_token
from backfill_cli.errors import Held, StateConflict, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.delta import marks

from .lake_tables import JOB, STRANGERS, Files, LakeTables
from .two_tables import EVEN, ODD
from .world import MemoryStager


@dataclass(frozen=True)
class DeltaTable:
    """number: the newest of the job's transactions. log: of each commit whether it was the job's, and its keys."""

    number: int | None = None
    rows: Any = None
    log: tuple[tuple[bool, frozenset[int]], ...] = ()


class Marked(marks.MarkedTable):
    """The product's own rules over a table in memory: where is (sink, table)."""

    def numbered(self) -> tuple[int, int, int] | None:
        sink, name = self.where  # type: ignore[misc]
        table = sink.tables[name]
        return len(table.log), *self._told(table.number)

    def write(self, number: int, onto: int, files: Any = ()) -> bool:
        sink, name = self.where  # type: ignore[misc]
        sink.meanwhile(name)
        table = sink.tables[name]
        if len(table.log) != onto:
            return False
        sink.tables = {**sink.tables, name: replace(table, number=number, log=(*table.log, (True, frozenset())))}
        return True


class DeltaTables(LakeTables):
    """The steps of sinks.delta.sink.DeltaSink.commit.

    overtaken: Delta looks whether another transaction of the application came in between.
    """

    overtaken = True

    def __init__(self, stager: MemoryStager, random: Random) -> None:
        super().__init__(stager, random)
        self.tables = {name: DeltaTable(rows={}) for name in (EVEN, ODD)}

    def held(self, table: str) -> Mapping[Any, int]:
        found: Mapping[Any, int] = self.tables[table].rows
        return found

    def marked(self, table: str) -> Marked:
        claim = self.claims[table]
        at = marks.marks_of(Files(self, "state"), JOB, claim)  # type: ignore[arg-type]
        return Marked(JOB, table, claim, (self, table), at)  # type: ignore[arg-type]

    def committed(self, job: str) -> Mapping[str, Marker]:
        return {name: marker for name in (EVEN, ODD) if (marker := self.marked(name).marker()) is not None}

    def fence(self, job: str, token: int) -> None:
        for name, marker in self.committed(job).items():
            refuse_old_token(job, name, token, marker)
        for name in (EVEN, ODD):
            self.marked(name).raise_token(token)

    def commit(self, commit: EpochCommit) -> None:
        for name in self.asked(commit):
            found = self.marked(name)
            marker = found.marker()
            if not is_due(commit, name, marker, "folder"):
                continue
            assert marker is not None
            self.may_fail(commit, name)
            self.state.save(commit, marker)
            found.mark(commit.token, commit.epoch, commit.attempt, marker.epoch)
            hit("sink-before-commit")
            self.meanwhile(name)
            self._write(commit, name, found)
            now = found.marker()
            assert now is not None
            refuse_old_token(JOB, name, commit.token, now)
            if (now.epoch, now.token) != (commit.epoch, commit.token):
                raise StateConflict(f"{name} is at {now} after {commit.epoch} was committed")
            hit("sink-after-table")

    def _write(self, commit: EpochCommit, name: str, found: Marked) -> None:
        """What Spark and Delta do: read a version, write onto the newest, look at what came between."""
        number, read = marks.number_of(commit.token, commit.epoch), self.tables[name]
        if read.number is not None and number <= read.number:
            return  # skipped, without a word
        self.meanwhile(name)
        now = self.tables[name]
        _, keys = self.part(commit, name, read.rows)
        since = now.log[len(read.log) :]
        if self.overtaken and any(ours for ours, _ in since):
            raise Held("a concurrent transaction of this application")
        if any(keys & theirs for _, theirs in since):
            raise Transient("another writer's commit changed the same rows")
        rows, _ = self.part(commit, name, now.rows)
        self.tables = {**self.tables, name: DeltaTable(number, rows, (*now.log, (True, frozenset(keys))))}
        self.one_more(commit)

    def stranger(self, table: str) -> None:
        now, key = self.tables[table], STRANGERS + self.random.randrange(50)
        rows = {**now.rows, key: self.random.randrange(9)}
        self.tables = {**self.tables, table: DeltaTable(now.number, rows, (*now.log, (False, frozenset({key}))))}
