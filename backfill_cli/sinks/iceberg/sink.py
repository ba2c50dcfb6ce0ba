"""Iceberg tables as a sink: each commit to a table checks the marker that it replaces, see `writing`.

Reading order: `tables` checks and creates tables, `markers` reads a table's marker, `writing` commits. What is
kept beside the tables is in lake/state.py. Tables commit one by one.
"""

import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from pyiceberg.manifest import DataFileContent

from backfill_cli.contracts import Cutover, EpochCommit, SinkExtras, SinkTable, Swap
from backfill_cli.contracts.refusals import (
    gone,
    is_due,
    marker_gone,
    no_record,
    refuse_old_token,
    written_too_often,
)
from backfill_cli.errors import BackfillError, Transient, UsageError, in_config
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.iceberg import metadata
from backfill_cli.lake.iceberg.edge import Moved, failing, reading_metadata, run
from backfill_cli.lake.iceberg.places import Place, settings_of, template
from backfill_cli.lake.iceberg.types import columns, wanted
from backfill_cli.lake.sink import LakeCopy, LakeSink
from backfill_cli.lake.state import FOLDER, Claim, JobRecord, jobs
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.cutover import Lives
from backfill_cli.model.derived import Derived
from backfill_cli.model.schema import Columns
from backfill_cli.sinks.iceberg import IcebergSinkOptions
from backfill_cli.sinks.iceberg import tables as shape
from backfill_cli.sinks.iceberg.live import Cutting
from backfill_cli.sinks.iceberg.markers import Head, head_of, is_of, marker_of, properties, refs_before
from backfill_cli.sinks.iceberg.tables import Target
from backfill_cli.sinks.iceberg.writing import Writer
from backfill_cli.spark.api import DataFrame, SparkSession

TRIES = 8
"""Tries of one commit if other writers commit in between; each try writes the epoch's rows again."""
COMMENT = "backfill: the folder of this table holds the state of jobs that write to other tables; it has no rows."


