"""Which strategy a job runs by: the one that its config names, or the one that fits its upstream."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.contracts import UpstreamCapabilities
from backfill_cli.errors import UsageError
from backfill_cli.strategies.snapshot import SnapshotStrategy
from backfill_cli.strategies.source import SourceStrategy

if TYPE_CHECKING:
    from backfill_cli.config import JobConfig
    from backfill_cli.model.upstream import Pin
    from backfill_cli.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Choice:
    """strategy: its name. why, retention: in words, for `plan`: what the upstream has to keep, and how long."""

    strategy: str
    why: str
    retention: str


def choose(asked: str, upstream: UpstreamCapabilities) -> Choice:
    """asked: 'auto' or a strategy's name. Raises UsageError for one that this upstream cannot do."""
    fits = _fitting(upstream)
    if asked not in ("auto", fits.strategy):
        raise UsageError(
            f"job.strategy = {asked!r} does not fit this upstream: {fits.why}",
            f'set it to "{fits.strategy}", or to "auto"',
        )
    return fits


def _fitting(upstream: UpstreamCapabilities) -> Choice:
    if upstream.partitioned:
        return Choice(
            "source",
            "history and live log are the same partitions and offsets",
            "the log's records until they are read; those of an archive's range may go from the log",
        )
    return Choice(
        "snapshot",
        "the upstream can be read at a pinned position and keeps its changes",
        "the snapshot's files until they are read, the change files until they are applied",
    )


def strategy_of(config: "JobConfig", upstream: UpstreamCapabilities, pin: "Pin") -> "Strategy":
    """The strategy of a job over its pin."""
    if choose(config.job.strategy, upstream).strategy == "source":
        (table,) = config.tables
        return SourceStrategy(pin.splits, table.name, upstream.accepts_gap)
    return SnapshotStrategy(pin.splits, config.catch_up.measure)
