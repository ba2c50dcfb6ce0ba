"""Durations, sizes, times of day, epochs and lists of names, as people write and read them."""

import math
import re
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)


def duration_s(value: object) -> float:
    """Seconds in `"1s"`, `"500ms"`, `"1h30m"`; a plain number is seconds.

    Raises ValueError for anything else, including negative and infinite durations.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value) or value < 0:
            raise ValueError("a duration must be a finite number of seconds, 0 or more")
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
        terms = _DURATION.findall(text)
        if terms and _DURATION.sub("", text) == "":
            return sum(float(number) * SECONDS[unit.lower()] for number, unit in terms)
    raise ValueError('a duration must be in seconds, or like "500ms", "1s", "30m", "2h", "1d"')


def size_bytes(value: object) -> int:
    """Bytes in `"2g"`, `"1GB"`, `"64 MiB"`; a plain number is bytes. Units are powers of 1024, as in Spark.

    Raises ValueError for anything else, including negative sizes.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        return int(float(found[1]) * BYTES[(found[2] or "").lower()])
    raise ValueError('a size must be in bytes, or like "512m", "2g", "1GB"')


def share(text: str) -> float:
    """The share in `"1%"`, `"0.1%"`, `"0.01"`: above 0, at most 1. Raises ValueError for others, also a bare 1."""
    told = text.strip()
    number = told.removesuffix("%").strip()
    if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", number):
        raise ValueError('a share must be written like "1%", "0.1%" or "0.01"')
    if number == told and float(number) >= 1:
        raise ValueError(f'a share without % must be less than 1; for {number} percent write "{number}%"')
    found = float(number) / (1 if number == told else 100)
    if not 0 < found <= 1:
        raise ValueError("a share must be more than 0% and at most 100%")
    return found


def spell_share(value: float) -> str:
    """A share for display: `1%`, `0.1%`."""
    return f"{value * 100:.6g}%"


def spell_duration(seconds: float) -> str:
    """At most two units, for display: `20ms`, `0.4s`, `12s`, `3m 20s`, `2h 5m`, `4d 1h`; only nothing is `0s`."""
    if 0 < seconds < 0.0995:
        return f"{max(seconds * 1000, 1):.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    for small, big, size, limit in (("s", "m", 60, 3600), ("m", "h", 3600, 86400), ("h", "d", 86400, math.inf)):
        if whole < limit:
            rest = whole % size * (60 if big != "d" else 24) // size
            return f"{whole // size}{big} {rest}{small}" if rest else f"{whole // size}{big}"
    raise AssertionError("the last limit is infinite")


def spell_size(size: float) -> str:
    """Up to three digits and a unit, for display: `812 B`, `1.2 MB`, `34 GB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 9.95 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def spell_exit(code: int) -> str:
    """How a process ended. code: as `subprocess` gives it, where -9 stands for signal 9."""
    if code >= 0:
        return f"exit code {code}"
    name = next((f" ({one.name})" for one in signal.Signals if one == -code), "")
    return f"signal {-code}{name}"


def spell_moment(ms: int | None) -> str:
    """Milliseconds since 1970: `2026-11-21 04:40:12 UTC`."""
    return "N/A" if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def spell_epoch(epoch: int) -> str:
    """An epoch's number with its time: `1763692800123 (2025-11-21 02:40:00 UTC)`; `0` before any."""
    return f"{epoch} ({spell_moment(epoch)})" if epoch else "0"


def spell_count(number: int, word: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


LISTED = 10


def nearest_first(name: str, names: Sequence[str]) -> list[str]:
    """`names`, those most similar to `name` first."""
    near = get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
    return near + [other for other in names if other not in near]


def spell_known(name: str, names: Sequence[str], which: str = "known tables") -> str:
    """`; known tables: orders, customers`, nearest first, the others counted; nothing if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return f"; {which}: {', '.join(nearest_first(name, names)[:LISTED])}{more}"
