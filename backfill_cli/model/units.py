"""Durations, rates, sizes, times, counts and names, as people write and read them: one form of each."""

import math
import re
import signal
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import takewhile

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


def spell_number(value: float) -> str:
    """A number exactly as it was set: `20,000`, `0.25`."""
    return f"{value:,.15g}"


def spell_duration(seconds: float) -> str:
    """At most two units: `20 ms`, `0.8 s`, `12 s`, `2 m 05 s`, `3 h 05 m`, `4 d 1 h`; only nothing is `0 s`."""
    if 0 < seconds < 0.0995:
        return f"{max(seconds * 1000, 1):.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days:,} d" + (f" {h} h" if h else "")
    if hours:
        return f"{hours} h" + (f" {m:02} m" if m else "")
    if minutes:
        return f"{minutes} m" + (f" {s:02} s" if s else "")
    return f"{s} s"


def spell_so_far(what: str, seconds: float) -> str:
    """What goes on, from a second on with for how long it has: `starting Spark, 12 s`."""
    return f"{what}, {spell_duration(int(seconds))}" if seconds >= 1 else what


def duration_option(seconds: float) -> str:
    """The same as it is typed in a config: `800ms`, `2m05s`, `1000d`."""
    return spell_duration(seconds).translate({ord(" "): None, ord(","): None})


def spell_rate(per_s: float, of: str = "rows") -> str:
    """A measured rate: `12,300 rows/s`, `9.5 changes/s`, `0.03 rows/s`."""
    if per_s >= 9.95:
        return f"{per_s:,.0f} {of}/s"
    told = f"{per_s:.1f}" if per_s >= 0.0995 or not per_s else f"{max(per_s, 0.01):.2f}"
    return f"{told.removesuffix('.0')} {of}/s"


def spell_size(size: float) -> str:
    """Up to three digits and a unit: `812 B`, `1.2 MB`, `34 GB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 9.95 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TB"


def spell_exit(code: int) -> str:
    """How a process ended. code: as `subprocess` gives it, where -9 stands for signal 9."""
    if code >= 0:
        return f"exit code {code}"
    name = next((f" ({one.name})" for one in signal.Signals if one == -code), "")
    return f"signal {-code}{name}"


def spell_moment(ms: int | None) -> str:
    """Milliseconds since 1970 in this machine's zone, for who may read it elsewhere: `2026-11-21 04:40:12 UTC`."""
    return "N/A" if ms is None else f"{_local(ms):%Y-%m-%d %H:%M:%S %Z}"


def spell_clock(ms: int, now_ms: int) -> str:
    """The same for who reads it here: `04:40:12`, before or after today `2026-11-21 04:40:12`."""
    at = _local(ms)
    return f"{at:%H:%M:%S}" if at.date() == _local(now_ms).date() else f"{at:%Y-%m-%d %H:%M:%S}"


def _local(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone()


def spell_epoch(epoch: int) -> str:
    """An epoch's number with its time: `1763692800123 (2025-11-21 02:40:00 UTC)`; `0` before any."""
    return f"{epoch} ({spell_moment(epoch)})" if epoch else "0"


def spell_count(number: int, word: str) -> str:
    """`1 row`, `1,200 rows`, `2 entries`."""
    return f"{number:,} {plural(number, word)}"


def plural(number: int, word: str) -> str:
    """`row` for one, else `rows`; `entries`, `branches`."""
    if number == 1:
        return word
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}es" if re.search(r"(s|x|sh|[nt]ch)$", word) else f"{word}s"


LISTED = 10


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """What `name` probably means of these: at most three, the most similar first; case does not count.

    A name without schema or folder means those that have it in one.
    """
    folded: dict[str, list[str]] = {}
    for other in names:
        folded.setdefault(other.strip().casefold(), []).append(other)
    asked = name.strip().casefold()
    steps = zip(*(re.split(r"(?<=[./])", one) for one in (asked, *folded)), strict=False)
    # A folder or schema that all are in makes them no more similar.
    inside = sum(len(step[0]) for step in takewhile(lambda step: len(set(step)) == 1, steps))
    near = get_close_matches(asked[inside:], [one[inside:] for one in folded], n=3)
    within = [one for one in folded if one.endswith((f".{asked}", f"/{asked}"))]
    itself = [asked] if asked in folded else []
    found = dict.fromkeys([*itself, *within, *(asked[:inside] + one for one in near)])
    return [other for one in found for other in folded[one]][:3]


def nearest_first(name: str, names: Sequence[str]) -> list[str]:
    """`names`, those that `name` probably means first."""
    near = near_names(name, names)
    return near + [other for other in names if other not in near]


def spell_known(name: str, names: Sequence[str], which: str = "tables") -> str:
    """`; did you mean orders or order_lines?`; else `; tables: a, b and 3 more`; nothing if there are none.

    which: what `names` are.
    """
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    listed = f"; {which}: {', '.join(names[:LISTED])}{more}" if names else ""
    return spell_meant(name, names) or listed


def spell_meant(name: str, names: Iterable[str]) -> str:
    """`; did you mean orders or order_lines?`; nothing if no name is similar."""
    near = near_names(name, names)
    return f"; did you mean {spell_either(near)}?" if near else ""


def spell_either(names: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
