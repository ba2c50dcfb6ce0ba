"""What the catalog keeps of a verify. By itself: `status` loads no more of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verified:
    """What the last verify of a job found of one table. epoch: the checkpoint. share: of the keys; None: all."""

    table: str
    epoch: int
    at_ms: int
    share: float | None
    missing: int
    extra: int
    changed: int
    equal: bool
