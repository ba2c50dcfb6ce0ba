"""Iceberg tables in memory: a branch is forwarded only where the table's own did not move; snapshots expire."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from backfill_cli.contracts import EpochCommit
from backfill_cli.contracts.refusals import is_due, refuse_old_token
from backfill_cli.errors import Transient
from backfill_cli.failpoint import hit
from backfill_cli.lake.iceberg.metadata import Held
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.iceberg import markers
from backfill_cli.sinks.iceberg.markers import Head

from .lake_tables import JOB, STRANGERS, LakeTables
from .two_tables import EVEN, ODD
from .world import MemoryStager

TRIES = 8


@dataclass(frozen=True)
class Snapshot:
    snapshot_id: int
    parent_snapshot_id: int | None
    rows: Any
    summary: Any


@dataclass(frozen=True)
class IcebergTable:
    """refs: branches and tags but main. made: how many snapshots there were."""

    snapshots: Mapping[int, Snapshot]
    main: int
    refs: Mapping[str, int]
    made: int

    def held(self) -> Head:
        """The product's own look at it."""
        refs = {name: SimpleNamespace(snapshot_id=number) for name, number in self.refs.items()}
        told: Any = SimpleNamespace(
            snapshots=list(self.snapshots.values()), current_snapshot_id=self.main, refs=refs
        )
        return Head(Held("", told, None))

    def with_snapshot(self, onto: int, rows: Any, told: Mapping[str, str]) -> "tuple[int, IcebergTable]":
        one = Snapshot(self.made, onto, rows, SimpleNamespace(additional_properties=dict(told)))
        return self.made, replace(self, snapshots={**self.snapshots, self.made: one}, made=self.made + 1)


class Moved(Exception):
    pass


class IcebergTables(LakeTables):
    """The steps of sinks.iceberg: `IcebergSink._commit`, `_mark` and `Writer._on_branch`."""

    def __init__(self, stager: MemoryStager, random: Random) -> None:
        super().__init__(stager, random)
        self.expired: dict[str, Mapping[int, Snapshot]] = {}
        told = {
            name: markers.properties(JOB, name, claim, Marker(0, 0, "")) for name, claim in self.claims.items()
        }
        first = {name: Snapshot(0, None, {}, SimpleNamespace(additional_properties=told[name])) for name in told}
        self.tables = {name: IcebergTable({0: one}, 0, {markers.tag(0): 0}, 1) for name, one in first.items()}

    def held(self, table: str) -> Mapping[Any, int]:
        one = self.tables[table]
        found: Mapping[Any, int] = one.snapshots[one.main].rows
        return found

    def marker_in(self, table: str) -> Marker:
        return markers.marker_of(self.tables[table].held(), self.claims[table])

    def committed(self, job: str) -> Mapping[str, Marker]:
        return {name: self.marker_in(name) for name in (EVEN, ODD)}

    def fence(self, job: str, token: int) -> None:
        for name in (EVEN, ODD):
            refuse_old_token(job, name, token, self.marker_in(name))
            if self.marker_in(name).token < token:
                self._tried(name, lambda name=name: self._fenced(name, token))  # type: ignore[misc]

    def _fenced(self, name: str, token: int) -> None:
        begun, now = self.tables[name].main, self.marker_in(name)
        refuse_old_token(JOB, name, token, now)
        self._on_branch(name, begun, replace(now, token=token), None)
        for ref, _ in markers.refs_before(self.tables[name].held(), token):
            refs = {other: number for other, number in self.tables[name].refs.items() if other != ref}
            self._put(name, replace(self.tables[name], refs=refs))

    def commit(self, commit: EpochCommit) -> None:
        for name in self.asked(commit):
            self._tried(name, lambda name=name: self._committed(commit, name))  # type: ignore[misc]

    def _tried(self, name: str, act: Callable[[], None]) -> None:
        for _ in range(TRIES):
            try:
                return act()
            except Moved:
                continue
        raise Transient(f"others commit to {name} all the time")

    def _committed(self, commit: EpochCommit, name: str) -> None:
        begun, marker = self.tables[name].main, self.marker_in(name)
        if not is_due(commit, name, marker, "table"):
            return
        self.may_fail(commit, name)
        self.state.save(commit, marker)
        self.meanwhile(name)
        self._on_branch(name, begun, Marker(commit.epoch, commit.token, commit.attempt), commit)

    def _on_branch(self, name: str, begun: int, marker: Marker, commit: EpochCommit | None) -> None:
        told = markers.properties(JOB, name, self.claims[name], marker)
        if begun not in self.tables[name].snapshots:
            raise Moved
        branch, table = markers.branch(marker.token), self.tables[name]
        rows = table.snapshots[begun].rows
        if commit is not None:
            rows, _ = self.part(commit, name, rows)
        number, table = table.with_snapshot(begun, rows, told)
        self._put(name, replace(table, refs={**table.refs, branch: number}))
        if commit is not None:
            hit("sink-before-commit")
        self.meanwhile(name)
        if not self.forwards(name, number):
            self.given_up(name, branch)
            raise Moved
        self._put(name, replace(self.tables[name], main=number))
        if commit is not None:
            self.one_more(commit)
            hit("sink-before-close")
        self.meanwhile(name)
        self.tagged(name, markers.tag(marker.token), number)

    def given_up(self, name: str, branch: str) -> None:
        """What was about to be committed is not: nobody need ask later whether it was."""
        table = self.tables[name]
        self._put(name, replace(table, refs={ref: at for ref, at in table.refs.items() if ref != branch}))

    def forwards(self, name: str, number: int) -> bool:
        """Whether the table's branch may move to this snapshot: what it is at is an ancestor."""
        table = self.tables[name]
        held = table.held()
        return table.main in [one.snapshot_id for one in held.ancestors(held.snapshot(number))]

    def tagged(self, name: str, tag: str, number: int) -> None:
        """The tag is at the snapshot that says the marker, whatever came after it."""
        table = self.tables[name]
        self._put(name, replace(table, refs={**table.refs, tag: number}))

    def _put(self, name: str, table: IcebergTable) -> None:
        self.tables = {**self.tables, name: table}

    def stranger(self, table: str) -> None:
        now = self.tables[table]
        rows = {**self.held(table), STRANGERS + self.random.randrange(50): self.random.randrange(9)}
        number, made = now.with_snapshot(now.main, rows, {})
        self._put(table, replace(made, main=number))

    def clean(self, table: str) -> None:
        """expire_snapshots: those that no branch or tag is at are gone."""
        now = self.tables[table]
        kept = {now.main, *now.refs.values()}
        self.expired[table] = {**self.expired.get(table, {}), **now.snapshots}
        self._put(table, replace(now, snapshots={n: one for n, one in now.snapshots.items() if n in kept}))

    def restore(self) -> None:
        for name, table in self.tables.items():
            self._put(name, replace(table, snapshots={**self.expired.get(name, {}), **table.snapshots}))
