"""The replication slot at one moment, and how far the log is: what is asked of both."""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from backfill_cli.errors import RETRIED, START_OVER, Hint, HistoryGone, StateConflict, Transient, UsageError, sql
from backfill_cli.model.limit import Limit
from backfill_cli.postgres_holders import of_transaction, spelled
from backfill_cli.upstreams.postgres.client import Connection, asking, lsn_of, lsn_text, row_of, rows_of
from backfill_cli.upstreams.postgres.options import PostgresOptions

FLUSH_TRIES, FLUSH_WAIT_S = 4, 0.005
"""A commit is on disk within a few ms; an asynchronous one (synchronous_commit = off) within 0.6 s."""

_NOW = """
SELECT (SELECT system_identifier FROM pg_control_system()), current_database(), pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text,
       CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END,
       s.plugin, s.database, s.active_pid, s.confirmed_flush_lsn::text, s.restart_lsn::text, s.wal_status,
       to_jsonb(s) ->> 'invalidation_reason'
FROM (SELECT) one LEFT JOIN pg_replication_slots s ON s.slot_name = %s
"""


_LOST = {
    None: "it held back more than the server's max_slot_wal_keep_size",
    "wal_removed": "it held back more than the server's max_slot_wal_keep_size",
    "idle_timeout": "it was not read for the server's idle_replication_slot_timeout",
    "wal_level_insufficient": "wal_level was lowered for a while",
    "rows_removed": "the primary removed rows that a standby needs to read the log: set hot_standby_feedback = on",
}
"""By the reason that the server gives for an invalidated slot; before version 17 it gives none."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """The log and the slot at one moment; positions are whole numbers.

    system: the cluster's identifier. timeline: of its log, None on a standby. insert: the log's end, always
    between two records; flushed: the end of what is on disk. confirmed: up to where the slot is acknowledged, None
    without a slot. held_bytes: of log that the slot holds back. lost: why the slot no longer holds what it should,
    empty while it does.
    """

    system: int
    timeline: str | None
    standby: bool
    database: str
    insert: int
    flushed: int
    plugin: str | None
    slot_database: str | None
    active_pid: int | None
    confirmed: int | None
    held_bytes: int
    lost: str


def now(connection: Connection, slot: str) -> SlotState:
    found = row_of(connection, "reading the log's position", _NOW, (slot,))
    system, database, standby, insert, flushed, timeline, plugin, of, pid, confirmed, restart, status, why = found
    at = lsn_of(insert)
    return SlotState(
        system=int(system),
        timeline=timeline,
        standby=standby,
        database=database,
        insert=at,
        flushed=lsn_of(flushed) if not standby else at,
        plugin=plugin,
        slot_database=of,
        active_pid=pid,
        confirmed=None if confirmed is None else lsn_of(confirmed),
        held_bytes=0 if restart is None else max(0, at - lsn_of(restart)),
        lost=_LOST.get(why, f"the server says {why!r}") if status == "lost" else "",
    )


def require_ours(seen: SlotState, slot: str, position: int) -> None:
    """The slot exists and holds all that follows a position. Raises HistoryGone, StateConflict."""
    if position > seen.insert:
        raise StateConflict(
            f"the log ends at {lsn_text(seen.insert)}, but the sink is at {lsn_text(position)}: the database was "
            "restored from an older copy",
            START_OVER,
        )
    if seen.plugin is None:
        raise HistoryGone(
            f"replication slot {slot!r} is gone, and with it the changes after {lsn_text(position)}", START_OVER
        )
    if seen.lost:
        raise HistoryGone(
            f"replication slot {slot!r} has lost changes after {lsn_text(position)}: {seen.lost}", START_OVER
        )
    require_kind(seen, slot, START_OVER)
    if seen.confirmed is not None and seen.confirmed > position:
        raise HistoryGone(
            f"replication slot {slot!r} was recreated, or advanced by others to {lsn_text(seen.confirmed)}; "
            f"the job needs the changes after {lsn_text(position)}",
            START_OVER,
        )


def require_kind(seen: SlotState, slot: str, way_on: Hint | str) -> None:
    if seen.plugin != "pgoutput" or seen.slot_database != seen.database:
        raise StateConflict(
            f"replication slot {slot!r} is not this job's: plugin {seen.plugin}, database {seen.slot_database!r}",
            way_on,
        )


def is_bounded(connection: Connection) -> bool:
    """Whether the server invalidates a slot that holds back more log than some size."""
    query = "SELECT current_setting('max_slot_wal_keep_size') <> '-1'"
    return bool(row_of(connection, "reading its settings", query)[0])


def limits(connection: Connection, options: PostgresOptions) -> list[str]:
    """Limits on how long a slot is kept that a user may not expect, one sentence each."""
    query = "SELECT current_setting('idle_replication_slot_timeout', true)"
    (idle,) = row_of(connection, "reading its settings", query)
    found = []
    if idle not in (None, "0"):
        found.append(
            f"the server invalidates slots that are not read for idle_replication_slot_timeout ({idle}): a job "
            "stopped longer needs a new snapshot"
        )
    if options.max_retained is not None and not is_bounded(connection):
        size = f"'{max(1, options.max_retained >> 20)}MB'"
        found.append(
            "upstream.max_retained is enforced by a runner only; the server itself enforces "
            f"max_slot_wal_keep_size: ALTER SYSTEM SET max_slot_wal_keep_size = {size}; SELECT pg_reload_conf()"
        )
    return found


def require_none(seen: SlotState, slot: str) -> None:
    """No slot has this name: one that this job did not create may hold changes for another reader."""
    if seen.plugin is not None:
        raise UsageError(
            f"replication slot {slot!r} exists, but this job did not create it: another reader may need it",
            "name another slot; if the job was started from another folder, its catalog is there (see "
            "--catalog); only if nothing needs the slot: " + sql(f"SELECT pg_drop_replication_slot('{slot}')"),
        )


def advance(connection: Connection, slot: str, lsn: int) -> None:
    """The server may discard the log before `lsn`."""
    with asking("acknowledging"):
        connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (slot, lsn_text(lsn)))


@contextmanager
def copied(connection: Connection, slot: str, of_copy: bool = False) -> Iterator[str]:
    """The name of a temporary copy, which holds what the slot holds now until the block or the connection ends.

    Only this connection can read from it; others can copy it. of_copy: whether the slot is such a copy itself.
    Raises UsageError if the server has no slot left, Transient for a copy that is gone.
    """
    import psycopg

    name = f"backfill_copy_{secrets.token_hex(8)}"
    with asking(f"copying the slot {slot!r}"):
        try:
            connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s, true)", (slot, name))
        except psycopg.errors.UndefinedObject as exc:
            if of_copy:
                raise copy_gone() from exc
            raise
        except psycopg.errors.ConfigurationLimitExceeded as exc:
            raise UsageError(
                "all replication slots are in use: two more are needed to read the log beside the running job",
                "drop one that is not needed (SELECT slot_name, active FROM pg_replication_slots), raise "
                "max_replication_slots, or stop the job's runner first",
            ) from exc
    try:
        yield name
    finally:
        with suppress(psycopg.Error):  # a lost connection has dropped it
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def ends_with_us(connection: Connection) -> None:
    """The server soon stops reading the log for this connection, and frees its slot, if this process ends.

    Before version 14, and where its system does not tell it, it first decodes all that was asked for.
    """
    import psycopg

    with suppress(psycopg.Error):
        connection.execute("SET client_connection_check_interval = '500ms'")


def copy_gone() -> Transient:
    """The error for a copy whose connection was lost: the job's own slot is as it was."""
    return Transient("the connection that held a copy of the job's slot was lost, and the copy with it", RETRIED)


