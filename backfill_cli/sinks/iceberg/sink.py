"""Iceberg tables as a sink: each commit to a table checks the marker that it replaces, see `writing`.

Reading order: `tables` checks and creates tables, `markers` reads a table's marker, `writing` commits. What is
kept beside the tables is in lake/state.py. Tables commit one by one.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable
from backfill_cli.contracts.marker import gone, is_due, refuse_old_token
from backfill_cli.contracts.targets import no_record, written_too_often
from backfill_cli.errors import Transient
from backfill_cli.lake.iceberg import metadata
from backfill_cli.lake.iceberg.edge import Moved, failing
from backfill_cli.lake.iceberg.places import Place, settings_of
from backfill_cli.lake.state import Claim, JobRecord, JobState, jobs
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.sinks.iceberg import IcebergSinkOptions
from backfill_cli.sinks.iceberg import tables as shape
from backfill_cli.sinks.iceberg.beside import Beside
from backfill_cli.sinks.iceberg.heads import Head, head_of
from backfill_cli.sinks.iceberg.leaving import claims_on, keep_markers, refuse_live, statement
from backfill_cli.sinks.iceberg.live import Cutting, InPlace
from backfill_cli.sinks.iceberg.markers import marker_of, properties, refs_before
from backfill_cli.sinks.iceberg.tables import Target
from backfill_cli.sinks.iceberg.writing import Writer
from backfill_cli.spark.beside import session_beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_cli.lake.copy import LakeCopy

TRIES = 8
"""Tries of one commit if other writers commit in between; each try writes the epoch's rows again."""


