"""The request to take a window of the log, and its result: values that `model.codec` writes as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill_cli.contracts import TakenTable
from backfill_cli.upstreams.postgres.types import Column


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table whose changes are taken.

    name: as in the config. oid: a partitioned table's own. columns: in force, in the table's order. key: names of
    its columns.
    """

    name: str
    oid: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """For the transactions whose commit ends in (after, up_to], positions in the log as whole numbers.

    limit: the window ends after the transaction that reaches this many changes, or this many messages.
    copies: whether a copy of the slot is read, which belongs to another connection.
    widens: whether the window may continue past added columns if it must; not if rows are read beside it.
    covered: by the config's name of a table, an SQL predicate over its key's columns k0 … kn: only changes whose
    key satisfies it are written; all, if it is missing or None. folder: where files go. attempt: part of their
    names.
    """

    dsn: str
    slot: str
    publication: str
    after: int
    up_to: int
    tables: tuple[LogTable, ...]
    folder: str
    attempt: str
    limit: int | None = None
    covered: Mapping[str, str | None] = field(default_factory=dict)
    widens: bool = True
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """up_to: the window's real end: the request's, or the end of the last transaction before what ended it.

    from_ms, up_to_ms: when its first and last transaction committed, ms since 1970. transactions, xids (32-bit):
    of those with changes of our tables. changed: the columns that a table has from the window's first transaction
    on; if more changed than additions at the end, neither that transaction nor any later one was taken.
    unsure: tables with updates or deletes that the server allows while no index keeps the key unique, because
    old rows are identified otherwise.
    """

    up_to: int
    up_to_ms: int | None
    from_ms: int | None
    transactions: int
    xids: tuple[int, ...]
    tables: dict[str, TakenTable]
    changed: dict[str, tuple[Column, ...]]
    unsure: tuple[str, ...] = ()