def past_now(connection: Connection, slot: str) -> int:
    """A position at or after every transaction that any snapshot taken so far shows, on disk: our own empty
    transaction is committed after it. It waits for no standby.
    """
    seen = now(connection, slot)
    if seen.standby:
        return seen.insert  # what it shows is what it has replayed
    with asking("writing a message to the log"), connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        connection.execute("SELECT pg_logical_emit_message(true, 'backfill', '')")
    return seen.insert


def settled(connection: Connection, seen: SlotState, before: Sequence[int]) -> int:
    """The newest known position between two records that is on disk: the log's end, as soon as it is flushed.

    before: earlier such positions, not all of them on disk when they were seen. While others write, the end of
    what is on disk may lie within a record, and the log's end is always ahead of it.
    """
    flushed, end = seen.flushed, seen.insert
    if end > flushed and end % LEAST_PAGE in HEADERS:
        end = record_end(end, *row_of(connection, "reading the log's sizes", _SIZES))
    for _ in range(FLUSH_TRIES):
        if end <= flushed:
            return end
        time.sleep(FLUSH_WAIT_S)
        query = "SELECT pg_current_wal_flush_lsn()::text"
        flushed = lsn_of(row_of(connection, "reading the log's position", query)[0])
    return max((place for place in before if place <= flushed), default=0)


