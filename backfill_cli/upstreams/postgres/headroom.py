"""How long a server keeps the log that a job has not read: by its slot's limits, and by how fast it grows."""

from collections.abc import Iterator
from dataclasses import dataclass

from backfill_cli.errors import Hint, in_config, sql
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.units import spell_duration, spell_size
from backfill_cli.upstreams.postgres.client import glance, lsn_of, row_of
from backfill_cli.upstreams.postgres.options import PostgresOptions

MEANT_S, LATELY_S = 60.0, 600.0
"""A rate over less says nothing of the next hour; over more, nothing of now."""

_NOW = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
       extract(epoch FROM clock_timestamp())::float8, pg_size_bytes(current_setting('max_slot_wal_keep_size')),
       s.restart_lsn::text, s.safe_wal_size, s.wal_status,
       (SELECT setting::float8 FROM pg_settings WHERE name = 'idle_replication_slot_timeout'),
       extract(epoch FROM clock_timestamp() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::float8,
       to_regclass('pg_catalog.pg_stat_wal') IS NOT NULL
FROM (SELECT) one LEFT JOIN pg_replication_slots s ON s.slot_name = %s
"""

_AVERAGE = """
SELECT (wal_bytes / nullif(extract(epoch FROM clock_timestamp() - stats_reset), 0))::float8 FROM pg_stat_wal
"""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """What a server said of a slot. keep_bytes: max_slot_wal_keep_size, negative for no limit.

    held_bytes: of log that the slot holds back, 0 without a slot. safe_bytes: that may be written before the slot
    can be lost; None without a slot. idle_s: the server's time limit for a slot that nobody reads, None for none;
    unread_s: for how long nobody has. at_s, log_end: the server's clock, and where the log ended. lost: it is.
    """

    log_end: int
    at_s: float
    keep_bytes: int
    held_bytes: int = 0
    safe_bytes: int | None = None
    idle_s: float | None = None
    unread_s: float = 0.0
    lost: bool = False


class LogGrowth:
    """How fast the log has grown lately, by what was seen of it."""

    def __init__(self) -> None:
        self._seen: tuple[tuple[float, int], ...] = ()

    def per_s(self, at_s: float, log_end: int, average: float | None) -> float | None:
        """Bytes per second with this observation: lately or on average, whichever is more; None if not known."""
        self._seen = (*(one for one in self._seen if 0 <= at_s - one[0] <= LATELY_S), (at_s, log_end))
        begun_s, begin = self._seen[0]
        rates = [] if average is None else [average]
        if at_s - begun_s >= MEANT_S:
            rates.append(max(0, log_end - begin) / (at_s - begun_s))
        return max(rates, default=None)


class SlotHeadroom:
    """Asks one server about one slot; see contracts.Extras."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options, self._growth = options, LogGrowth()

    def __call__(self, unread: Unread) -> Headroom | None:
        slot = self._options.slot
        with glance(self._options.dsn, "asking how long the slot keeps the log") as connection:
            found = row_of(connection, "asking how long the slot keeps the log", _NOW, (slot,))
            end, at_s, keep, restart, safe, status, idle_s, unread_s, averages = found
            average = row_of(connection, "reading how fast its log grows", _AVERAGE)[0] if averages else None
        log_end = lsn_of(end)
        seen = SlotLimits(
            log_end=log_end,
            at_s=at_s,
            keep_bytes=keep,
            held_bytes=0 if restart is None else max(0, log_end - lsn_of(restart)),
            safe_bytes=safe,
            idle_s=idle_s or None,
            unread_s=unread_s or 0.0,
            lost=status == "lost",
        )
        return headroom(seen, self._growth.per_s(at_s, log_end, average), slot, self._options.max_retained, unread)


def headroom(
    seen: SlotLimits, per_s: float | None, slot: str, max_retained: int | None, unread: Unread
) -> Headroom:
    """The first of the limits that act. per_s: bytes of log per second. max_retained: the option."""
    found = Headroom.least(_limits(seen, per_s, slot, max_retained, unread))
    return found or Headroom.unbounded(
        "the server keeps the log until its disk is full (no max_slot_wal_keep_size)"
    )


def _limits(
    seen: SlotLimits, per_s: float | None, slot: str, max_retained: int | None, unread: Unread
) -> Iterator[Headroom]:
    of = f"the log of replication slot {slot!r}"
    if seen.lost and seen.keep_bytes < 0:
        yield Headroom.of_room(unread, 0, per_s, "the server, which has invalidated the slot", of)
    elif seen.keep_bytes >= 0:
        room = 0 if seen.lost else seen.keep_bytes if seen.safe_bytes is None else seen.safe_bytes
        by = f"max_slot_wal_keep_size ({spell_size(seen.keep_bytes)})"
        yield Headroom.of_room(unread, room, per_s, by, of, _larger(seen.keep_bytes))
    if max_retained is not None:
        by, more = f"upstream.max_retained ({spell_size(max_retained)})", in_config("raise upstream.max_retained")
        yield Headroom.of_room(unread, max_retained - seen.held_bytes, per_s, by, of, more)
    if seen.idle_s is not None:
        by = f"idle_replication_slot_timeout ({spell_duration(seen.idle_s)})"
        yield Headroom.of_age(
            unread, unread.now_ms - int(seen.unread_s * 1000), int(seen.idle_s * 1000), by, of, _for_ever()
        )


def _larger(keep_bytes: int) -> Hint:
    size = f"{max(2, (keep_bytes * 2) >> 20)}MB"
    return sql(f"ALTER SYSTEM SET max_slot_wal_keep_size = '{size}'", "SELECT pg_reload_conf()")


def _for_ever() -> Hint:
    return sql("ALTER SYSTEM SET idle_replication_slot_timeout = 0", "SELECT pg_reload_conf()")
