"""Times of day, and the epochs numbered by them, as people read them."""

from datetime import UTC, datetime


def spell_moment(ms: int | None) -> str:
    """Milliseconds since 1970: `2026-11-21 04:40:12 UTC`."""
    return "N/A" if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def spell_epoch(epoch: int) -> str:
    """An epoch's number with its time: `1763692800123 (2025-11-21 02:40:00 UTC)`; `0` before any."""
    return f"{epoch} ({spell_moment(epoch)})" if epoch else "0"
