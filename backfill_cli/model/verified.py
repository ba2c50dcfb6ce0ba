"""What the catalog keeps of a verify. A module of its own because `status` loads nothing else of verify."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verified:
    """What a job's last verify found in one table. epoch: the checkpoint. share: of the keys; None: all.

    not_compared: how many keys changed upstream since the checkpoint and could not be compared. rows: of the sink
    that were compared; None for a verify of an older version.
    """

    table: str
    epoch: int
    at_ms: int
    share: float | None
    missing: int
    extra: int
    changed: int
    equal: bool
    not_compared: int = 0
    rows: int | None = None
