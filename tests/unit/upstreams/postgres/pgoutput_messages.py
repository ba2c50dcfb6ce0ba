"""Messages of pgoutput as the protocol's description has them, written by hand."""

import struct
from collections.abc import Sequence

Value = str | None


class Unsent:
    """Where an unchanged value is not sent."""


UNSENT = Unsent()


def tuple_data(values: Sequence[str | Unsent | None]) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, Unsent):
            parts.append(b"u")
        else:
            text = value.encode()
            parts.append(b"t" + struct.pack(">i", len(text)) + text)
    return b"".join(parts)


def begin(commit_lsn: int, time_us: int, xid: int) -> bytes:
    return b"B" + struct.pack(">QqI", commit_lsn, time_us, xid)


def commit(commit_lsn: int, end_lsn: int, time_us: int) -> bytes:
    return b"C" + struct.pack(">bQQq", 0, commit_lsn, end_lsn, time_us)


def relation(oid: int, identity: str, columns: Sequence[tuple[int, str, int, int]]) -> bytes:
    """columns: (flags, name, type, typmod)."""
    head = (
        b"R" + struct.pack(">I", oid) + b"public\0orders\0" + identity.encode() + struct.pack(">H", len(columns))
    )
    each = (
        struct.pack(">b", flags) + name.encode() + b"\0" + struct.pack(">Ii", *kind)
        for flags, name, *kind in columns
    )
    return head + b"".join(each)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(f">Ib{len(oids)}I", len(oids), 1, *oids)
