"""Chunks: the current rows of a range of keys, each read in a short transaction of its own, in Spark's workers.

A chunk's snapshot must show every transaction that was consumed from the log so far. A commit can be in the log
before any snapshot shows it (for an instant, or while it waits for a synchronous standby). A chunk without it
would lose its change, because that part of the log is not read again. Until it is shown, the snapshot is retaken.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_driver
from backfill_cli.cdc import bounded
from backfill_cli.cdc.ranges import KeyRange
from backfill_cli.cdc.source import Visibility
from backfill_cli.errors import RETRIED, BackfillError, Hint, LogFirst, Transient, UsageError, in_config, sql
from backfill_cli.model.position import Cursor
from backfill_cli.postgres_errors import INSTALL
from backfill_cli.postgres_holders import of_transaction, spelled
from backfill_cli.upstreams.postgres import keys
from backfill_cli.upstreams.postgres.client import SERVER, completed, of_state
from backfill_cli.upstreams.postgres.in_time import in_time, too_slow
from backfill_cli.upstreams.postgres.keys import literal
from backfill_cli.upstreams.postgres.types import SET, Column, selected
from backfill_cli.upstreams.postgres.values import as_arrow, from_adbc

if TYPE_CHECKING:
    import pyarrow as pa

VISIBLE_LIMIT_S = 10.0
"""After this long without such a snapshot the epoch is given up and retried: a standby may be away for hours."""

_WAIT_S = 0.02


@dataclass(frozen=True, slots=True)
class Chunk:
    """name: as in the config. table: its SQL name. source: what to select from. keys: of its rows, those that
    meet `condition`. limit_ms: how long a statement that reads rows may take; None for any time.
    columns: all that are in force, in order; read: those that are read, the key's among them.
    server: the one whose log is read, as `client.server_of` names it.
    may_have_more: columns may have been added after these, and the log has them.
    """

    dsn: str
    server: str
    name: str
    key: tuple[Column, ...]
    oid: int
    table: str
    source: str
    keys: KeyRange
    condition: str
    columns: tuple[Column, ...]
    read: tuple[Column, ...]
    visibility: Visibility
    may_have_more: bool = False
    limit_ms: int | None = None


def batches(chunk: Chunk) -> "Iterator[pa.RecordBatch]":
    """The chunk's rows. Runs in a worker.

    Raises Transient while its snapshot does not show what was consumed, or if the table's columns have changed,
    BadData for a value that cannot be kept exactly.
    """
    with _connected(chunk) as cursor:
        if chunk.limit_ms is None:
            _begun(cursor, chunk)
            yield from _rows(cursor, chunk, chunk.keys)
        else:
            yield from _in_time(cursor, chunk, chunk.limit_ms)


def _in_time(cursor: Any, chunk: Chunk, limit_ms: int) -> "Iterator[pa.RecordBatch]":
    read = partial(_piece, cursor, chunk, limit_ms)
    try:
        for found in bounded.pieces(chunk.keys, limit_ms, read, lambda: time.monotonic_ns() // 1_000_000):
            yield from found
    except bounded.TimedOut as exc:
        raise too_slow(chunk.name, chunk.key, exc.after, limit_ms) from exc


def _piece(
    cursor: Any, chunk: Chunk, limit_ms: int, rest: KeyRange, rows: int
) -> "tuple[Cursor | None, list[pa.RecordBatch]]":
    """A part of a chunk, in a transaction of its own; see `bounded.pieces`."""
    _begun(cursor, chunk)
    cursor.execute(f"SET LOCAL statement_timeout = {limit_ms}")
    try:
        with in_time(limit_ms):
            cursor.execute(keys.after_sql(chunk.table, chunk.source, chunk.key, rest, rows))
            end = keys.cursor_of(cursor.fetchone())
        with in_time(limit_ms):
            found = list(_rows(cursor, chunk, rest if end is None else rest._replace(up_to=end)))
    except bounded.TimedOut:
        cursor.connection.rollback()
        raise
    cursor.connection.rollback()
    return end, found


def _begun(cursor: Any, chunk: Chunk) -> None:
    """The cursor is in a transaction whose snapshot shows the job's table as it must."""
    _until_seen(cursor, chunk)
    _same_server(cursor, chunk)
    _same_table(cursor, chunk)


def _rows(cursor: Any, chunk: Chunk, keys_of: KeyRange) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    columns = ", ".join(selected(column) for column in chunk.read)
    where = f"{keys.of_rows(chunk.key, keys_of)} AND {chunk.condition}"
    cursor.execute(f"SELECT {columns} FROM {chunk.source} WHERE {where}")
    for batch in postgres_driver.batches(cursor):
        arrays = as_arrow(chunk.name, chunk.read, batch.columns, from_adbc, partial(_shown_key, chunk, batch))
        yield pa.RecordBatch.from_arrays(arrays, names=[column.name for column in chunk.read])


def _shown_key(chunk: Chunk, batch: "pa.RecordBatch", at: int) -> str:
    """The key of a row as ADBC read it, for people."""
    names = [column.name for column in chunk.read]
    return ", ".join(
        f"{name} = {_shown(batch.column(names.index(name)).slice(at, 1))}"
        for name in (column.name for column in chunk.key)
    )


