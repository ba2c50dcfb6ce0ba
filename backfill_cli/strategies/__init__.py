"""Pure state machines: what a barrier reads, given what was consumed and what the upstream shows.

No I/O, no clock, no randomness, no Spark: that keeps them small, and thousands of schedules run in seconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from backfill_cli.model.checkpoint import PartitionProgress
from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget, TablePace
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import ReadSoFar, SplitKey, SplitProgress
from backfill_cli.model.upstream import Pin, UpstreamView


class StrategyState(Protocol):
    """What every strategy's state provides, as a frozen dataclass: all that the engine and the views ask of it.

    converging: whether the sink becomes right only once the log passes the end of a fuzzy load.
    beside: whether rows of tables that joined the job are read while the others follow their log.
    snapshot_finished_ms, log_store_finished_ms: the barriers that ended the phases.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def control(self) -> Control: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def position(self) -> Position: ...
    @property
    def splits(self) -> Mapping[SplitKey, SplitProgress]: ...
    @property
    def converging(self) -> bool: ...
    @property
    def beside(self) -> bool: ...
    @property
    def snapshot_finished_ms(self) -> int | None: ...
    @property
    def log_store_finished_ms(self) -> int | None: ...


S = TypeVar("S", bound=StrategyState)


class Strategy(ABC, Generic[S]):
    """One strategy over one pin. `plan` and `advance` are called once per barrier, in this order."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def start(self, pin: Pin, control: Control) -> S:
        """The state before the first barrier."""

    def apply(self, state: S, mutations: Mutations) -> S:
        """The state after a barrier's mutations have taken effect: control does from here on, the rest stays."""
        return replace(state, control=mutations.control)

    @abstractmethod
    def plan(self, state: S, view: UpstreamView, budget: Budget) -> EpochPlan:
        """What this epoch reads; empty when there is nothing to read, or nothing may be read."""

    @abstractmethod
    def advance(self, state: S, plan: EpochPlan, staged: Staged | None, budget: Budget) -> S:
        """The state after `plan` was read as `staged` reports; an empty plan (staged None) moves only the pace."""

    def joined(self, state: S, more: Pin) -> S:
        """The state once further tables have joined the job, of which nothing is read. more: their pin.

        This strategy is that of the job with them.
        """
        raise NotImplementedError(f"no table joins a job with strategy {self.name}")

    def put_back(self, state: S, more: Pin) -> S:
        """The state once tables are back that were set aside, as if all their rows had been read. more: their pin.

        This strategy is that of the job with them.
        """
        raise NotImplementedError(f"no table is put back into a job with strategy {self.name}")

    def left(self, state: S, table: str, tables: Sequence[str]) -> S:
        """The state once a table has left the job, whose strategy is this one without it. tables: all before."""
        raise NotImplementedError(f"no table leaves a job with strategy {self.name}")

    def closes(self, before: S, after: S) -> tuple[str, ...]:
        """The tables whose snapshot became complete between `before` and `after`: their keys are checked then."""
        return ()

    @abstractmethod
    def read_so_far(self, state: S) -> ReadSoFar:
        """How much of the snapshot, or of the history, has been read so far."""

    @abstractmethod
    def unread(self, state: S) -> frozenset[str]:
        """The tables of which rows of the snapshot, or of the history, are still to be read."""

    @abstractmethod
    def left_of(self, state: S, table: str) -> float | None:
        """About how many of these rows of one table are left; None before anything tells how many there are."""

    def own_paces(self, state: S) -> tuple[TablePace, ...]:
        """The tables with a rate of their own of which such rows are left."""
        rates = state.control.rates
        own = sorted(self.unread(state) & rates.keys()) if rates else ()
        return tuple(TablePace(table, rates[table], self.left_of(state, table)) for table in own)

    def partitions(self, state: S, latest: Position) -> tuple[PartitionProgress, ...]:
        """Each partition of a log with its lag behind `latest`, furthest behind first; empty for files."""
        return ()

    @abstractmethod
    def freeze(self, state: S) -> str:
        """The state as JSON, without splits and control, which the catalog keeps in separate tables."""

    @abstractmethod
    def thaw(self, state: str, splits: Mapping[SplitKey, SplitProgress], control: Control) -> S:
        """The state that `freeze` wrote."""
