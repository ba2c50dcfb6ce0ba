"""What a job has committed, once a table has joined or left it, and the commit that tells its sink. Pure."""

import uuid
from collections.abc import Sequence
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
    mine = {table.target for table in tables}
    return replace(
        committed,
        state=strategy.freeze(state),
        phase=state.phase,
        position=state.position,
        splits=state.splits,
        schemas={**committed.schemas, **more.schema},
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

    with_rows: the sink is to drop these.
    """
    before = [one.name for one in tables if not one.side]
    state = strategy.left(strategy.thaw(committed.state, committed.splits, control), name, before)
    names, targets = {table.name for table in gone}, {table.target for table in gone}
    return replace(
        committed,
        state=strategy.freeze(state),
        phase=state.phase,
        position=state.position,
        splits=state.splits,
        schemas={of: text for of, text in committed.schemas.items() if of != name},
        sink_schemas={of: text for of, text in committed.sink_schemas.items() if of not in names},
        quarantined={of: rows for of, rows in committed.quarantined.items() if of not in targets},
        written={of: rows for of, rows in committed.written.items() if of not in names},
        joined=tuple(of for of in committed.joined if of not in names),
        dropping={table.target: encode(table) for table in gone if with_rows},
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
