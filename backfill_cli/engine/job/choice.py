"""Which strategy a job runs by: the one that its config names, or the one that fits its upstream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.contracts import TableSpec, UpstreamCapabilities
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
    if not upstream.keeps_log:
        raise UsageError(
            "no strategy fits this upstream: it does not keep its changes until they are applied",
            "name an upstream whose change log can be read again: files, or a Kafka topic",
        )
    if upstream.partitioned:
        return Choice(
            "source",
            "history and live log are the same partitions and offsets",
            "the log's records until they are read; those of an archive's range may go from the log",
        )
    if not upstream.pinned:
        raise UsageError(
            "no strategy fits this upstream: its snapshot cannot be read at a pinned position",
            "name an upstream whose snapshot stays as it is while it is read",
        )
    return Choice(
        "snapshot",
        "the upstream can be read at a pinned position and keeps its changes",
        "the snapshot's files until they are read, the change files until they are applied",
    )


def require_keys(tables: Sequence[TableSpec], upstream: UpstreamCapabilities) -> None:
    """A key change can be followed, or the config says that there is none.

    Raises UsageError naming the tables where neither holds: their old rows would stay for ever. Records of a
    partitioned log are known by the key that they carry, so the question is none there.
    """
    open_to_it = [table.name for table in tables if not table.immutable_key]
    if upstream.before_images or upstream.partitioned or not open_to_it:
        return
    named = ", ".join(repr(name) for name in open_to_it)
    raise UsageError(
        f"table {named}: the change log sends no old key with a key change, so the row of the old key would stay "
        "in the sink for ever",
        "if keys never change at the source, say so: write `immutable_key = true` under its [[tables]]",
    )


def constraints(upstream: UpstreamCapabilities, transactional: bool) -> tuple[bool, str]:
    """Whether constraints across tables hold at every checkpoint, and why. transactional: the sink's."""
    if not upstream.one_log:
        return False, "each table has a change log of its own"
    if not transactional:
        return False, "the sink commits its tables one after the other"
    return True, "one log orders all tables"


def strategy_of(config: "JobConfig", upstream: UpstreamCapabilities, pin: "Pin") -> "Strategy":
    """The strategy of a job over its pin."""
    if choose(config.job.strategy, upstream).strategy == "source":
        (table,) = config.tables
        return SourceStrategy(pin.splits, table.name, upstream.accepts_gap)
    return SnapshotStrategy(pin.splits, config.catch_up.measure)
