"""What a runner asks of the catalog, and what a job is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backfill_cli.contracts.sink import SinkTable
from backfill_cli.contracts.spool import SpoolEntry
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.job import Command, Control, JobState
from backfill_cli.model.upstream import Pin


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """What a job is: set once at its start.

    config: the resolved config with references (never secrets) as JSON. fingerprint: JSON object of what must not
    change. pin: with all its splits. until: 'caught-up' or 'forever'. tables: as the sink sees them. config_file:
    path of the config that it was started by last; empty where that is not known.
    """

    name: str
    config: str
    fingerprint: str
    pin: Pin
    until: str
    strategy: str
    tables: tuple[SinkTable, ...]
    config_file: str = ""

    @property
    def has_tables_to_itself(self) -> bool:
        """Whether no row in its tables can be from before the job: they may be dropped with it."""
        return all(table.plain_inserts or table.side for table in self.tables)


class JobStore(Protocol):
    """The catalog as one runner uses it. Every method is one transaction."""

    def load(self) -> Recovered:
        """All that a runner starts with."""
        ...

    def commands(self) -> tuple[Command, ...]:
        """Commands posted and not taken, oldest first. Cheap when none was posted since the last call."""
        ...

    def asked(self) -> bool:
        """Whether the last look for commands found that somebody had called since the one before; told once."""
        ...

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        """Take commands at a barrier: the control they lead to, and the barrier that took them."""
        ...

    def prepare(self, checkpoint: Checkpoint, committed: EpochRecord | None, progress: Progress | None) -> None:
        """Promise an epoch; `committed` marks the epoch before it. progress None leaves the numbers as they were.

        Raises Held when the runner's lease is no longer its own.
        """
        ...

    def mark(self, committed: EpochRecord, progress: Progress | None) -> None:
        """The prepared epoch is in the sink. progress None leaves the numbers as they were (recovery)."""
        ...

    def unprepare(self, epoch: int) -> None:
        """Drop a prepared epoch that no sink table has. Its number is not used again."""
        ...

    def heartbeat(self, now_ms: int, progress: Progress | None) -> None:
        """Renew the lease. progress None leaves the numbers as they were. Raises Held when it is not ours now."""
        ...

    def become(self, state: JobState, reason: str) -> None:
        """Change the job's state along an arrow that exists."""
        ...

    def spooled(self) -> tuple[SpoolEntry, ...]:
        """What the spool holds, as far as the catalog knows, in order; see strategy chain."""
        ...

    def spool(self, entry: SpoolEntry) -> None:
        """An entry is in the spool, durable. A repeat changes nothing.

        Raises Held when the runner's lease is no longer its own: what is acknowledged upstream is acknowledged
        after this.
        """
        ...

    def trim(self, number: int) -> None:
        """The entries up to this number are in the sink, and no longer in the spool."""
        ...
