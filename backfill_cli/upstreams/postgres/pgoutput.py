"""The messages of pgoutput, protocol version 1: what a slot's log is made of, and how a slot is peeked at.

A transaction is a B, the changes in order (I U D T, each after an R that describes the table's columns, sent again
whenever they may have changed), and a C. Values are the UTF-8 of their text, as the server's output functions
wrote it: to decode them would cost half as much again as parsing the message.
"""

import struct
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from backfill_cli.cdc.net import UNSENT, Row
from backfill_cli.cdc.window import LogInUse
from backfill_cli.errors import RETRIED, Transient
from backfill_cli.upstreams.postgres.client import Connection, asking, lsn_text, row_of
from backfill_cli.upstreams.postgres.types import quoted

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE = b"BCRIUDT"
"""A message's first byte. O, Y and M describe origins, types and messages, and change nothing."""

NEW, FULL_OLD = b"NO"
"""The byte before a new row, and before a whole old row; K comes before the columns of an old row's identity."""

_FULL = ord("f")

_2000_MS = 946_684_800_000
_BEGIN = struct.Struct(">xQqI")
_COMMIT = struct.Struct(">xxQQ")
_TYPE = struct.Struct(">II")
_length = struct.Struct(">I").unpack_from


@dataclass(frozen=True, slots=True)
class Begin:
    """commit_lsn: where the transaction's commit record begins. ms: its time, since 1970."""

    commit_lsn: int
    ms: int
    xid: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the changes after this message have it. columns: (name, type, typmod). identity: names of those
    that an old row has. full: whether by REPLICA IDENTITY FULL, and not by an index."""

    oid: int
    columns: tuple[tuple[str, int, int], ...]
    identity: frozenset[str]
    full: bool = False


def begin(message: bytes) -> Begin:
    lsn, since_2000_us, xid = _BEGIN.unpack_from(message)
    return Begin(lsn, since_2000_us // 1000 + _2000_MS, xid)


def end_lsn(message: bytes) -> int:
    """Where the commit record of a C ends."""
    end: int = _COMMIT.unpack_from(message)[1]
    return end


def commit_lsn(message: bytes) -> int:
    """Where the commit record of a C begins, as its B has it."""
    start: int = _COMMIT.unpack_from(message)[0]
    return start


def relation(message: bytes) -> Relation:
    at = message.index(0, message.index(0, 5) + 1) + 2
    full = message[at - 1] == _FULL
    count = int.from_bytes(message[at : at + 2])
    at += 2
    columns, identity = [], []
    for _ in range(count):
        end = message.index(0, at + 1)
        name = message[at + 1 : end].decode()
        if message[at] & 1:
            identity.append(name)
        type_oid, typmod = _TYPE.unpack_from(message, end + 1)
        columns.append((name, type_oid, typmod - (1 << 32) if typmod >> 31 else typmod))
        at = end + 9
    return Relation(int.from_bytes(message[1:5]), tuple(columns), frozenset(identity), full)


def truncated(message: bytes) -> list[bytes]:
    """The oids of the tables that a T empties, in the form of a change's bytes 1 to 4."""
    return [message[at : at + 4] for at in range(6, len(message), 4)]


def row_at(message: bytes, at: int) -> tuple[Row, int, bool]:
    """The row that begins there, where it ends, and whether a value of it is UNSENT."""
    row: Row = []
    gaps = False
    count = message[at] << 8 | message[at + 1]
    at += 2
    for _ in range(count):
        kind = message[at]
        if kind == 116:  # t: text
            start = at + 5
            at = start + _length(message, at + 1)[0]
            row.append(message[start:at])
        else:
            at += 1
            if kind == 110:  # n: NULL
                row.append(None)
            elif kind == 117:  # u: unchanged
                row.append(UNSENT)
                gaps = True
            else:
                raise ValueError(f"pgoutput: protocol version 1 has no value of kind {kind}, at byte {at - 1}")
    return row, at, gaps


Block = list[tuple[bytes]]

_PEEK = (
    "SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes"
    "(%s, %s::pg_lsn, %s::int, 'proto_version', '1', 'publication_names', %s)"
)

BLOCK_ROWS, BLOCK_BYTES = 10_000, 8 << 20
"""The most rows fetched at once, and about how many bytes, estimated from the rows before."""


def require_flushed(connection: Connection, up_to: int) -> None:
    """The log is flushed up to there: the server decodes no more than that, and would miss transactions."""
    end = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END"
    query = f"SELECT {end} >= %s::pg_lsn"
    if not row_of(connection, "checking how far its log is flushed", query, (lsn_text(up_to),))[0]:
        raise Transient(
            f"the log is not yet flushed up to {lsn_text(up_to)}", "wait until the server has written it"
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as a connection reads it."""

    connection: Connection
    name: str
    publication: str

    def first_ms(self, up_to: int) -> int | None:
        """When the first transaction committed, in ms since 1970; None if there is none up to `up_to`."""
        with asking("peeking at the log"):
            row = self.connection.execute(
                f"{_PEEK} LIMIT 1".encode(), self._given(up_to, 1), binary=True
            ).fetchone()
        return None if row is None else begin(row[0]).ms

    def blocks(self, up_to: int, messages: int | None) -> Generator[tuple[Block, int], None, None]:
        """The messages in order, up to the last transaction that begins to commit before `up_to`; with each block
        its size in bytes. messages: how many the server decodes, None for all. Raises LogInUse before the first
        block.
        """
        import psycopg

        doing = f"reading the slot {self.name!r}"
        with asking(doing), self.connection.cursor("backfill_log") as cursor:
            try:
                cursor.execute(_PEEK, self._given(up_to, messages), binary=True)
                many = min(100, BLOCK_ROWS)
                while block := cursor.fetchmany(many):
                    size = sum(len(message) for (message,) in block)
                    many = max(1, min(BLOCK_ROWS, BLOCK_BYTES * len(block) // size))
                    yield block, size
            except psycopg.errors.ObjectInUse as exc:
                raise LogInUse(
                    f"PostgreSQL, {doing}: {exc.diag.message_primary} (SQLSTATE {exc.sqlstate})",
                    RETRIED,
                ) from exc

    def _given(self, up_to: int, messages: int | None) -> tuple[Any, ...]:
        return self.name, lsn_text(up_to), messages, quoted(self.publication)