def _shown(value: "pa.Array") -> str:
    """The one value of an array; an infinite date is a number there, and Python has none."""
    try:
        return str(value[0].as_py())
    except (OverflowError, ValueError):
        return f"{value.view('int32' if value.type.bit_width == 32 else 'int64')[0]} (out of range)"


@contextmanager
def _connected(chunk: Chunk) -> Iterator[Any]:
    """A cursor on a connection of its own, not yet in a transaction; what is open at the end is rolled back."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as exc:
        raise UsageError(f"the PostgreSQL upstream lacks a package: {exc}", INSTALL) from exc

    try:
        with (
            postgres_driver.connection(completed(chunk.dsn), autocommit=False) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET SESSION application_name = 'backfill'")
            cursor.execute(SET)
            cursor.fetchall()
            connection.commit()
            yield cursor
            connection.rollback()
    except BackfillError:
        raise
    except dbapi.Error as exc:
        state = str(getattr(exc, "sqlstate", None) or "").strip("\0")
        words = str(exc).rpartition("ERROR:")[2].strip()  # the server's own, without the statement
        raise of_state(state, f"table {chunk.name!r}, reading a chunk", words) from exc


def _until_seen(cursor: Any, chunk: Chunk) -> None:
    """The cursor is in a new transaction whose snapshot shows what it must.

    The lock comes before the snapshot: once ALTER TABLE has rewritten the table, an older snapshot sees no rows.
    """
    until = time.monotonic() + VISIBLE_LIMIT_S
    while True:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(f"LOCK TABLE {chunk.source} IN ACCESS SHARE MODE")
        waits = _not_seen(cursor, chunk.visibility)
        if waits is None:
            return
        if time.monotonic() > until:
            raise _waits(cursor, chunk, *waits)
        cursor.connection.rollback()
        time.sleep(_WAIT_S)


def _waits(cursor: Any, chunk: Chunk, what: str, xid: int) -> Transient:
    """The error that names who has the transaction, and what ends it."""
    cursor.execute(of_transaction(xid))
    row = cursor.fetchone()
    who, way_on = ("", Hint()) if row is None else spelled(row)
    if row is None or chunk.visibility.since is None:  # a commit that waits for a standby is not to be ended
        way_on = (
            "find the transaction that waits for a synchronous standby, or has been open for a long time: "
            + sql("SELECT pid, xact_start, state, wait_event, query FROM pg_stat_activity ORDER BY xact_start")
        )
    return Transient(f"table {chunk.name!r}: {what}" + (f": it is {who}" if who else ""), way_on)


def _not_seen(cursor: Any, visibility: Visibility) -> tuple[str, int] | None:
    """What the snapshot does not show yet, for people, and which transaction; None if it shows everything."""
    if visibility.since is not None:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        (xmin,) = cursor.fetchone()
        if xmin < visibility.since:
            return f"transaction {xmin} began before the slot was created, and has not ended", xmin
    if visibility.consumed:
        listed = ",".join(map(str, visibility.consumed))
        cursor.execute(
            f"SELECT min(x::text::bigint) FROM unnest('{{{listed}}}'::xid8[]) x "
            "WHERE NOT pg_visible_in_snapshot(x, pg_current_snapshot())"
        )
        (hidden,) = cursor.fetchone()
        if hidden is not None:
            return f"transaction {hidden} was taken from the log, but no snapshot shows it yet", hidden
    return None


def _same_server(cursor: Any, chunk: Chunk) -> None:
    """The connection leads to the server whose log is read: a DSN can name several servers, or a proxy."""
    cursor.execute(SERVER)
    (found,) = cursor.fetchone()
    if found != chunk.server:
        raise Transient(
            f"table {chunk.name!r}: the connection led to another server than the one whose log is read, or that "
            "server was restarted",
            in_config("name one server in upstream.dsn, not a proxy that distributes connections over several"),
        )


def _same_table(cursor: Any, chunk: Chunk) -> None:
    """The name still refers to the job's table, which has the columns in force; it is locked against DDL."""
    cursor.execute(f"SELECT to_regclass({literal(chunk.table)})::oid::bigint")
    (oid,) = cursor.fetchone()
    if oid != chunk.oid:
        raise Transient(
            f"table {chunk.name!r}: the name now refers to another table, or to none",
            "wait: the next commit reports the cause",
        )
    cursor.execute(
        "SELECT attname::text, atttypid::bigint, atttypmod FROM pg_attribute WHERE attnum > 0 "
        f"AND NOT attisdropped AND attgenerated = '' AND attrelid = {chunk.oid} ORDER BY attnum"
    )
    found = [tuple(row) for row in cursor.fetchall()]
    expected = [(column.name, column.type_oid, column.typmod) for column in chunk.columns]
    if (found[: len(expected)] if chunk.may_have_more else found) != expected:
        raise LogFirst(
            f"table {chunk.name!r}: its columns changed, and the log is not applied up to that",
            RETRIED,
        )
