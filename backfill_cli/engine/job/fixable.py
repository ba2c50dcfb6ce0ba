"""Whether a job's rows can be made equal by what its upstream has: for `verify --fix`, and for a refill."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.converging import converging
from backfill_cli.errors import Hint, command
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase

BY_SQL = "correct the rows that verify lists with SQL"


def never(definition: JobDefinition, asked: Collection[str] = ()) -> tuple[str, Hint | str] | None:
    """Why these can never be made equal by what the upstream has, and what to do instead.

    asked: tables of the job, all if empty. A derived one is made equal by its SELECT, whatever its tables are.
    """
    tables = [one for one in definition.tables if not asked or one.name in asked]
    others = [table.target for table in tables if not table.plain_inserts and not table.side]
    if others:
        return (
            f"rows that were in {', '.join(others)} before (--into-existing) cannot be told from extra ones",
            BY_SQL,
        )
    if tables and _thins(json.loads(definition.config).get("upstream", {})):
        return (
            "its topic is compacted: rows removed by compaction appear missing or extra, and may be neither",
            BY_SQL,
        )
    return None


def why_not(
    definition: JobDefinition, at: Checkpoint, asked: Collection[str] = ()
) -> tuple[str, Hint | str] | None:
    """Why `verify --fix` cannot repair a job at a checkpoint, and what to do instead; None if it can: if the sink
    must hold the upstream's rows there. asked: see `never`."""
    if (told := never(definition, asked)) is not None:
        return told
    name = definition.name
    wait = f"resume {name} --detach", f"wait {name} --for caught-up"
    later = command(*wait, f"stop {name} --wait", f"verify {name} --fix")
    if at.phase == Phase.SNAPSHOT:
        return "its snapshot is still being read", later
    if converging(definition, at):
        return "it is converging: present differences may disappear by themselves", later
    return None


def _thins(upstream: Mapping[str, Any]) -> bool:
    """Whether the config says that records can disappear from the log other than at its beginning."""
    changes = upstream.get("changes")
    sides = (upstream, changes if isinstance(changes, Mapping) else {})
    return any(side.get(option) is True for side in sides for option in ("compacted", "accept_compaction"))
