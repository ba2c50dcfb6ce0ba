"""A catalog in memory, and how one runner uses it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backfill_cli.contracts import SpoolEntry
from backfill_cli.errors import Held, Transient
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.job import Command, Control, JobState, may_become
from backfill_cli.model.refill import Refill


@dataclass
class MemoryStore:
    """The catalog's tables, and one runner's token into them."""

    committed: Checkpoint
    control: Control = field(default_factory=Control)
    prepared: Checkpoint | None = None
    inbox: list[Command] = field(default_factory=list)
    token: int = 0
    last_epoch: int = 0
    state: JobState = JobState.RUNNING
    progress: Progress | None = None
    spool_entries: list[SpoolEntry] = field(default_factory=list)

    def spooled(self) -> tuple[SpoolEntry, ...]:
        return tuple(self.spool_entries)

    def spool(self, entry: SpoolEntry) -> None:
        self.spool_entries = [*(one for one in self.spool_entries if one.number != entry.number), entry]

    def trim(self, number: int) -> None:
        self.spool_entries = [one for one in self.spool_entries if one.number > number]

    def refills(self) -> tuple[Refill, ...]:
        return ()

    def note_refill(self, refill: Refill) -> None:
        raise AssertionError("there is none")

    def load(self) -> Recovered:
        """Asked by each new runner, which then is at work."""
        self.state = JobState.PAUSED if self.control.paused else JobState.RUNNING
        return Recovered(self.control, self.committed, self.prepared, self.last_epoch)

    def commands(self) -> tuple[Command, ...]:
        return tuple(self.inbox)

    def asked(self) -> bool:
        return False

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        assert record.epoch > self.last_epoch
        assert may_become(self.state, state), (self.state, state)
        self.inbox = [c for c in self.inbox if c not in commands]
        self.control, self.state, self.last_epoch = control, state, record.epoch

    def prepare(self, checkpoint: Checkpoint, committed: EpochRecord | None, progress: Progress) -> None:
        assert checkpoint.epoch >= self.last_epoch
        assert checkpoint.epoch > self.committed.epoch
        self._mark(committed)
        assert self.prepared is None, "n+1 was prepared before n was known to be committed"
        self.prepared, self.last_epoch = checkpoint, checkpoint.epoch

    def _mark(self, record: EpochRecord | None) -> None:
        if record is None:
            return
        assert self.prepared is not None
        assert self.prepared.epoch == record.epoch
        splits = {**self.committed.splits, **self.prepared.splits}
        self.committed = replace(self.prepared, splits=splits, plan=None, staged=None)
        self.prepared = None

    def mark(self, committed: EpochRecord, progress: Progress | None) -> None:
        self._mark(committed)

    def unprepare(self, epoch: int) -> None:
        assert self.prepared is not None
        self.prepared = None

    def heartbeat(self, now_ms: int, progress: Progress | None) -> None:
        if now_ms % 3 == 0:
            raise Transient("the catalog's disk is full")

    def become(self, state: JobState, reason: str) -> None:
        self.state = state


class Leased:
    """The catalog as one runner uses it: from the next claim on it is refused. store: the one there is now."""

    def __init__(self, store: Callable[[], MemoryStore], token: int) -> None:
        self._store = store
        self._token = token

    def __getattr__(self, name: str) -> Any:
        store = self._store()
        if name != "commands" and store.token != self._token:
            raise Held("taken over")
        return getattr(store, name)
