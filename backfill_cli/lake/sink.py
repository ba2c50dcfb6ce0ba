"""What the sinks of lake tables share: who has a job, kept beside the tables, and how `verify` reads a copy."""

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from backfill_cli.contracts import EpochCommit, SavedJob, Sink, SinkCapabilities, SinkCopy, SinkTable, Survey
from backfill_cli.contracts.refusals import gone, no_record, other_type
from backfill_cli.errors import RETRIED, BackfillError, StateConflict, Transient, command
from backfill_cli.formats.digests import DIALECT, words_digest
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.state import Claim, JobRecord, JobState
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.digest import Digest, DigestSpec, KeyRanges, Word, and_sampled, range_sql, spec_of
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


class LakeSink(Sink):
    """The part of `contracts.Sink` that does not depend on the format. Tables commit one by one."""

    capabilities = SinkCapabilities(transactional=False, partial=True)

    def __init__(self) -> None:
        self._states: dict[str, JobState] = {}

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

    def _state(self, job: str) -> JobState:
        if job not in self._states:
            folder = self._folder()
            if folder is None:
                raise no_record(job)
            self._states[job] = JobState(folder, job)
        return self._states[job]

    def _record(self, job: str) -> JobRecord | None:
        return None if self._folder() is None else self._state(job).record()

    def owner(self, job: str) -> Owner | None:
        record = self._record(job)
        return None if record is None else record.owner

    def committed(self, job: str) -> Mapping[str, Marker]:
        if (record := self._record(job)) is None:
            return {}
        found = {table: self._marker(record, table, claim) for table, claim in record.claims.items()}
        there = {table: marker for table, marker in found.items() if marker is not None}
        return {**record.dropped, **there}

    def saved(self, job: str) -> SavedJob | None:
        markers = self.committed(job)
        marker = self._state(job).at_one_epoch(markers) if markers else None
        return None if marker is None else self._state(job).saved(marker)


def tables_of(commit: EpochCommit) -> Sequence[SinkTable]:
    """The tables that this commit is for."""
    return [table for table in commit.tables if commit.only is None or table.name in commit.only]


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
    ) -> None:
        self._spark, self._reads, self._saved, self._versions, self._fault = spark, reads, saved, versions, fault

    def saved(self) -> SavedJob | None:
        return self._saved

    def mark(self) -> str:
        """The versions: a version of a table always holds the same rows."""
        return json.dumps(dict(self._versions), sort_keys=True)

    def survey(self, table: SinkTable) -> Survey:
        """Spark hashes strings of any kind; the bounds come from a scan of the first key column only."""
        few = frozenset(_strings(table))
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
            return words_digest(self._spark, self._reads(self._spark, table), spec, ranges)

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


@contextmanager
def copied(
    session: Callable[[], SparkSession],
    state: JobState,
    look: Callable[[], Mapping[str, tuple[Version, Marker] | None]],
    live: bool,
    rows: Callable[[SparkSession, SinkTable, Version | None], DataFrame],
    fault: Callable[[str, Version | None], BackfillError | None],
    known: Callable[[str, Version], object] = lambda _, version: version,
) -> Iterator[LakeCopy]:
    """See `contracts.SinkExtras`. Nothing is copied: versions do not change. Raises as `at_one_epoch`.

    known: what identifies a table's version.
    """
    versions, marker = at_one_epoch(state.job, state, look, live)
    saved = None if marker is None else state.saved(marker)
    yield LakeCopy(
        session_beside(session()),
        lambda spark, table: rows(spark, table, versions.get(table.name)),
        saved,
        {name: known(name, version) for name, version in versions.items()},
        lambda name: fault(name, versions.get(name)),
    )


def at_one_epoch(
    job: str, state: JobState, look: Callable[[], Mapping[str, tuple[Version, Marker] | None]], live: bool
) -> tuple[Mapping[str, Version], Marker | None]:
    """(table → the version to read, their marker): all tables are at the marker's epoch. None: nothing committed.

    look: by table its version now and the marker there; None for a table that does not exist.
    Raises StateConflict for a table that is gone, and if no runner has the job and its tables are at several
    epochs; Transient if those of a job with a runner are never at the same epoch within PATIENCE_S.
    """
    deadline = time.monotonic() + (PATIENCE_S if live else 0)
    while True:
        found = look()
        if not state.began():
            return {}, None
        there = {table: one for table, one in found.items() if one is not None}
        _require_all(job, found, there)
        markers = {table: marker for table, (_, marker) in there.items()}
        if len({(one.epoch, one.attempt) for one in markers.values()}) <= 1:
            return {table: version for table, (version, _) in there.items()}, next(iter(markers.values()), None)
        if time.monotonic() > deadline:
            break
        time.sleep(RETRY_S)
    epochs = ", ".join(f"{table}: {marker.epoch}" for table, marker in markers.items())
    what = f"job {job!r}: its tables are at several epochs ({epochs})"
    if live:
        raise Transient(what, RETRIED)
    raise StateConflict(f"{what}: a commit was interrupted", command(f"resume {job}"))


def _require_all(job: str, tables: Mapping[str, object], there: Mapping[str, object]) -> None:
    lacking = [table for table in tables if table not in there]
    if lacking:
        raise gone(f"table {lacking[0]!r} of the sink", job)


def _strings(table: SinkTable) -> list[str]:
    return [field["name"] for field in fields_of(table.schema) if field["type"] == "string"]
