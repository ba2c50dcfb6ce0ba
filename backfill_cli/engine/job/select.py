"""Which strategy a job runs by: the one that its config names, or the one that fits its upstream."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from backfill_cli.config.lacking import computing, kept
from backfill_cli.contracts import (
    LocatedSink,
    LocatedUpstream,
    Sink,
    SinkTable,
    TableSpec,
    TakingUpstream,
    Upstream,
    UpstreamCapabilities,
)
from backfill_cli.errors import UsageError
from backfill_cli.strategies.arrangement import ArrangementState, ArrangementStrategy
from backfill_cli.strategies.chain import ChainStrategy
from backfill_cli.strategies.snapshot import SnapshotState, SnapshotStrategy
from backfill_cli.strategies.source import SourceState, SourceStrategy

if TYPE_CHECKING:
    from backfill_cli.config import JobConfig
    from backfill_cli.model.upstream import Pin
    from backfill_cli.strategies import Strategy, StrategyState


@dataclass(frozen=True, slots=True)
class Selected:
    """strategy: its name. why, retention: in words, for `plan`: what the upstream has to keep, and how long."""

    strategy: str
    why: str
    retention: str


def choose(asked: str, upstream: UpstreamCapabilities) -> Selected:
    """asked: 'auto' or a strategy's name. Raises UsageError for one that this upstream cannot do."""
    if asked == "chain" and not upstream.partitioned:
        return _chain(upstream)
    fits = _fitting(upstream)
    if asked not in ("auto", fits.strategy):
        raise UsageError(
            f"job.strategy = {asked!r} does not fit this upstream: {fits.why}",
            f'set it to "{fits.strategy}", or to "auto"',
        )
    return fits


def _chain(upstream: UpstreamCapabilities) -> Selected:
    reads = "as it is now" if upstream.current else "at its pinned position"
    why = f"the job asks for it: the log is taken into the spool at once, and the snapshot read {reads} meanwhile"
    keeps = "its snapshot, until that is read; of the log no more than one barrier interval while the job runs"
    return Selected("chain", why, keeps)


def _fitting(upstream: UpstreamCapabilities) -> Selected:
    if not upstream.keeps_log:
        raise UsageError(
            "no strategy fits this upstream: it does not keep its changes until they are applied",
            "name an upstream whose change log can be read again: files, Kafka or PostgreSQL",
        )
    if upstream.partitioned:
        return Selected("source", "history and live log are the same partitions and offsets", upstream.keeps)
    if upstream.current:
        why = "the upstream shows its current state alone, in the order of keys, and keeps its changes"
        return Selected("arrangement", why, upstream.keeps)
    if not upstream.pinned:
        raise UsageError(
            "no strategy fits this upstream: its snapshot cannot be read at a pinned position",
            "name an upstream whose snapshot stays as it is while it is read",
        )
    return Selected(
        "snapshot", "the upstream can be read at a pinned position and keeps its changes", upstream.keeps
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


def require_whole(config: "JobConfig", upstream: Upstream, sink: Sink) -> None:
    """Nothing needs a column that a change may leave out, but a sink that keeps what it has of it.

    Called once the upstream is pinned. Raises UsageError naming table, columns and what needs them.
    """
    if not isinstance(upstream, TakingUpstream):
        return
    for table in config.tables:
        lacking = sorted(upstream.may_lack(table.name))
        shape = config.transform_of(table.name)
        needs = computing(shape, lacking)
        if not sink.partial and kept(shape, lacking):
            needs = ["the sink, which writes whole rows"]
        if lacking and needs:
            raise UsageError(
                f"table {table.name!r}: a change may leave out the value of {', '.join(lacking)} where it did "
                f"not change, and this needs it: {'; '.join(needs)}",
                f"make the upstream send whole rows: ALTER TABLE {table.name} REPLICA IDENTITY FULL",
            )


def require_apart(upstream: Upstream, sink: Sink, tables: Sequence[SinkTable]) -> None:
    """No table of the sink is one of the upstream's. Raises UsageError naming both; the upstream is pinned."""
    if not (isinstance(upstream, LocatedUpstream) and isinstance(sink, LocatedSink)):
        return
    sources = upstream.places()
    for target, places in sink.places(tables).items():
        for source, held in sources.items():
            if held & places:
                raise UsageError(
                    f"the target of table {target!r} is the upstream's own table {source!r}: what is written "
                    "to it would be a new change to follow",
                    "name another schema or database in [sink], or another tables.target",
                )


def nothing_follows(job: str, upstream: UpstreamCapabilities, until: str | None = None) -> Iterator[str]:
    """What is to be known of a job that would follow nothing, and what to do; nothing for any other.

    until: what it was started with; None where nobody has said yet.
    """
    if upstream.follows or until == "caught-up":
        return
    ends = "ends by itself" if until is None else f"ends by itself; backfill stop {job} ends this one"
    yield (
        "there is nothing to follow: the config names no changes (upstream.changes), so once the snapshot is read "
        f"the job waits until it is stopped; with --until caught-up it {ends}"
    )


def constraints(strategy: str, upstream: UpstreamCapabilities, transactional: bool) -> tuple[bool, str]:
    """Whether constraints across tables hold at every checkpoint, and why. transactional: the sink's."""
    if strategy == "chain" and upstream.current:
        return False, (
            "rows are read at many moments and changes applied later: until the sink has converged, unique and "
            "foreign keys of its tables do not hold either (make them once the job is caught up)"
        )
    if not upstream.one_log:
        return False, "each table has a change log of its own"
    if not transactional:
        return False, "the sink commits its tables one after the other"
    return True, "one log orders all tables"


def strategy_of(config: "JobConfig", upstream: UpstreamCapabilities, pin: "Pin") -> "Strategy[StrategyState]":
    """The strategy of a job over its pin."""
    strategy = choose(config.job.strategy, upstream).strategy
    if strategy == "arrangement":
        arrangement: Strategy[ArrangementState] = ArrangementStrategy(pin.splits)
        return cast("Strategy[StrategyState]", arrangement)
    if strategy == "chain":
        chain: Strategy[SnapshotState] = ChainStrategy(
            pin.splits, config.catch_up.measure, current=upstream.current
        )
        return cast("Strategy[StrategyState]", chain)
    if strategy == "source":
        (table,) = config.tables
        source: Strategy[SourceState] = SourceStrategy(pin.splits, table.name, upstream.accepts_gap)
        return cast("Strategy[StrategyState]", source)
    snapshot: Strategy[SnapshotState] = SnapshotStrategy(pin.splits, config.catch_up.measure)
    return cast("Strategy[StrategyState]", snapshot)
