"""Which jobs `verify --fix` may repair: those whose upstream's rows at the checkpoint are the ones to hold."""

from backfill_cli.contracts import JobDefinition
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase


def why_not(definition: JobDefinition, at: Checkpoint, converging: bool) -> tuple[str, str] | None:
    """Why a job cannot be repaired at a checkpoint, and what to do instead; None where it can."""
    name = definition.name
    if at.phase == Phase.SNAPSHOT:
        return (
            "its snapshot is still being read",
            f"backfill resume {name} --detach; backfill wait {name} --for caught-up; then stop it, and fix",
        )
    if converging:
        return (
            "it is converging: what differs now may pass by itself",
            f"backfill resume {name} --detach; backfill wait {name} --for caught-up; then stop it, and fix",
        )
    return None
