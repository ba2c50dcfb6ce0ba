"""What a runner works with beside source and sink: the catalog, a job, its spooled and staged epochs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from backfill_cli.contracts.sink import SinkTable
from backfill_cli.contracts.source import TakenTable
from backfill_cli.model.aside import Aside, Standing, out, standing
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.codec import decode
from backfill_cli.model.derived import Derived, derived_in
from backfill_cli.model.job import Command, Control, JobState
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import ChangeWindow, EpochPlan, Staged
from backfill_cli.model.refill import Refill
from backfill_cli.model.upstream import Pin


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """What a job is: set once at its start.

    config: the resolved config with references (never secrets) as JSON. fingerprint: JSON object of what must not
    change. pin: with all its splits. until: 'caught-up' or 'forever'. tables: as the sink sees them. config_file:
    path of the config that it was last started with; empty if unknown. aside: tables that are set aside, which
    none of the others names until they are put back.
    """

    name: str
    config: str
    fingerprint: str
    pin: Pin
    until: str
    strategy: str
    tables: tuple[SinkTable, ...]
    config_file: str = ""
    aside: tuple[Aside, ...] = ()

    @property
    def derived(self) -> tuple[Derived, ...]:
        """Its derived tables, which its config has."""
        return derived_in(self.config)

    @property
    def beside(self) -> tuple[SinkTable, ...]:
        """The sink's tables of those that are set aside, with the columns that they have."""
        return tuple(
            replace(one, schema=aside.sink_schemas.get(one.name, one.schema))
            for aside in out(self.aside)
            for one in decode(tuple[SinkTable, ...], aside.tables)
        )

    @property
    def names(self) -> list[str]:
        """All that its sink has of it by name: tables, those of unreadable rows, and derived tables."""
        return [*(one.name for one in self.tables), *(one.name for one in self.derived)]

    @property
    def has_tables_to_itself(self) -> bool:
        """Whether its tables cannot hold rows from before the job, so that they may be dropped with it."""
        return all(table.plain_inserts or table.side for table in self.tables)

    def standing(self, table: str) -> Standing | None:
        """What the table is to the job; None: nothing."""
        return standing(table, [one.name for one in self.tables if not one.side], self.aside)

    def others_in(self, table: str) -> list[str]:
        """The tables that it could go on with if this one left: never none, see `of_one_table`."""
        own = [one.name for one in self.tables if not one.side and one.name != table]
        return [name for name in own if self.standing(name) is Standing.IN]

    @property
    def commanded(self) -> list[str]:
        """The tables that commands can be of: its own, and those that are set aside."""
        return [*(one.name for one in self.tables if not one.side), *(one.table for one in out(self.aside))]


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """The changes of one barrier's window: durable, immutable and self-describing.

    number: increases within the job; attempt: which try at taking it; together they name the entry's folder.
    window: closed; its end is the phantom barrier. tables: paths are relative to the folder; tables without
    changes are absent.
    digests: BLAKE2b of each file as hex, by its path. schemas: table -> Spark schema as JSON, for tables whose
    columns changed at the window's beginning. memory: what the upstream remembers at the window's end
    (`Source.remembered`). due_ms, taken_ms: when its barrier was due, and when the entry was durable.
    skipped: as in `LogBatch`.
    """

    number: int
    attempt: str
    window: ChangeWindow
    tables: Mapping[str, TakenTable]
    digests: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    memory: str = ""
    due_ms: int = 0
    taken_ms: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The folder's name; names sort in the order of the entries."""
        return f"{self.number:012d}-{self.attempt}"

    @property
    def changes(self) -> int:
        """How many were taken, before netting."""
        return sum(table.changes for table in self.tables.values())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for table in self.tables.values() for file in table.files)


class JobStore(Protocol):
    """The catalog as one runner uses it. Every method is one transaction."""

    def load(self) -> Recovered:
        """Everything that a runner starts with."""
        ...

    def commands(self) -> tuple[Command, ...]:
        """Commands posted and not yet taken, oldest first. Cheap when none was posted since the last call."""
        ...

    def asked(self) -> bool:
        """Whether the last poll for commands noticed a caller since the poll before it; reported once."""
        ...

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        """Takes commands at a barrier: records the resulting control, and the barrier that took them."""
        ...

    def prepare(self, checkpoint: Checkpoint, committed: EpochRecord | None, progress: Progress | None) -> None:
        """Promises an epoch; `committed` marks the epoch before it. progress None leaves the numbers unchanged.

        Raises Held when the runner has lost its lease.
        """
        ...

    def mark(self, committed: EpochRecord, progress: Progress | None) -> None:
        """The prepared epoch is in the sink. progress None leaves the numbers unchanged (recovery)."""
        ...

    def unprepare(self, epoch: int) -> None:
        """Drops a prepared epoch that no sink table has. Its number is not used again."""
        ...

    def heartbeat(self, now_ms: int, progress: Progress | None) -> None:
        """Renews the lease. progress None leaves the numbers unchanged. Raises Held when the lease is lost."""
        ...

    def become(self, state: JobState, reason: Limit | str) -> None:
        """Changes the job's state along an existing arrow."""
        ...

    def refills(self) -> tuple[Refill, ...]:
        """Those that a barrier has taken and that have not ended, oldest first."""
        ...

    def note_refill(self, refill: Refill) -> None:
        """Records state, times and reason of a refill, unless it has ended, as by a command."""
        ...

    def spooled(self) -> tuple[SpoolEntry, ...]:
        """The spool's entries that the catalog knows, in order; see strategy chain."""
        ...

    def spool(self, entry: SpoolEntry) -> None:
        """An entry is durable in the spool. Repeating it changes nothing.

        Raises Held when the runner has lost its lease: the log is acknowledged upstream only after this call.
        """
        ...

    def trim(self, number: int) -> None:
        """The entries up to this number are in the sink and no longer in the spool."""
        ...


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """schemas, sink_schemas: table -> Spark schema as JSON as of this epoch, before and after the transform."""

    staged: Staged
    schemas: Mapping[str, str]
    sink_schemas: Mapping[str, str]


class Stager(Protocol):
    """Turns a plan into durable files under one attempt id. The engine's uses Spark, the simulation's lists."""

    def awaited(self) -> str | None:
        """What has to start before anything can be staged, and is starting from now on; None once it has.

        Called before `stage`. Raises what the start failed with.
        """
        ...

    def stage(
        self, plan: EpochPlan, epoch: int, schemas: Mapping[str, str], unwanted: Callable[[], bool]
    ) -> StagedEpoch:
        """Write the epoch's rows once, durably. Raises Transient or Fatal; then nothing of it is used.

        unwanted: whether what is being staged would be thrown away; asked by another thread. Raises Interrupted
        where it was given up for that.
        """
        ...

    def so_far(self) -> tuple[int, int]:
        """Rows and changes that were read so far, of what `stage` is staging, where that is known; for display.

        Called by another thread.
        """
        ...

    def folder(self, epoch: int, attempt: str) -> str:
        """Where an attempt's files are."""
        ...

    def intact(self, epoch: int, staged: Staged) -> bool:
        """Whether every staged file still exists with its size, and can be read."""
        ...

    def current_folder(self, epoch: int, staged: Staged) -> str:
        """Where the files are as this version reads them: copies, if an older version staged them."""
        ...

    def discard(self, epoch: int, attempt: str) -> None:
        """Remove an attempt's files, once it is committed or discarded."""
        ...