class IcebergSink(InPlace):
    """`contracts.Sink`. Calls of one process take turns."""

    transactional = False
    partial = True

    def __init__(self, options: IcebergSinkOptions) -> None:
        self._options = options
        Place.of(options.table)
        self._looks: dict[Place, metadata.Look] = {}
        self._states: dict[str, JobState] = {}
        self._turn = threading.RLock()

    def use(self, session: "Callable[[], SparkSession]") -> None:
        self._session = session
        self._beside = Beside(self._options.table, settings_of(session), lambda: self._spark)

    @cached_property
    def _spark(self) -> "SparkSession":
        """A separate session: settings of a commit do not affect the staging that runs at the same time."""
        return session_beside(self._session())

    # Tables

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with self._turn:
            self._checked(job, tables, into_existing)

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with self._turn:
            record, targets = self._checked(job, tables, into_existing)
            held = record.claims if record is not None else {}
            new = [target for target in targets if target.table.name not in held]
            for target in targets:
                self._make(target)
            if not new:
                return
            token = max((marker.token for marker in self.committed(job).values()), default=0)
            claims = shape.claimed(new, token)
            self._beside.make()
            self._state(job).change(
                lambda known: replace(
                    known or JobRecord(job), claims={**(known.claims if known is not None else {}), **claims}
                )
            )
            for target in new:
                claim = claims[target.table.name]
                self._mark(job, target.table.name, claim, Marker(0, token, ""))

    def _checked(
        self, job: str, tables: Sequence[SinkTable], into_existing: bool
    ) -> tuple[JobRecord | None, list[Target]]:
        folder = self._beside.folder()
        record = None if folder is None else self._state(job).record()
        others = [] if folder is None else jobs(folder)
        claims = record.claims if record is not None else {}
        targets = [self._target(table, claims.get(table.name)) for table in tables]
        for target in targets:
            shape.check(job, target, record, others, into_existing)
            if record is not None and target.table.name in record.claims:
                shape.refuse_gone(job, target, self._state(job).newest_epoch())
        return record, targets

    def _target(self, table: SinkTable, claim: Claim | None) -> Target:
        place = shape.place_of(self._options.table, table)
        own = None if table.side else self._options.branch
        branch = own if claim is None else claim.branch
        return Target(table, place, shape.wanted_of(table), self._head(place, branch, claim), branch)

    def _head(self, place: Place, branch: str | None, claim: Claim | None) -> Head | None:
        held = self._look(place).now()
        return None if held is None else head_of(held, branch, claim)

    def _held(self, claim: Claim) -> Head | None:
        return self._head(Place.of(claim.place), claim.branch, claim)

    def _make(self, target: Target) -> None:
        target.place.register(self._spark)
        with failing(target.place, self._options.properties):
            if target.held is None:
                shape.create(self._spark, target, self._options.properties)
            else:
                shape.add_columns(self._spark, target)

    # Ownership

    def owner(self, job: str) -> Owner | None:
        record = self._record(job)
        return None if record is None else record.owner

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        if owner != instead_of:
            self._beside.make()
            self._state(job).own(owner, instead_of)

    def fence(self, job: str, token: int) -> None:
        record = self._record(job)
        if record is None:
            return
        with self._turn:
            self._cutting(job).note_live()
            for table, claim in record.claims.items():
                if (held := self._held(claim)) is None:
                    continue
                marker = marker_of(held, claim)
                refuse_old_token(job, table, token, marker)
                if marker.token < token:
                    self._mark(job, table, claim, replace(marker, token=token))

    def committed(self, job: str) -> Mapping[str, Marker]:
        record = self._record(job)
        found: dict[str, Marker] = {}
        for table, claim in (record.claims if record is not None else {}).items():
            held = self._held(claim)
            if record is not None and table in record.dropped and (held is None or not held.begun):
                found[table] = record.dropped[table]
            elif held is not None:
                found[table] = marker_of(held, claim)
        return found

    # Rows

    def commit(self, commit: EpochCommit) -> None:
        tables = [table for table in commit.tables if commit.only is None or table.name in commit.only]
        with self._turn:
            record = self._record(commit.job) or JobRecord(commit.job)
            for table in tables:
                if (claim := record.claims.get(table.name)) is None:
                    raise gone(commit, table.name, "table")
                self._commit(commit, table, claim)

    def _commit(self, commit: EpochCommit, table: SinkTable, claim: Claim) -> None:
        place = Place.of(claim.place)
        for _ in range(TRIES):
            held = self._held(claim)
            marker = None if held is None else marker_of(held, claim)
            if held is None or not is_due(commit, table.name, marker, "table"):
                if held is None:
                    raise gone(commit, table.name, "table")
                return
            assert marker is not None
            shape.require_ours(table, place, held, claim, marker)
            self._state(commit.job).save(commit, marker)
            told = Marker(commit.epoch, commit.token, commit.attempt)
            try:
                self._writer(commit.job, table.name, claim, told).apply(held, commit, table)
            except Moved:
                continue
            return
        raise _busy(place)

    def _mark(self, job: str, table: str, claim: Claim, marker: Marker) -> None:
        """The table has the marker's token; runners with an older one cannot commit, and their refs are dropped.

        The epoch stays the table's own: a commit in flight that finished first is kept.
        """
        place = Place.of(claim.place)
        for _ in range(TRIES):
            held = self._held(claim)
            if held is None:
                return
            now = marker_of(held, claim)
            refuse_old_token(job, table, marker.token, now)
            wanted = replace(now, token=marker.token)
            try:
                self._writer(job, table, claim, wanted).mark(held)
            except Moved:
                continue
            self._drop_refs(place, marker.token)
            return
        raise _busy(place)

    def _drop_refs(self, place: Place, token: int | None) -> None:
        held = self._look(place).now()
        if held is None:
            return
        for name, is_tag in refs_before(held, token):
            self._sql(place, f"ALTER TABLE {place.sql} DROP {'TAG' if is_tag else 'BRANCH'} IF EXISTS {name}")

    def _sql(self, place: Place, statement: str) -> None:
        place.register(self._spark)
        with failing(place):
            self._spark.sql(statement)

    def _writer(self, job: str, table: str, claim: Claim, marker: Marker) -> Writer:
        place = Place.of(claim.place)
        place.register(self._spark)
        told = properties(job, table, claim, marker)
        return Writer(self._spark, place, self._look(place), told, marker.token, self._options.properties)

    # Saved state, and dropping

    def saved(self, job: str) -> SavedJob | None:
        markers = self.committed(job)
        marker = self._state(job).at_one_epoch(markers) if markers else None
        return None if marker is None else self._state(job).saved(marker)

    def copied(self, job: str, live: bool, folder: Path) -> "AbstractContextManager[LakeCopy]":
        from backfill_cli.sinks.iceberg.verify import copied

        record = self._record(job)
        if record is None:
            raise no_record(job)
        return copied(self._session, self._options.table, self._state(job), record, self._held, live)

    def drop(self, tables: Sequence[SinkTable]) -> None:
        with self._turn:
            own = {
                shape.place_of(self._options.table, one): None if one.side else self._options.branch
                for one in tables
            }
            going = list(claims_on(self._beside.folder(), own))
            refuse_live(going, self._held, [place for place, branch in own.items() if branch is not None])
            for record, claims in going:
                keep_markers(self._state(record.job), claims, self.committed(record.job))
            for place, branch in own.items():
                if branch is None or self._look(place).now() is not None:
                    self._sql(place, statement(place, branch))

    def forget(self, job: str) -> None:
        record = self._record(job)
        if record is None:
            return
        with self._turn:
            for claim in record.claims.values():
                self._drop_refs(Place.of(claim.place), None)
            self._state(job).forget()

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        at = {table.name: shape.place_of(self._options.table, table) for table in tables}
        looks = {name: self._look(place).now() for name, place in at.items()}
        return {
            name: frozenset({f"iceberg:{at[name]}"} if held is None else {held.identity})
            for name, held in looks.items()
        }

    def _cutting(self, job: str) -> Cutting:
        return Cutting(self._state(job), self._options.branch, self._held, lambda: self._spark)

    def _record(self, job: str) -> JobRecord | None:
        return None if self._beside.folder() is None else self._state(job).record()

    def _state(self, job: str) -> JobState:
        if job not in self._states:
            folder = self._beside.folder()
            if folder is None:
                raise no_record(job)
            self._states[job] = JobState(folder, job)
        return self._states[job]

    def _look(self, place: Place) -> metadata.Look:
        return self._looks.setdefault(place, metadata.Look(place, settings_of(self._session)))


def _busy(place: Place) -> Transient:
    return written_too_often(f"table {place}", f"a commit: {TRIES} tries in a row found the table changed")
