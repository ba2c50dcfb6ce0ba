"""What a job has committed, once a table has joined or left it, and the commit that tells its sink. Pure."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from backfill_cli.contracts import SinkTable
from backfill_cli.model.checkpoint import Checkpoint, Recovered
from backfill_cli.model.codec import encode
from backfill_cli.model.job import Barrier, Control, Mutations
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies import S, Strategy


def with_table(
    committed: Checkpoint,
    control: Control,
    strategy: Strategy[S],
    more: Pin,
    tables: Sequence[SinkTable],
    memory: str,
) -> Checkpoint:
    """As committed, with a table of which nothing is read. strategy: of the job with it. more: its pin.

    tables: the sink's, of it. memory: what the upstream remembers then.
    """
    state = strategy.joined(strategy.thaw(committed.state, committed.splits, control), more)
    return having(committed, strategy, state, more.schema, tables, memory)


def having(
    committed: Checkpoint,
    strategy: Strategy[S],
    state: S,
    schemas: Mapping[str, str],
    tables: Sequence[SinkTable],
    memory: str,
) -> Checkpoint:
    """As committed, with these tables of the sink, in the state that the strategy has with them."""
    mine = {table.target for table in tables}
    return replace(
        committed,
        state=strategy.freeze(state),
        phase=state.phase,
        position=state.position,
        splits=state.splits,
        schemas={**committed.schemas, **schemas},
        sink_schemas={**committed.sink_schemas, **{table.name: table.schema for table in tables}},
        memory=memory,
        joined=tuple(table.name for table in tables),
        dropping={target: one for target, one in committed.dropping.items() if target not in mine},
    )


def without_table(
    committed: Checkpoint,
    control: Control,
    strategy: Strategy[S],
    name: str,
    tables: Sequence[SinkTable],
    gone: Sequence[SinkTable],
    with_rows: bool,
) -> Checkpoint:
    """As committed, without a table. strategy: of the job without it. tables: all before; gone: of these, its own.

    with_rows: the sink is to drop these, beside what it perhaps has not dropped yet.
    """
    before = [one.name for one in tables if not one.side]
    state = strategy.left(strategy.thaw(committed.state, committed.splits, control), name, before)
    names, targets = {table.name for table in gone}, {table.target for table in gone}
    return replace(
        lacking(committed, strategy, state, name, names),
        splits=state.splits,
        quarantined={of: rows for of, rows in committed.quarantined.items() if of not in targets},
        written={of: rows for of, rows in committed.written.items() if of not in names},
        dropping={**committed.dropping, **{table.target: encode(table) for table in gone if with_rows}},
    )


def lacking(
    checkpoint: Checkpoint, strategy: Strategy[S], state: S, table: str, names: Collection[str]
) -> Checkpoint:
    """The same without a table, in the state that the strategy has without it. names: of it in the sink.

    What has been counted of it stays: it may come back.
    """
    return replace(
        checkpoint,
        state=strategy.freeze(state),
        phase=state.phase,
        position=state.position,
        splits={key: one for key, one in checkpoint.splits.items() if key[0] != table},
        schemas={of: text for of, text in checkpoint.schemas.items() if of != table},
        sink_schemas={of: text for of, text in checkpoint.sink_schemas.items() if of not in names},
        joined=tuple(of for of in checkpoint.joined if of not in names),
    )


def promised(
    recovered: Recovered, committed: Checkpoint, after: int, now_ms: int, token: int
) -> Checkpoint | None:
    """A commit without rows, which the recovery that follows makes: with it the sink keeps the new definition.

    Otherwise a catalog that is lost before the next row could be rebuilt with the old one only. committed: as it
    is by then. after: the newest epoch. token: of the runner. None for a job that has committed nothing, or whose
    sink refuses a commit.
    """
    if recovered.prepared is not None or not committed.epoch:
        return None
    barrier = Barrier.next(after, now_ms, Mutations(recovered.control))
    attempt = uuid.uuid4().hex[:12]
    none = replace(committed, splits={}, plan=EpochPlan(), staged=Staged(attempt), dropping={})
    return replace(none, epoch=barrier.epoch, prev_ms=barrier.prev_ms, token=token, attempt=attempt)
