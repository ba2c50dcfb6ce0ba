"""How long an Iceberg table keeps the snapshots that a job has not read: by what expire_snapshots goes by."""

from collections.abc import Mapping
from dataclasses import dataclass

from backfill_cli.errors import Hint
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.units import spell_duration

AGE, LEAST, COLLECTS = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep", "gc.enabled"
DEFAULT_AGE_MS, DEFAULT_LEAST = 432_000_000, 1


@dataclass(frozen=True, slots=True)
class Expiry:
    """What a table's snapshots expire by. keep_ms: None: they do not. least: of the newest ones that are kept."""

    keep_ms: int | None
    least: int

    @staticmethod
    def of(
        properties: Mapping[str, str], branch_ms: int | None = None, branch_least: int | None = None
    ) -> "Expiry":
        """By the table's properties, and what its branch has of its own."""
        age = branch_ms if branch_ms is not None else int(properties.get(AGE, DEFAULT_AGE_MS))
        least = branch_least if branch_least is not None else int(properties.get(LEAST, DEFAULT_LEAST))
        return Expiry(None if properties.get(COLLECTS, "true").lower() == "false" else age, least)


def headroom(
    expiry: Expiry,
    begun_ms: int | None,
    pending_ms: tuple[int, ...],
    tagged: bool,
    place: str,
    longer: Hint,
    unread: Unread,
) -> Headroom:
    """begun_ms: when the snapshot was made at which the job is, None for none; pending_ms: those after it, rising.

    The changes after a snapshot can be read as long as it is there, too. tagged: a tag keeps it. longer: what
    keeps snapshots longer.
    """
    if expiry.keep_ms is None:
        return Headroom.unbounded(f"{place} has {COLLECTS} = false: no snapshot expires")
    if pending_ms and len(pending_ms) < expiry.least:
        return Headroom.unbounded(f"{place} keeps its newest {expiry.least} snapshots ({LEAST})")
    oldest_ms = pending_ms[0] if pending_ms else None
    if oldest_ms is not None and begun_ms is not None and not tagged:
        oldest_ms = min(begun_ms, oldest_ms)
    by = f"expire_snapshots ({AGE}, {spell_duration(expiry.keep_ms / 1000)})"
    return Headroom.of_age(unread, oldest_ms, expiry.keep_ms, by, place, longer)
