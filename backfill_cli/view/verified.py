"""What the last verify of a job found, for display."""

from collections.abc import Sequence
from dataclasses import dataclass

from backfill_cli.catalog.moments import spell_moment
from backfill_cli.model.units import spell_duration
from backfill_cli.model.verified import Verified


@dataclass(frozen=True, slots=True)
class VerifiedView:
    """What the last verify found, over all its tables. share: of the keys; None for all. age_s: how long ago.

    not_compared: how many keys changed upstream since the checkpoint and could not be compared.
    """

    equal: bool
    epoch: int
    at_ms: int
    age_s: float | None
    share: float | None
    tables: Sequence[str]
    missing: int
    extra: int
    changed: int
    not_compared: int = 0


def verified_view(tables: Sequence[Verified], now_ms: int | None) -> VerifiedView | None:
    """What the last verify found; None before one. now_ms: None where its age does not matter."""
    if not tables:
        return None
    first = tables[0]
    return VerifiedView(
        all(one.equal for one in tables),
        first.epoch,
        first.at_ms,
        None if now_ms is None else max(0, now_ms - first.at_ms) / 1000,
        first.share,
        tuple(one.table for one in tables),
        sum(one.missing for one in tables),
        sum(one.extra for one in tables),
        sum(one.changed for one in tables),
        sum(one.not_compared for one in tables),
    )


def spell_verified(found: VerifiedView) -> str:
    """`equal at epoch 1795465042722, 2h ago`; with the numbers of rows that differ, the share of a sample, and
    how many keys were not compared."""
    counted = f": {found.missing:,} missing, {found.extra:,} extra, {found.changed:,} changed"
    said = "equal" if found.equal else "different"
    sample = "" if found.share is None else f", in a sample of {found.share * 100:.6g}% of the keys"
    ago = spell_moment(found.at_ms) if found.age_s is None else f"{spell_duration(found.age_s)} ago"
    left_out = spell_not_compared(found.not_compared)
    return f"{said} at epoch {found.epoch}{'' if found.equal else counted}{sample}{left_out}, {ago}"


def spell_not_compared(keys: int) -> str:
    """What follows a verdict on the other keys; empty if all were compared."""
    noun, verb = ("key", "was") if keys == 1 else ("keys", "were")
    return f", {keys:,} {noun} that changed meanwhile {verb} not compared" if keys else ""
