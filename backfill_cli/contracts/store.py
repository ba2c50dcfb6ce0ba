"""What a runner needs from the catalog, and the definition of a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backfill_cli.contracts.sink import SinkTable
from backfill_cli.contracts.spool import SpoolEntry
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.job import Command, Control, JobState
from backfill_cli.model.limit import Limit
from backfill_cli.model.upstream import Pin


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """What a job is: set once at its start.

    config: the resolved config with references (never secrets) as JSON. fingerprint: JSON object of what must not
    change. pin: with all its splits. until: 'caught-up' or 'forever'. tables: as the sink sees them. config_file:
    path of the config that it was last started with; empty if unknown.
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
        """Whether its tables cannot hold rows from before the job, so that they may be dropped with it."""
        return all(table.plain_inserts or table.side for table in self.tables)


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
