"""Whether the sink lacks changes that the rows which were read show already."""

import json

from backfill_cli.contracts import JobDefinition
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.position import Position


def converging(definition: JobDefinition, at: Checkpoint) -> bool:
    """Whether changes are still to come that the snapshot already shows: of a fuzzy load, or of current state."""
    state = json.loads(at.state)
    if state.get("uncovered"):
        return True
    learnt = state.get("complete_at")
    complete_at = definition.pin.complete_at if learnt is None else Position.of(learnt)
    return complete_at is not None and not complete_at <= at.position
