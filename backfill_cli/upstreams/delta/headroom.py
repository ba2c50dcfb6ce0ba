"""How long a Delta table keeps what a job has not read: by its retentions, which VACUUM and log cleanup follow."""

import re
from collections.abc import Iterator, Mapping

from backfill_cli.errors import Hint, sql
from backfill_cli.lake.delta.edge import Where
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.units import spell_duration

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
CLEANUP = "delta.enableExpiredLogCleanup"
DEFAULTS = {FILES: "interval 1 week", LOG: "interval 30 days"}

_MS = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
_TERM = re.compile(rf"\s*(\d+)\s*({'|'.join(_MS)})s?\b", re.IGNORECASE)


def interval_ms(text: str) -> int | None:
    """Milliseconds in `interval 1 week`, `7 days 12 hours`, as Delta reads them; None for another unit."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    terms = _TERM.findall(rest)
    if not terms or _TERM.sub("", rest).strip():
        return None
    return sum(int(number) * _MS[unit.lower()] for number, unit in terms)


def headroom(
    properties: Mapping[str, str], where: Where, oldest_ms: int | None, unread: Unread
) -> Headroom | None:
    """The first of the table's limits that act. oldest_ms: when the oldest commit was made that is not read.

    A file of the pinned version can be removed no earlier than that: no commit before it has taken a file out.
    """
    return Headroom.least(_limits(properties, where, oldest_ms, unread))


def _limits(
    properties: Mapping[str, str], where: Where, oldest_ms: int | None, unread: Unread
) -> Iterator[Headroom]:
    cleans = properties.get(CLEANUP, "true").lower() != "false"
    for setting, what in ((FILES, "VACUUM"), *(((LOG, "log cleanup"),) if cleans else ())):
        text = properties.get(setting, DEFAULTS[setting])
        keep_ms = interval_ms(text)
        if keep_ms is None:
            yield Headroom.unknown(f"{setting} is {text!r}", where.shown)
            continue
        by = f"{what} ({setting}, {spell_duration(keep_ms / 1000)})"
        yield Headroom.of_age(unread, oldest_ms, keep_ms, by, where.shown, _longer(where, setting, keep_ms))


def _longer(where: Where, setting: str, keep_ms: int) -> Hint:
    days = max(30, 2 * keep_ms // _MS["day"])
    return sql(f"ALTER TABLE delta.`{where.shown}` SET TBLPROPERTIES ({setting} = 'interval {days} days')")
