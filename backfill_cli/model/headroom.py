"""How long an upstream keeps what a job has not read yet, as a value: asked beside the loop, shown by `status`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from backfill_cli.errors import Hint
from backfill_cli.model.position import Position

FAR_MS = 100 * 365 * 86_400_000
"""A rate of nearly nothing tells no more than that it is far off; a retention of as long is none."""


class Kept(StrEnum):
    """For how long. UNBOUNDED: nothing removes it."""

    UNTIL = "until"
    UNBOUNDED = "unbounded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Unread:
    """What a job has not read yet, as of `now_ms`.

    position: up to where its log is read. snapshot_open: the snapshot, or history, is being read. oldest_ms: when
    the oldest change after the position was made; None if there is none, or that is not known.
    """

    position: Position
    snapshot_open: bool
    now_ms: int
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Headroom:
    """by: what removes it, `retention.ms (7 d)`; where nothing does, or that is not known, why. of: of what.

    gone_ms: the first moment at which it may be gone, at the present rate; None where that is not known.
    beside: another limit, which may remove it earlier and of which that is not known; "" for none.
    hint: what keeps it longer.
    """

    kept: Kept
    by: str
    of: str = ""
    gone_ms: int | None = None
    beside: str = ""
    hint: Hint = Hint()  # noqa: RUF009

    @staticmethod
    def unbounded(why: str) -> "Headroom":
        return Headroom(Kept.UNBOUNDED, why)

    @staticmethod
    def unknown(why: str, of: str = "", hint: Hint | str = "") -> "Headroom":
        return Headroom(Kept.UNKNOWN, why, of, hint=Hint.of(hint))

    @staticmethod
    def of_age(
        unread: Unread, oldest_ms: int | None, keep_ms: int, by: str, of: str = "", hint: Hint | str = ""
    ) -> "Headroom":
        """Kept for so long after it was made. oldest_ms: when the oldest of it was; None: nothing is unread."""
        now_ms = unread.now_ms
        made_ms = now_ms if oldest_ms is None else min(oldest_ms, now_ms)
        return Headroom(Kept.UNTIL, by, of, max(now_ms, made_ms + keep_ms), hint=Hint.of(hint))

    @staticmethod
    def of_room(
        unread: Unread, room: float, per_s: float | None, by: str, of: str = "", hint: Hint | str = ""
    ) -> "Headroom":
        """Kept until so much more is written. room: in any unit; per_s: of it, None if that is not known."""
        if room <= 0:
            return Headroom(Kept.UNTIL, by, of, unread.now_ms, hint=Hint.of(hint))
        if per_s is None:
            return Headroom.unknown(f"how fast the log grows is not known yet; {by}", of)
        if per_s <= 0:
            return Headroom.unbounded(f"nothing is being written; {by}")
        left_ms = min(room / per_s * 1000, FAR_MS)
        return Headroom(Kept.UNTIL, by, of, unread.now_ms + int(left_ms), hint=Hint.of(hint))

    @staticmethod
    def least(found: "Iterable[Headroom]") -> "Headroom | None":
        """Of several limits, the one that acts first; None for none."""
        told = list(found)
        until = [one for one in told if one.gone_ms is not None]
        unknown = next((one for one in told if one.kept is Kept.UNKNOWN), None)
        if not until:
            return unknown or next(iter(told), None)
        first = min(until, key=lambda one: one.gone_ms or 0)
        return first if unknown is None else replace(first, beside=first.beside or unknown.by)

    def left_s(self, now_ms: int) -> float | None:
        """Seconds that are left; None where that is not known, or nothing removes it."""
        return None if self.gone_ms is None else max(0, self.gone_ms - now_ms) / 1000

    @staticmethod
    def read(told: Mapping[str, Any]) -> "Headroom":
        """What the codec wrote, parsed as JSON."""
        shaped = {"kept": Kept(told["kept"]), "hint": Hint.read(told["hint"])}
        return Headroom(**{**told, **shaped})
