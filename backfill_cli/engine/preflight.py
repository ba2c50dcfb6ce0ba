"""`backfill plan`: what a job would do, from metadata alone; nothing is written."""

from contextlib import closing
from typing import TYPE_CHECKING

from backfill_cli.engine.choice import choose
from backfill_cli.engine.create import sink_tables
from backfill_cli.engine.session import session_of
from backfill_cli.model.plan_report import PlannedTable, PlanReport

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import JobConfig


def plan(config: "JobConfig", catalog: "Catalog") -> PlanReport:
    """Pin, observe and check the transform as `start` would, and say what came of it.

    Raises what `start` would raise for a config that cannot run.
    """
    import json

    with closing(config.open_upstream()) as upstream:
        pin = upstream.pin()
        view = upstream.observe(pin.position, snapshot_open=True)
        with session_of(config) as spark:
            tables = sink_tables(config, spark, upstream, pin, plain=True)
        one_log = upstream.capabilities.one_log
        choice = choose(config.job.strategy, upstream.capabilities)
    planned = []
    for table in (t for t in tables if not t.side):
        splits = [s for s in pin.splits if s.table == table.name]
        known = all(s.rows is not None for s in splits)
        fields = json.loads(table.schema)["fields"]
        planned.append(
            PlannedTable(
                name=table.name,
                target=table.target,
                key=table.key,
                splits=len(splits),
                rows=sum(s.rows or 0 for s in splits) if known else None,
                size_bytes=sum(s.size_bytes for s in splits),
                columns=tuple((f["name"], str(f["type"])) for f in fields),
            )
        )
    exact = pin.complete_at is None
    return PlanReport(
        job=config.job.name,
        strategy=choice.strategy,
        why=choice.why,
        tables=tuple(planned),
        position=", ".join(f"{log}: {cursor}" for log, cursor in pin.position) or "the start of the change log",
        pending_epochs=len(view.pending),
        pending_bytes=sum(e.size_bytes for e in view.pending),
        converging_until=None if exact else ", ".join(str(c) for _, c in pin.complete_at or ()),
        retention=choice.retention,
        constraints_hold=one_log,
        constraints_why="one log orders all tables" if one_log else "each table has a change log of its own",
    )
