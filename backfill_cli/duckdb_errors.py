"""Classifies DuckDB's errors by their text, for the catalog's file and the sink's.

In DuckDB 2.0 only the text distinguishes a held lock, a full disk and a damaged file.
"""

import re
from enum import Enum, auto

import duckdb


class ErrorKind(Enum):
    """What an error is about."""

    HELD = auto()
    OPEN_HERE = auto()
    NO_ROOM = auto()
    NEWER = auto()
    DAMAGED = auto()
    FOREIGN = auto()
    REFUSED = auto()
    MEMORY = auto()
    ROWS = auto()
    OTHER = auto()


_SIGNS = {
    ErrorKind.HELD: ("could not set lock",),
    ErrorKind.OPEN_HERE: ("different configuration", "unique file handle conflict"),
    ErrorKind.NO_ROOM: (
        "no space left",
        "file too large",
        "disk quota",
        "could not write",
        "failed to offload",
        "could not allocate block",
    ),
    ErrorKind.NEWER: ("storage version", "newer version of duckdb", "version number"),
    ErrorKind.DAMAGED: ("corrupt", "checksum", "replaying wal", "database has been invalidated", "deserialize"),
    ErrorKind.FOREIGN: ("not a valid duckdb database",),
    ErrorKind.REFUSED: (
        "read-only",
        "permission denied",
        "no such file or directory",
        "is a directory",
        "not a directory",
        "cannot open",
    ),
}
"""Texts that such an error contains, in lower case; the first match counts."""


def classify(exc: duckdb.Error) -> ErrorKind:
    """What an error is about. Rows, SQL and quoted names can contain any word, so they are not searched."""
    if isinstance(exc, duckdb.DataError | duckdb.IntegrityError):
        return ErrorKind.ROWS
    if isinstance(exc, duckdb.ProgrammingError):
        return ErrorKind.OTHER
    low = re.sub(r'"[^"]*"', "", text(exc)).lower()
    found = next((one for one, signs in _SIGNS.items() if any(sign in low for sign in signs)), ErrorKind.OTHER)
    return ErrorKind.MEMORY if found is ErrorKind.OTHER and isinstance(exc, duckdb.OutOfMemoryException) else found


def text(exc: duckdb.Error) -> str:
    """The text of an error, without the statement that it quotes."""
    return str(exc).split("\n\nLINE ")[0]


def holder(exc: duckdb.Error) -> str | None:
    """The program that holds the file, as DuckDB names it; None for one that is ending.

    Linux takes a process's memory, and with it its name, before its locks: DuckDB then calls it `.`.
    """
    found = text(exc).partition("Conflicting lock is held in ")[2].partition(". See also")[0]
    return None if found.startswith(". (PID ") else found or "another program"
