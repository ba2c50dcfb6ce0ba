"""Which jobs `verify --fix` can repair: those whose sink must hold the upstream's rows at the checkpoint."""

import json
from collections.abc import Mapping
from typing import Any

from backfill_cli.contracts import JobDefinition
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.position import Position

BY_SQL = "correct the rows that verify lists with SQL"


def why_not(definition: JobDefinition, at: Checkpoint, converging: bool) -> tuple[str, str] | None:
    """Why a job cannot be repaired at a checkpoint, and what to do instead; None if it can."""
    name = definition.name
    others = [table.target for table in definition.tables if not table.plain_inserts and not table.side]
    if others:
        return (
            f"it was started --into-existing, and rows that were in {', '.join(others)} before cannot be told "
            "from extra ones",
            BY_SQL,
        )
    if _thins(json.loads(definition.config).get("upstream", {})):
        return (
            "its topic is compacted: rows removed by compaction appear missing or extra, and may be neither",
            BY_SQL,
        )
    later = (
        f"backfill resume {name} --detach; backfill wait {name} --for caught-up; backfill stop {name} --wait; "
        f"backfill verify {name} --fix"
    )
    if at.phase == Phase.SNAPSHOT:
        return (
            "its snapshot is still being read",
            later,
        )
    if converging:
        return (
            "it is converging: present differences may disappear by themselves",
            later,
        )
    return None


def converging(definition: JobDefinition, at: Checkpoint) -> bool:
    """Whether changes are still to come that the snapshot already shows: of a fuzzy load, or of current state."""
    state = json.loads(at.state)
    if state.get("uncovered"):
        return True
    learnt = state.get("complete_at")
    complete_at = definition.pin.complete_at if learnt is None else Position.of(learnt)
    return complete_at is not None and not complete_at <= at.position


def _thins(upstream: Mapping[str, Any]) -> bool:
    """Whether the config says that records can disappear from the log other than at its beginning."""
    changes = upstream.get("changes")
    sides = (upstream, changes if isinstance(changes, Mapping) else {})
    return any(side.get(option) is True for side in sides for option in ("compacted", "accept_compaction"))