HEADERS = SHORT, LONG = 24, 40
"""Bytes at the beginning of a page of the log, and of a segment."""

LEAST_PAGE = 1024
_SIZES = """
SELECT current_setting('wal_block_size')::int, setting::bigint FROM pg_settings WHERE name = 'wal_segment_size'
"""


def record_end(insert: int, page: int, segment: int) -> int:
    """Where the log's last record ends. If it fills its page, the server shows the place behind the next page's
    header, which is on disk only once another record is."""
    begin = insert - insert % page
    header = SHORT if begin % segment else LONG
    return begin if insert == begin + header else insert


def hidden(connection: Connection, xids: Sequence[int], known: Sequence[int]) -> tuple[int, ...]:
    """The transactions taken from the log that a snapshot taken now does not show yet, as 64-bit ids.

    xids: 32-bit ids, as the log has them; known: 64-bit ids, from before.
    """
    if not xids and not known:
        return ()
    query = """
        WITH s AS (SELECT n AS snapshot, pg_snapshot_xmax(n)::text::bigint AS top FROM pg_current_snapshot() n)
        SELECT x FROM s, LATERAL (
            SELECT top + ((((xid - top) %% 4294967296) + 6442450944) %% 4294967296 - 2147483648) AS x
            FROM unnest(%s::bigint[]) xid UNION SELECT unnest(%s::bigint[])) ids
        WHERE NOT pg_visible_in_snapshot(x::text::xid8, snapshot) ORDER BY x"""
    given = (list(xids), list(known))
    return tuple(x for (x,) in rows_of(connection, "checking which transactions are visible", query, given))


def oldest_transaction(connection: Connection) -> int:
    """The id below which every transaction has ended."""
    query = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    return int(row_of(connection, "checking which transactions are open", query)[0])


def holder(connection: Connection, xid: int) -> Limit:
    """Who has this transaction, and what ends it."""
    found = connection.execute(of_transaction(xid).encode()).fetchone()
    if found is None:
        return Limit(f"transaction {xid}")
    who, end = spelled(found)
    return Limit(who, hint=end)


def transaction_now(connection: Any) -> int:
    """An id above that of every open transaction: our own; on a standby, its snapshot's xmax.

    Not a snapshot's xmax on a primary: it is one past the transactions that ended, and one that waits for a
    standby may be above it. A message is written because a transaction without one is not flushed at its end.
    """
    query = """
        SELECT CASE WHEN pg_is_in_recovery() THEN pg_snapshot_xmax(pg_current_snapshot())
               ELSE pg_current_xact_id() END::text::bigint,
               CASE WHEN NOT pg_is_in_recovery() THEN pg_logical_emit_message(true, 'backfill', '') END"""
    with asking("checking which transactions are open"), connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        return int(connection.execute(query).fetchone()[0])
