"""Tables of a database and the log of their transactions, with writers that wait for one another's rows.

A transaction stands in the log before snapshots show it, and not in that order; the log's end is not flushed at
once. Keys have an order of their own, so that whoever compares cursors elsewhere fails.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin

LOG = "wal"
TABLES = ("authors", "books", "copies")
KEYS = tuple(f"{letter}{digit}" for letter in "abcdef" for digit in range(6))

Row = tuple[int, int | None]
"""A small value and a large one. The log leaves out a large one that did not change: None."""
Op = tuple[str, str, str, Row]
"""('put' | 'patch' | 'drop' | 'empty', table, key, row)"""


def rank(key: str) -> str:
    """Where a key stands: not where its text does."""
    return key[::-1]


def cursor_at(key: str) -> Cursor:
    return json.dumps([key])


def key_at(cursor: Cursor) -> str:
    (key,) = json.loads(str(cursor))
    return str(key)


def lsn_of(position: Position) -> int:
    return int(position.get(LOG) or 0)


@dataclass
class Transaction:
    """One that committed. seen: snapshots show it. alters: the table whose columns it changed."""

    lsn: int
    ms: int
    ops: list[Op]
    alters: str | None = None
    seen: bool = False

    def touches(self, table: str) -> bool:
        return self.alters == table or any(op[1] == table for op in self.ops)

    def locks(self, table: str) -> bool:
        return self.alters == table or any(op[:2] == ("empty", table) for op in self.ops)


@dataclass
class Tables:
    """The database. shown: what snapshots show; head: what writers see, after waiting for who holds a row."""

    random: Random
    now_ms: Callable[[], int]
    shown: dict[str, dict[str, Row]] = field(default_factory=lambda: {table: {} for table in TABLES})
    head: dict[str, dict[str, Row]] = field(default_factory=lambda: {table: {} for table in TABLES})
    columns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    log: list[Transaction] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    unseen: list[Transaction] = field(default_factory=list)
    altered: list[Transaction] = field(default_factory=list)
    end: int = 100
    flushed: int = 100
    gone: int = 0
    splits: tuple[Split, ...] = ()
    split_of: dict[tuple[str, str], str] = field(default_factory=dict)
    acknowledged: Position = field(default_factory=Position)
    met: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    calm: bool = False
    altering: float = 0.02  # how often a transaction changes a table's columns

    # -- writers -------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Rows from long ago, and some of just before the job begins."""
        for _ in range(self.random.randrange(0, 9)):
            self._commit([self._put(table, self.random.choice(KEYS)) for table in TABLES for _ in range(2)])
        for transaction in self.log:
            self.show(transaction)
        for _ in range(self.random.randrange(0, 4)):
            self.change()

    def change(self) -> None:
        """Time passes, and mostly somebody commits a transaction: over several tables, rows more than once."""
        self.pass_time()
        if self.calm:
            return
        if self.random.random() < self.altering:
            self._commit([], alters=self.random.choice(TABLES))
        elif self.random.random() < 0.9:
            self._commit([op for _ in range(self.random.randrange(1, 5)) for op in self._ops()])

    def pass_time(self) -> None:
        """Snapshots show more, in any order; the log is flushed; it grows by what is no transaction of ours."""
        for transaction in list(self.unseen):
            if self.random.random() < 0.3:
                self.show(transaction)
        if self.random.random() < 0.1:
            self.end += 1
        if self.random.random() < 0.7:
            self.flushed = self.end

    def _put(self, table: str, key: str) -> Op:
        row = (self.random.randrange(10**6), self.random.randrange(10**6))
        self._wait(table, key)
        self.head[table][key] = row
        return ("put", table, key, row)

    def _drop(self, table: str, key: str) -> Op:
        self._wait(table, key)
        del self.head[table][key]
        return ("drop", table, key, (0, 0))

    def _ops(self) -> Iterator[Op]:
        table = self.random.choice(TABLES)
        there, kind = sorted(self.head[table]), self.random.random()
        if kind < 0.02:
            for other in [one for one in self.unseen if one.touches(table)]:
                self.show(other)
            self.head[table].clear()
            yield ("empty", table, "", (0, 0))
        elif kind < 0.35 or not there:
            yield self._put(table, self.random.choice(KEYS))
        elif kind < 0.6:
            key = self.random.choice(there)
            self._wait(table, key)
            row = (self.random.randrange(10**6), self.head[table][key][1])
            self.head[table][key] = row
            yield ("patch", table, key, row)
        elif kind < 0.75:
            yield self._drop(table, self.random.choice(there))
        else:  # a key changes, to either side of wherever a read is
            old, new = self.random.choice(there), self.random.choice(KEYS)
            self.met["key changed"] += 1
            yield self._drop(table, old)
            yield self._put(table, new)

    def _wait(self, table: str, key: str) -> None:
        """Who writes a row waits for the one that holds it: until snapshots show that."""
        for other in tuple(self.unseen):
            if other.locks(table) or any(op[1:3] == (table, key) for op in other.ops):
                self.show(other)

    def _commit(self, ops: list[Op], alters: str | None = None) -> None:
        for other in [one for one in self.unseen if alters and one.touches(alters)]:
            self.show(other)
        self.end += self.random.randrange(1, 4)
        self.log.append(Transaction(self.end, self.now_ms(), ops, alters))
        self.ends.append(self.end)
        self.unseen.append(self.log[-1])
        if alters:
            self.altered.append(self.log[-1])
        if self.random.random() < 0.6:
            self.show(self.log[-1])

    def show(self, transaction: Transaction) -> None:
        if transaction.seen:
            return
        transaction.seen = True
        self.unseen.remove(transaction)
        if transaction.alters:
            self.columns[transaction.alters] += 1
        for kind, table, key, row in transaction.ops:
            if kind == "empty":
                self.shown[table].clear()
            elif kind == "drop":
                self.shown[table].pop(key, None)
            else:
                self.shown[table][key] = row

    # -- for the job's begin -------------------------------------------------------------------------------------

    def pin(self) -> Pin:
        """Splits of any sizes; what the catalog says of their rows is old, or nothing."""
        splits = []
        for table in TABLES:
            cuts = sorted(self.random.sample(KEYS, self.random.choice((0, 0, 1, 3))), key=rank)
            for number, ends in enumerate(pairwise([None, *cuts, None])):
                rows = self.random.choice((None, 0, 1, 5, 20, 200))
                splits.append(Split(table, f"s{number}", rows, 1000))
                low, high = (rank(end) if end else "" for end in ends)
                held = [key for key in KEYS if low < rank(key) <= (high or "~")]
                self.split_of |= {(table, key): f"s{number}" for key in held}
        self.splits = tuple(splits)
        schema = {table: str(self.columns_at(table, self.end)) for table in TABLES}
        return Pin(Position.of({LOG: self.end}), None, None, self.splits, schema)

    def columns_at(self, table: str, lsn: int) -> int:
        """How often a table's columns had changed by then."""
        return sum(one.alters == table and one.lsn <= lsn for one in self.altered)

    def between(self, after: int, up_to: int) -> list[Transaction]:
        return self.log[bisect_right(self.ends, after) : bisect_right(self.ends, up_to)]
