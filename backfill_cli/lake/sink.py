"""What the sinks of lake tables share: a Spark session of their own, and who has a job, kept beside the tables."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable
from backfill_cli.contracts.refusals import no_record, other_type
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.state import Claim, JobRecord, JobState
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.schema import Columns, same_type, shown
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.beside import session_beside


class LakeSink(ABC):
    """The part of `contracts.Sink` that does not depend on the format. Tables commit one by one."""

    transactional = False
    partial = True

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
