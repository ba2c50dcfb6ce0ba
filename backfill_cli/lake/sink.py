"""What the sinks of lake tables share: who has a job, kept beside the tables, and how `verify` reads a copy."""

import json
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from backfill_cli.contracts import (
    ComparedDerived,
    EpochCommit,
    SavedJob,
    Sink,
    SinkCapabilities,
    SinkCopy,
    SinkTable,
    Survey,
)
from backfill_cli.contracts.refusals import gone, marker_gone, no_record, other_type
from backfill_cli.errors import RETRIED, BackfillError, StateConflict, Transient, command, of_table
from backfill_cli.formats.digests import DIALECT, words_digest
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.derived import LakeDerives, record_of
from backfill_cli.lake.state import Claim, JobRecord, JobState
from backfill_cli.model.checkpoint import ANEW, Marker, Owner
from backfill_cli.model.committing import Committing
from backfill_cli.model.derived import Derived
from backfill_cli.model.digest import Digest, DigestSpec, KeyRanges, Word, and_sampled, range_sql, spec_of
from backfill_cli.model.job import Phase
from backfill_cli.model.schema import Columns, fields_of, same_type, shown
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.beside import session_beside
from backfill_cli.spark.names import quoted

# Tables commit one after the other; the longest commit seen, of three tables, took 20 s.
PATIENCE_S = 120.0
RETRY_S = 0.2

Version = TypeVar("Version")

Reads = Callable[[SparkSession, SinkTable], DataFrame]
"""All rows of a table at its version, with the types of the table's Spark schema."""

Compares = Callable[[Derived, Sequence[Derived], Sequence[SinkTable], int], ComparedDerived]
"""See `SinkCopy.compare`."""


