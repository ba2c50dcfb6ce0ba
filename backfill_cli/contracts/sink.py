"""Where rows go: what the engine and `verify` ask of a sink, and how one plugs in."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.digest import Digest, DigestSpec, KeyRanges
from backfill_cli.model.plan import Staged

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table of a job as its sink sees it.

    target: as the config names it ("schema.name" or a name). key: sink columns. schema: Spark schema as JSON,
    after the transform; a column's metadata may carry {"logical": "uuid"|"json"}.
    plain_inserts: snapshot rows are inserted; else (an existing table) deleted by key first.
    side: one of ours beside the job's, its name begins with `_backfill_`: rows that could not be read.
    """

    name: str
    target: str
    key: tuple[str, ...]
    schema: str
    plain_inserts: bool = True
    side: bool = False


@dataclass(frozen=True, slots=True)
class SavedJob:
    """What a sink keeps beside its marker so that a lost catalog can be rebuilt from it.

    definition: config (references, never secrets), fingerprint, pin; JSON, written when it changes.
    checkpoint: the committed one, its splits complete when read.
    """

    definition: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """One epoch for a sink: applied whole, once, with its marker.

    folder: where the staged files are (the attempt's folder); `staged` names those that count.
    unique: tables whose keys are now all there and must be checked for duplicates in the same transaction.
    saved: what to keep beside the marker (changed splits only).
    only: tables still to apply (recovery), None for all.
    converging: a change that leaves columns as they are, of a row that is not there, is left out: see EpochPlan.
    """

    job: str
    epoch: int
    prev_epoch: int
    token: int
    attempt: str
    tables: tuple[SinkTable, ...]
    folder: str
    staged: Staged
    unique: tuple[str, ...]
    saved: SavedJob
    only: frozenset[str] | None = None
    converging: bool = False


class Sink(Protocol):
    """Where rows go. Opened briefly, never held between commits."""

    transactional: bool
    """Whether all tables of an epoch commit in one transaction."""
    partial: bool
    """Whether it takes changes that leave columns as they are, and truncates: see StagedTable."""

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        """Create the job's tables, or add columns that are new; no change when nothing is missing.

        Raises SinkInUse for a table that has rows and is not this job's (unless into_existing), Held for a table
        of another job, BadData for a column whose type differs.
        """
        ...

    def owner(self, job: str) -> Owner | None:
        """The catalog that has the job; None when the sink holds no marker of it, or none that says.

        Asked before anything is changed for a job: another catalog's job is refused, its runner not fenced.
        """
        ...

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        """`owner` has the job from here on. Called once its markers are there, and when it is rebuilt from here.

        instead_of: what `owner` told. Raises Held when it is another catalog by now.
        """
        ...

    def fence(self, job: str, token: int) -> None:
        """Write the token into every marker, waiting for commits in flight; from here on older tokens are refused.

        Raises Held when the marker's token is newer.
        """
        ...

    def committed(self, job: str) -> Mapping[str, Marker]:
        """Each table's marker; no entry for a table that has none."""
        ...

    def commit(self, commit: EpochCommit) -> None:
        """Apply one epoch and its markers, atomically, once. The same (epoch, attempt) again is ignored.

        Raises Held for an older token, StateConflict for an epoch that is not greater, BadData for duplicate keys,
        Transient while somebody else holds the sink (saying who) or the disk is full.
        """
        ...

    def saved(self, job: str) -> SavedJob | None:
        """What `commit` kept, None when this sink holds nothing of the job."""
        ...

    def drop(self, tables: Sequence[SinkTable]) -> None:
        """These tables are gone with their rows, those that are not there stay so. The job's markers stay.

        Raises UsageError where something else depends on one of them; all are there then.
        """
        ...

    def forget(self, job: str) -> None:
        """Remove the job's markers, its owner and its side rows; the data stays. Later commits are refused."""
        ...


@dataclass(frozen=True, slots=True)
class Survey:
    """What a sink tells of a table without reading it much.

    low, high: of the word of the first key column (see model/digest.py), None without such a column or a row.
    few: string columns with so few distinct values that the sink can hash them from a list.
    """

    low: int | None
    high: int | None
    few: frozenset[str]


class SinkCopy(Protocol):
    """A sink's tables at one checkpoint; no commit changes what it reads, and it holds up none."""

    def saved(self) -> SavedJob | None:
        """As `Sink.saved`, of this copy: the checkpoint that its rows are at."""
        ...

    def mark(self) -> str | None:
        """What is another one as soon as anybody has written to the sink; None where nothing is.

        Two copies with one mark hold the same rows: what was equal to one is equal to the other.
        """
        ...

    def survey(self, table: SinkTable) -> Survey: ...

    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        """By range number: rows, a hash for the key and each other column (all in one, range 0, without ranges).

        The formula is model/digest.py's, so that it equals what Spark computes of the upstream. May be called from
        another thread than the other methods.
        """
        ...

    def frame(
        self,
        spark: "SparkSession",
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> "DataFrame":
        """These columns of the table's rows, as the types of its Spark schema; `only` those of some ranges.

        Where the spec has a sample, rows outside it may be left out.
        """
        ...


@runtime_checkable
class CheckedSink(Protocol):
    """A sink that `plan` can ask."""

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        """Raises what `prepare` would; changes nothing, and creates nothing."""
        ...


@runtime_checkable
class LocatedSink(Protocol):
    """A sink whose tables could be those of an upstream of its kind."""

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        """By table of the job where its rows are, as `LocatedUpstream` says it; nothing of one not yet there."""
        ...


@runtime_checkable
class SparkSink(Protocol):
    """A sink whose tables live in Spark."""

    def use(self, session: "Callable[[], SparkSession]") -> None:
        """What gives the run's Spark session, started when first called. Called once, before all else.

        `commit` calls it in a thread of its own, while the next epoch is staged in the same session.
        """
        ...


@runtime_checkable
class VerifiableSink(Protocol):
    """A sink that `verify` can read."""

    def copied(self, job: str, live: bool, folder: Path) -> AbstractContextManager[SinkCopy]:
        """The sink as it is between two commits.

        live: a runner has the job and must not be held up. folder: an empty folder of the caller's, shared with
        Spark, for what has to be written; the caller removes it.
        """
        ...


@dataclass(frozen=True, slots=True)
class SinkConnector:
    """How a sink plugs in: the entry point group `backfill.sinks` names one of these. As for upstreams."""

    options: type["BaseModel"]
    open: Callable[[Any], Sink]
    fingerprint: Callable[[Any], Mapping[str, Any]]
    formats: tuple[str, ...] = ()
