"""The messages of pgoutput, protocol version 1: what a slot's log is made of.

A transaction is a B, the changes in order (I U D T, each after an R that describes the table's columns, sent again
whenever they may have changed), and a C. Values are the UTF-8 of their text, as the server's output functions
wrote it: to decode them would cost half as much again as parsing the message.
"""

import struct
from dataclasses import dataclass

from backfill_cli.cdc.net import UNSENT, Row

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
