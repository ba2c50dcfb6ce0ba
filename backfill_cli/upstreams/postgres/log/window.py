"""What a window of the log is asked for, and what taking it gave: values, as JSON by `model.codec`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill_cli.contracts import TakenTable
from backfill_cli.upstreams.postgres.types import Column


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table whose changes are taken.

    name: the config's. oid: a partitioned table's own. columns: in force, in the table's order. key: names of
    some.
    """

    name: str
    oid: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """The transactions whose commit ends in (after, up_to], positions in the log as whole numbers.

    limit: the window ends after a transaction once so many changes were taken, or so many messages came.
    widens: whether it may go on past columns that were added, where it must; not where rows are read beside it.
    covered: by the config's name of a table, an SQL predicate over its key's columns k0 … kn: only changes whose
    key satisfies it are written; a table that is not there, or None: all. folder: where files go, attempt: part
    of their names.
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


@dataclass(frozen=True, slots=True)
class Taken:
    """up_to: the window's real end: the request's, or the end of the last transaction before what ended it.

    from_ms, up_to_ms: when its first and last transaction committed, ms since 1970. transactions, xids (of 32
    bits): of those with changes of our tables. changed: the columns that a table has from the window's first
    transaction on; where they are more than columns added at the end, neither it nor any after it was taken.
    """

    up_to: int
    up_to_ms: int | None
    from_ms: int | None
    transactions: int
    xids: tuple[int, ...]
    tables: dict[str, TakenTable]
    changed: dict[str, tuple[Column, ...]]