class IcebergSink(LakeSink, Cutover):
    """`contracts.Sink` and `contracts.Cutover`. Calls of one process take turns."""

    holder = "table"
    in_place = True

    def __init__(self, options: IcebergSinkOptions) -> None:
        super().__init__()
        self.extras = SinkExtras(copied=self.copied, cutover=self, derives=self.derives)
        self._options = options
        self._looks: dict[Place, metadata.Look] = {}
        self._turn = threading.RLock()
        # The same for all tables of the job, whatever their targets: only the text before {table} counts.
        self._beside = Place.of(template(options.table, "x")).beside(FOLDER)
        self._blobs: Blobs | None = None

    # The state: beside tables in folders; for tables in a catalog, in the folder of a table without rows

    def _folder(self) -> Blobs | None:
        if self._blobs is None:
            if self._beside.folder is not None:
                self._blobs = _blobs(self._beside.path)
            elif (held := self._look(self._beside).now()) is not None:
                self._blobs = _blobs(f"{held.told.location.rstrip('/')}/_jobs")
        return self._blobs

    def _make_folder(self) -> None:
        if self._folder() is None:
            self._beside.register(self._spark)
            what = f"{self._beside.sql} (nothing STRING) USING iceberg COMMENT '{COMMENT}'"
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {what}")

    # Tables

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with self._turn:
            self._checked(job, tables, into_existing)

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with self._turn:
            targets = self._checked(job, tables, into_existing)
            for target in targets:
                self._make(target)
            new = [one for one in targets if one.claim is None]
            if not new:
                return
            token = max((marker.token for marker in self.committed(job).values()), default=0)
            claims = {one.table.name: Claim(str(one.place), uuid.uuid4().hex, token, one.branch) for one in new}
            self._make_folder()
            self._state(job).change(lambda known: replace(known, claims={**known.claims, **claims}))
            for name, claim in claims.items():
                self._mark(job, name, claim, Marker(0, token, ""))

    def _checked(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> list[Target]:
        folder, claims = self._folder(), self.claims(job)
        others = [] if folder is None else jobs(folder)
        targets = [self._target(table, claims.get(table.name)) for table in tables]
        for one in targets:
            shape.check(job, one, others, into_existing)
            lost = one.held is None and one.claim is not None and not one.claim.derived
            if lost and (epoch := self._state(job).newest_epoch()):
                raise gone(str(one.place), job, epoch)
        return targets

    def _target(self, table: SinkTable, claim: Claim | None) -> Target:
        place = shape.place_of(self._options.table, table)
        own = None if table.side else self._options.branch
        branch = own if claim is None else claim.branch
        needs = wanted(table.name, table.schema)
        return Target(table, place, needs, self._head(place, branch, claim), branch, claim)

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

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        if owner != instead_of:
            self._make_folder()
            super().own(job, owner, instead_of)

    def fence(self, job: str, token: int) -> None:
        claims = self.claims(job)
        if not claims:
            return
        with self._turn:
            self._cutting(job).note_live(claims)
            for table, claim in claims.items():
                if (held := self._held(claim)) is None:
                    continue
                marker = marker_of(held, claim)
                refuse_old_token(job, table, token, marker)
                if marker.token < token:
                    self._mark(job, table, claim, replace(marker, token=token))

    def _marker(self, record: JobRecord, table: str, claim: Claim) -> Marker | None:
        held = self._held(claim)
        return None if held is None or (table in record.dropped and not held.begun) else marker_of(held, claim)

    # Rows

    def commit(self, commit: EpochCommit) -> None:
        with self._turn:
            super().commit(commit)

    def commit_table(self, commit: EpochCommit, table: SinkTable, claim: Claim) -> None:
        place = Place.of(claim.place)
        for _ in range(TRIES):
            held = self._held(claim)
            if held is None:
                raise marker_gone(commit, table.name, self.holder)
            marker = marker_of(held, claim)
            if not is_due(commit, table.name, marker, self.holder):
                return
            if not table.derived:  # one is filled over what it held, and its state saved with a table of the job
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
            what = f"DROP {'TAG' if is_tag else 'BRANCH'} IF EXISTS {name}"
            run(self._spark, place, f"ALTER TABLE {place.sql} {what}")

    def _writer(self, job: str, table: str, claim: Claim, marker: Marker) -> Writer:
        place = Place.of(claim.place)
        place.register(self._spark)
        told = properties(job, table, claim, marker)
        return Writer(self._spark, place, self._look(place), told, marker.token, self._options.properties)

    # Derived tables

    def require_keeps(self, derived: Sequence[Derived]) -> None:
        if self._options.branch is not None and derived:
            raise UsageError(
                f"derived table {derived[0].name!r}: sink.branch is set: tables are cut over one after the other, "
                "and in between the derived one equals no SELECT over what people query",
                in_config("leave sink.branch out, and name another target for each table that people query"),
            )

    def columns_at(self, table: SinkTable) -> Columns | None:
        held = self._look(shape.place_of(self._options.table, table)).now()
        return None if held is None else columns(table.name, held.told.schema())

    def has_rows(self, table: SinkTable) -> bool:
        held = self._look(shape.place_of(self._options.table, table)).now()
        return held is not None and shape.has_rows(held)

    def claim_at(self, table: SinkTable) -> Claim:
        return Claim(str(shape.place_of(self._options.table, table)), "")

    def refuse_other_job(self, job: str, table: SinkTable) -> None:
        folder = self._folder()
        target = self._target(table, self.claims(job).get(table.name))
        shape.refuse_other_job(job, target, [] if folder is None else jobs(folder))

    def moved(self, job: str, claim: Claim, since: int | None, now: int | None) -> frozenset[str] | None:
        """None also where somebody else deleted rows by files of deletes: those do not say of which data files."""
        if (held := self._held(claim)) is None or since is None or now is None:
            return None
        lineage = list(held.ancestors(held.snapshot(now)))
        if since not in (one.snapshot_id for one in lineage):  # it has expired, or somebody has rolled back
            return None
        between = list(takewhile(lambda one: one.snapshot_id != since, lineage))
        if all(is_of(one, job) or (one.summary and one.summary.operation.value == "replace") for one in between):
            return frozenset()
        with reading_metadata(Place.of(claim.place)):
            found = [file for one in between for file in metadata.changed_files(held, one)]
        if any(one.content is not DataFileContent.DATA for one in found):
            return None
        return frozenset(one.file_path for one in found)

    def begin(self, job: str, table: str, claim: Claim) -> None:
        with self._turn:
            self._mark(job, table, claim, Marker(0, claim.token, ""))

    # Cutover: see `live`

    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        return self._cutting(job).live(swaps)

    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        with self._turn:
            self._cutting(job).cut_over(swaps, epoch, now_ms, until_ms)

    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        with self._turn:
            self._cutting(job).reverse(swaps)

    # Copies, and dropping

    @contextmanager
    def copied(self, job: str, live: bool, folder: Path) -> Iterator[LakeCopy]:
        if self._record(job) is None:
            raise no_record(job)
        with super().copied(job, live, folder) as copy:
            yield copy

    def now(self, job: str, table: str, claim: Claim) -> tuple[int | None, Marker] | None:
        if (held := self._held(claim)) is None:
            return None
        return None if held.main is None else held.main.snapshot_id, marker_of(held, claim)

    def rows(
        self,
        spark: SparkSession,
        table: SinkTable,
        claim: Claim,
        version: int | None,
        files: Collection[str] | None = None,
    ) -> DataFrame:
        """Raises if a column of theirs has been dropped since."""
        if (held := self._held(claim)) is not None:
            shape.refuse_other_columns(table, held, claim)
        place = shape.place_of(self._options.table, table)
        place.register(spark)
        return shape.rows_at(table, place, spark, version, files)

    def fault(self, claim: Claim, version: int | None) -> BackfillError | None:
        try:
            held = self._held(claim)
            snapshot = None if held is None or version is None else held.snapshot(version)
            with reading_metadata(Place.of(claim.place)):
                return None if held is None or snapshot is None else metadata.snapshot_fault(held, snapshot)
        except BackfillError as exc:
            return exc

    def drop(self, tables: Sequence[SinkTable]) -> None:
        """A table is dropped, or only the job's branch of it, where it has one."""
        with self._turn:
            branches = {
                shape.place_of(self._options.table, one): None if one.side else self._options.branch
                for one in tables
            }
            folder, going = self._folder(), list[tuple[JobRecord, Mapping[str, Claim]]]()
            for record in jobs(folder) if folder is not None else ():
                claims = {name: one for name, one in record.claims.items() if Place.of(one.place) in branches}
                for name, claim in claims.items():
                    if branches[Place.of(claim.place)] is not None or name in record.cuts:
                        shape.refuse_live(record.job, claim, self._held(claim))
                going += [(record, claims)] if claims else []
            for record, names in going:
                markers = self.committed(record.job)
                self._state(record.job).note_dropped({name: markers[name] for name in names if name in markers})
            for place, branch in branches.items():
                if branch is None:
                    run(self._spark, place, f"DROP TABLE IF EXISTS {place.sql} PURGE")
                elif self._look(place).now() is not None:
                    run(self._spark, place, f"ALTER TABLE {place.sql} DROP BRANCH IF EXISTS {branch}")

    def forget(self, job: str) -> None:
        record = self._record(job)
        if record is None:
            return
        with self._turn:
            for claim in record.claims.values():
                self._drop_refs(Place.of(claim.place), None)
            self._state(job).forget()

    def leave(self, job: str, tables: Sequence[str]) -> None:
        with self._turn:
            for table, claim in self.claims(job).items():
                if table in tables:
                    self._drop_refs(Place.of(claim.place), None)
        super().leave(job, tables)

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        at = {table.name: shape.place_of(self._options.table, table) for table in tables}
        looks = {name: self._look(place).now() for name, place in at.items()}
        return {
            name: frozenset({f"iceberg:{at[name]}"} if held is None else {held.identity})
            for name, held in looks.items()
        }

    def _cutting(self, job: str) -> Cutting:
        return Cutting(self._state(job), self._options.branch, self._held, lambda: self._spark)

    def _look(self, place: Place) -> metadata.Look:
        return self._looks.setdefault(place, metadata.Look(place, settings_of(self._session)))


def _busy(place: Place) -> Transient:
    return written_too_often(f"table {place}", f"a commit: {TRIES} tries in a row found the table changed")


def _blobs(location: str) -> Blobs:
    return Blobs(*metadata.located(metadata.file_io(location), location))
