"""Pure state machines: what a barrier reads, given what was consumed and what the upstream shows.

No I/O, no clock, no randomness, no Spark: that keeps them small, and thousands of schedules run in seconds.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitKey, SplitProgress
from backfill_cli.model.upstream import Pin, UpstreamView


class StrategyState(Protocol):
    """What every strategy's state shows: a frozen dataclass."""

    @property
    def control(self) -> Control: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def position(self) -> Position: ...
    @property
    def splits(self) -> Mapping[SplitKey, SplitProgress]: ...


class Strategy(Protocol):
    """One strategy over one pin. `plan` and `advance` are called once a barrier, in this order."""

    @property
    def name(self) -> str: ...

    def start(self, pin: Pin, control: Control) -> Any:
        """The state before the first barrier."""
        ...

    def apply(self, state: Any, mutations: Mutations) -> Any:
        """The state once a barrier's mutations act."""
        ...

    def plan(self, state: Any, view: UpstreamView, budget: Budget) -> EpochPlan:
        """What this epoch reads; empty when there is nothing, or nothing allowed."""
        ...

    def advance(self, state: Any, plan: EpochPlan, staged: Staged | None, budget: Budget) -> Any:
        """The state once `plan` was read as `staged` says; an empty plan (staged None) moves only the pace."""
        ...

    def freeze(self, state: Any) -> str:
        """The state as JSON, without splits and control, which the catalog keeps in tables of their own."""
        ...

    def thaw(self, state: str, splits: Mapping[SplitKey, SplitProgress], control: Control) -> Any:
        """The state that `freeze` wrote."""
        ...