class LakeSink(Sink):
    """The part of `contracts.Sink` that does not depend on the format. Tables commit one by one.

    A table's version is a number that only its format understands; None for a table that has none yet.
    """

    capabilities = SinkCapabilities(transactional=False, partial=True)
    holder: str
    """What holds the job's tables, for messages."""
    replaces_columns = False
    """Whether a commit can give a table other columns together with its rows."""

    def __init__(self) -> None:
        self._states: dict[str, JobState] = {}
        self.derives = LakeDerives(self)

    def session(self) -> SparkSession:
        """The run's."""
        return self._session()

    def use(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    @cached_property
    def _spark(self) -> SparkSession:
        """A separate session: settings of a commit do not affect the staging that runs at the same time."""
        return session_beside(self._session())

    @abstractmethod
    def _folder(self) -> Blobs | None:
        """The folder with the state of all jobs; None if it does not exist yet."""

    @abstractmethod
    def _marker(self, record: JobRecord, table: str, claim: Claim) -> Marker | None:
        """The marker of one of the job's tables; None if the table does not exist."""

    @abstractmethod
    def now(self, job: str, table: str, claim: Claim) -> tuple[int | None, Marker] | None:
        """The newest version of one of the job's tables, and its marker there; None if it does not exist."""

    @abstractmethod
    def commit_table(self, commit: EpochCommit, table: SinkTable, claim: Claim) -> None:
        """As `commit`, for one table."""

    @abstractmethod
    def rows(
        self,
        spark: SparkSession,
        table: SinkTable,
        claim: Claim,
        version: int | None,
        files: Collection[str] | None = None,
    ) -> DataFrame:
        """All rows of a table at a version, see `Reads`; or those in these files, named as in `moved`."""

    def rows_of_commit(
        self, spark: SparkSession, table: SinkTable, claim: Claim, version: int | None
    ) -> DataFrame:
        """As `rows`, for a commit, which reads often and little. A verify reads by `rows`."""
        return self.rows(spark, table, claim, version)

    @abstractmethod
    def columns_at(self, table: SinkTable) -> Columns | None:
        """The columns of what is at the table's place; None if there is no table."""

    @abstractmethod
    def has_rows(self, table: SinkTable) -> bool:
        """Whether the table at this table's place has rows. It exists."""

    @abstractmethod
    def claim_at(self, table: SinkTable) -> Claim:
        """The place of a table of which the job keeps no marker, for reading it."""

    @abstractmethod
    def refuse_other_job(self, job: str, table: SinkTable) -> None:
        """Raises for a table's place that another job, or another table of the job, has."""

    @abstractmethod
    def moved(self, job: str, claim: Claim, since: int | None, now: int | None) -> frozenset[str] | None:
        """The data files between two versions, if somebody else changed rows after `since`, up to `now`.

        All in which the versions differ are among them. Empty if all commits in between are the job's, or changed
        no row; None if the table's history does not show it.
        """

    @abstractmethod
    def begin(self, job: str, table: str, claim: Claim) -> None:
        """The table shows that the claim is one of the job, at epoch 0 and the claim's token."""

    def require_keeps(self, derived: Sequence[Derived]) -> None:
        """Raises UsageError where the sink's options leave no place for derived tables."""

    @abstractmethod
    def fault(self, claim: Claim, version: int | None) -> BackfillError | None:
        """What is wrong with the files of a table at a version; None if nothing is."""

    def identity(self, claim: Claim, version: int | None) -> object:
        """What identifies a table's version."""
        return version

    def _state(self, job: str) -> JobState:
        if job not in self._states:
            folder = self._folder()
            if folder is None:
                raise no_record(job)
            self._states[job] = JobState(folder, job)
        return self._states[job]

    def _record(self, job: str) -> JobRecord | None:
        return None if self._folder() is None else self._state(job).record()

    def claims(self, job: str) -> Mapping[str, Claim]:
        record = self._record(job)
        return {} if record is None else record.claims

    def owner(self, job: str) -> Owner | None:
        record = self._record(job)
        return None if record is None else record.owner

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        self._state(job).own(owner, instead_of)

    def committed(self, job: str) -> Mapping[str, Marker]:
        if (record := self._record(job)) is None:
            return {}
        found = {table: self._marker(record, table, claim) for table, claim in record.claims.items()}
        found |= {
            table: self.unfilled(claim)
            for table, claim in record.claims.items()
            if claim.derived and not ((marker := found[table]) and marker.epoch)
        }
        there = {table: marker for table, marker in found.items() if marker is not None}
        return {**record.dropped, **there}

    def commit(self, commit: EpochCommit) -> None:
        claims = self.claims(commit.job)
        self.derives.require_free(commit, claims)
        left = [table for table in commit.tables if commit.only is None or table.name in commit.only]
        has = [table.name for table in commit.tables if table not in left]
        follow = self._followed_by(commit, claims)
        for at, table in enumerate(left):
            if len(commit.tables) + len(follow) > 1:
                lacks = (*(later.name for later in left[at:]), *follow)
                commit.tell(Committing(commit.epoch, tuple(has), lacks))
            if table.name not in claims:
                raise marker_gone(commit, table.name, self.holder)
            with of_table(table.name):
                self.commit_table(commit, table, claims[table.name])
            has.append(table.name)
        self.derives.keep(commit, self._state(commit.job))

    def _followed_by(self, commit: EpochCommit, claims: Mapping[str, Claim]) -> tuple[str, ...]:
        """The derived tables that are kept or filled after the commit's tables."""
        past = commit.saved.checkpoint.phase is not Phase.SNAPSHOT
        names = [one.name for one in commit.derived if one.name in claims]
        begun = past or any(self.was_filled(commit.job, claims[name]) for name in names)
        return tuple(names) if begun else ()

    def claim_derived(self, job: str, tables: Sequence[SinkTable], into: Collection[str]) -> None:
        """The job has these places; the tables are created by the commit that fills them.

        into: those that may exist, whose rows that commit replaces.
        """
        token = max((marker.token for marker in self.committed(job).values()), default=0)
        there = {one.name for one in tables if one.name in into and self.columns_at(one) is not None}
        claims = {
            one.name: replace(
                self.claim_at(one),
                id=uuid.uuid4().hex[:12],
                token=token,
                derived=True,
                anew=one.name in there,
            )
            for one in tables
        }
        self._state(job).change(lambda record: replace(record, claims={**record.claims, **claims}))
        for name in sorted(there):
            self.begin(job, name, claims[name])

    def claim_anew(self, job: str, table: str) -> None:
        """A derived table's marker is at epoch 0, and the next commit fills it; what it holds stays until then.

        One that was never filled stays so.
        """
        before, marker = self.claims(job).get(table), self.committed(job).get(table)
        if before is None or not self.was_filled(job, before):
            return
        after = replace(before, id=uuid.uuid4().hex[:12], token=before.token, anew=True)
        if marker is not None:
            after = replace(after, token=marker.token)

        def claimed(record: JobRecord) -> JobRecord:
            dropped = {name: one for name, one in record.dropped.items() if name != table}
            return replace(record, claims={**record.claims, table: after}, dropped=dropped)

        self._state(job).change(claimed)
        record_of(self._state(job), before).delete_all()
        self.begin(job, table, after)

    def unfilled(self, claim: Claim) -> Marker:
        """The marker of a derived table that waits for a commit."""
        return Marker(0, claim.token, ANEW if claim.anew else "")

    def was_filled(self, job: str, claim: Claim) -> bool:
        """Whether a commit was about to fill this derived table, so that a table at its place is the job's."""
        return claim.anew or bool(record_of(self._state(job), claim).names())

    def leave(self, job: str, tables: Sequence[str]) -> None:
        if self._record(job) is not None:
            self._state(job).leave(tables)

    def saved(self, job: str) -> SavedJob | None:
        """As the job's tables have it. A derived table can be behind: who rebuilds the catalog has it filled."""
        claims = self.claims(job)
        markers = {
            name: marker
            for name, marker in self.committed(job).items()
            if name not in claims or not claims[name].derived
        }
        marker = self._state(job).at_one_epoch(markers) if markers else None
        return None if marker is None else self._state(job).saved(marker)

    @contextmanager
    def copied(self, job: str, live: bool, folder: Path) -> Iterator["LakeCopy"]:
        """See `contracts.SinkExtras`. Nothing is copied: versions do not change. Raises as `at_one_epoch`."""
        claims, state = self.claims(job), self._state(job)
        waiting = set[str]()

        def look() -> Mapping[str, tuple[int | None, Marker] | None]:
            found = {table: self.now(job, table, claim) for table, claim in claims.items()}
            waiting.clear()
            for table, now in found.items():
                if claims[table].derived and (now is None or not now[1].epoch):
                    waiting.add(table)
            return {table: now for table, now in found.items() if now is not None or table not in waiting}

        versions, marker = at_one_epoch(job, state, look, live, waiting)

        def reads(spark: SparkSession, table: SinkTable) -> DataFrame:
            if table.name in versions:
                return self.rows(spark, table, claims[table.name], versions[table.name])
            claim = self.claim_at(table)  # of one that is set aside, which nobody writes
            now = self.now(job, table.name, claim)
            if now is None:
                raise gone(f"table {table.name!r} of the sink", job)
            return self.rows(spark, table, claim, now[0])

        def compare(
            derived: Derived, others: Sequence[Derived], tables: Sequence[SinkTable], named: int
        ) -> ComparedDerived:
            there, claim = derived.name in versions, claims[derived.name]
            filled = derived.name not in waiting if there else not claim.anew and self.was_filled(job, claim)
            return self.derives.compare(derived, others, tables, named, reads, versions, filled)

        yield LakeCopy(
            session_beside(self._session()),
            reads,
            None if marker is None else state.saved(marker),
            {name: self.identity(claims[name], version) for name, version in versions.items()},
            lambda name: self.fault(claims[name], versions[name]),
            compare,
        )


def missing_columns(place: str, there: Columns, wanted: Columns) -> Columns:
    """The wanted columns that the table at this place lacks. Raises BadData for one of another type."""
    held = {name.lower(): one["type"] for name, one in there.items()}
    for name, one in wanted.items():
        if (kind := held.get(name.lower())) is not None and not same_type(kind, one["type"]):
            raise other_type(name, place, shown(kind), shown(one["type"]))
    return {name: one for name, one in wanted.items() if name.lower() not in held}


class LakeCopy(SinkCopy):
    """`contracts.SinkCopy` over versions that no commit changes.

    spark: a separate session, because `words_digest` changes a setting while the other side's session is in use.
    versions: the version that is read, by table. fault: what is wrong with the files of a table at its version.
    """

    def __init__(
        self,
        spark: SparkSession,
        reads: Reads,
        saved: SavedJob | None,
        versions: Mapping[str, object],
        fault: Callable[[str], BackfillError | None],
        compare: Compares | None = None,
    ) -> None:
        self._spark, self._reads, self._saved, self._versions, self._fault = spark, reads, saved, versions, fault
        self._compare = compare

    def compare(
        self, derived: Derived, others: Sequence[Derived], tables: Sequence[SinkTable], named: int
    ) -> ComparedDerived:
        if self._compare is None:
            return super().compare(derived, others, tables, named)
        return self._compare(derived, others, tables, named)

    def saved(self) -> SavedJob | None:
        return self._saved

    def mark(self) -> str:
        """The versions: a version of a table always holds the same rows."""
        return json.dumps(dict(self._versions), sort_keys=True)

    def survey(self, table: SinkTable) -> Survey:
        """Spark hashes strings of any kind; the bounds come from a scan of the first key column only."""
        few = frozenset(one["name"] for one in fields_of(table.schema) if one["type"] == "string")
        spec = spec_of(table.schema, table.key, few)
        if spec is None or spec.columns[0].word is Word.TEXT:
            return Survey(None, None, few)
        word = F.expr(DIALECT.word(spec.columns[0]))
        with self._reading(table):
            bounds = self._reads(self._spark, table).agg(F.min(word).alias("low"), F.max(word).alias("high"))
            found = bounds.toArrow().to_pylist()[0]
        return Survey(found["low"], found["high"], few)

    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        with self._reading(table):
            return words_digest(self._reads(self._spark, table), spec, ranges)

    @contextmanager
    def _reading(self, table: SinkTable) -> Iterator[None]:
        """A failure of Spark over the table's files becomes ours, which names the file."""
        try:
            yield
        except BackfillError:
            raise
        except Exception as exc:
            fault = self._fault(table.name)
            if fault is None:
                raise
            raise fault from exc

    def frame(
        self,
        spark: SparkSession,
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> DataFrame:
        rows = self._reads(spark, table)
        if only is not None:
            spec, ranges, parts = only
            part = range_sql(ranges, DIALECT, DIALECT.word(spec.columns[0]))
            wanted = f"{part} IN ({', '.join(str(number) for number in parts)})"
            rows = rows.where(wanted + and_sampled(spec, DIALECT))
        return rows.select(*(quoted(name) for name in columns))


def at_one_epoch(
    job: str,
    state: JobState,
    look: Callable[[], Mapping[str, tuple[Version, Marker] | None]],
    live: bool,
    unfilled: Collection[str] = (),
) -> tuple[Mapping[str, Version], Marker | None]:
    """(table → the version to read, their marker): all tables are at the marker's epoch. None: nothing committed.

    look: by table its version now and the marker there; None for a table that does not exist. unfilled: derived
    tables that wait for a commit, as of the last look.
    Raises StateConflict for a table that is gone, and if no runner has the job and its tables are at several
    epochs; Transient if those of a job with a runner are never at the same epoch within PATIENCE_S.
    """
    deadline = time.monotonic() + (PATIENCE_S if live else 0)
    while True:
        found = look()
        if not state.newest_epoch():
            return {}, None
        there = {table: one for table, one in found.items() if one is not None}
        if len(there) < len(found):
            raise gone(f"table {next(one for one in found if one not in there)!r} of the sink", job)
        markers = {table: marker for table, (_, marker) in there.items() if table not in unfilled}
        if len({(one.epoch, one.attempt) for one in markers.values()}) <= 1:
            return {table: version for table, (version, _) in there.items()}, next(iter(markers.values()), None)
        if time.monotonic() > deadline:
            break
        time.sleep(RETRY_S)
    epochs = ", ".join(f"{table}: {marker.epoch}" for table, marker in markers.items())
    what = f"job {job!r}: its tables are at several commits ({epochs})"
    if live:
        raise Transient(what, RETRIED)
    raise StateConflict(f"{what}: a commit was interrupted", command(f"resume {job}"))
