"""A window of the slot's log becomes files of net changes, see `cdc.window`. Runs in a worker, without Spark.

The slot is peeked at, never advanced: taking a window again gives the same.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from backfill_cli.cdc import window
from backfill_cli.cdc.files import NetTable, ValueLost, spelled
from backfill_cli.cdc.net import LOST, Entry, Key, Row
from backfill_cli.cdc.window import Again, Bounds, TakenWindow, WindowRequest
from backfill_cli.errors import START_OVER, BadData, Hint, sql
from backfill_cli.model.skipped import Skipped
from backfill_cli.upstreams.postgres import pgoutput as log
from backfill_cli.upstreams.postgres import slot
from backfill_cli.upstreams.postgres.client import asking, connected, row_of, rows_of
from backfill_cli.upstreams.postgres.keys import literal
from backfill_cli.upstreams.postgres.types import DESCRIBED, Column, arrow_type, by_table, quoted, spark_type
from backfill_cli.upstreams.postgres.values import as_arrow, from_text

if TYPE_CHECKING:
    import pyarrow as pa

MORE_MESSAGES = 1_000
"""Beyond the limit: what a window that begins before `after` must skip, and each transaction's B and C."""

BATCH_KEYS = 20_000
"""How many keys the database compares at once."""

_ABOVE = """
SELECT t.oid::bigint, a.relid::text FROM unnest(%s::oid[]) t (oid), pg_partition_ancestors(t.oid) a
WHERE a.relid = ANY(%s::oid[]) AND a.relid <> t.oid
AND EXISTS (SELECT FROM pg_publication WHERE pubname = %s AND pubviaroot) LIMIT 1
"""
"""Published tables of which others are partitions, and are published as them."""

_ROWS = frozenset({log.INSERT, log.UPDATE, log.DELETE})


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """A window of a slot. covered, in the window's request: an SQL predicate over a table's key columns k0 … kn.

    copies: whether a copy of the slot is read, which belongs to another connection.
    """

    window: WindowRequest[Column]
    dsn: str
    slot: str
    publication: str
    copies: bool = False


def take(request: TakeRequest) -> TakenWindow[Column]:
    """The window's changes are files in the request's folder.

    Raises BadData for changes that cannot be applied exactly; database errors are raised as BackfillErrors.
    """
    with (
        asking(f"reading the slot {request.slot!r}"),
        connected(request.dsn) as connection,
        slot.copied(connection, request.slot, of_copy=True)
        if request.copies
        else nullcontext(request.slot) as read,
    ):
        slot.ends_with_us(connection)
        log.require_flushed(connection, request.window.up_to)
        source = log.Slot(connection, read, request.publication)
        return window.take(request.window, lambda asked, bounds: _Window(source, asked, bounds))


class _Window(window.Window[bytes, Column]):
    """One pass over the window."""

    def __init__(self, source: log.Slot, request: WindowRequest[Column], bounds: Bounds) -> None:
        super().__init__(request, bounds, {table.id.to_bytes(4): SlotTable(table) for table in request.tables})
        self._source, self._connection = source, source.connection
        self._ready: dict[
            bytes, SlotTable | None
        ] = {}  # with the log's columns at this point; None: not a table of the job
        self._relations: dict[bytes, log.Relation] = {}
        self._transaction: log.Begin | None = None  # None: it is before the window

    def taken(self) -> TakenWindow[Column]:
        with self._connection.transaction():
            return super().taken()

    def check(self) -> None:
        """No change was published as that of a table that one of ours is a partition of. Raises BadData."""
        others = [int.from_bytes(oid) for oid, net in self._ready.items() if net is None]
        if not others:
            return
        names = {table.id: table.name for table in self.request.tables}
        given = (list(names), others, self._source.publication)
        row = row_of(self._connection, "checking which tables are partitions", _ABOVE, given)
        if row is not None:
            raise BadData(
                f"table {names[row[0]]!r}: changes of {row[1]}, which it is a partition of, are published as that "
                "table's, and its own may be among them",
                START_OVER,
            ).of(names[row[0]])

    def keep_covered(self, net: NetTable[Column], covered: str) -> None:
        """covered: a predicate over k0 … kn; the database compares keys, by its types and collations."""
        query = _of_covered([net.columns[at] for at in net.key_at], covered)
        keys = iter(net.entries)
        kept: dict[Key, Entry] = {}
        while batch := list(islice(keys, BATCH_KEYS)):
            parts = zip(*map(net.values, batch), strict=True)
            texts = [[value.decode() for value in part if isinstance(value, bytes)] for part in parts]
            found = rows_of(self._connection, f"comparing keys of {net.table.name}", query, texts)
            kept.update((batch[at - 1], net.entries[batch[at - 1]]) for (at,) in found)
        net.entries = kept

    def read(self) -> int:
        count, limit = 0, self.request.limit
        messages = None if limit is None else (limit + MORE_MESSAGES) * self.bounds.asked
        with closing(self._source.blocks(self.bounds.up_to, messages)) as blocks:
            for block, size in blocks:
                self.held += size + window.ROW_BYTES * len(block)
                for (message,) in block:
                    kind = message[0]
                    if kind in _ROWS:
                        if self._transaction is not None:
                            self._change(kind, message, self._transaction)
                    elif kind == log.TRUNCATE:
                        if self._transaction is not None:
                            for oid in log.truncated(message):
                                net = self._made_ready(oid, self._transaction)
                                if net is not None:
                                    self.truncate(net)
                    elif kind == log.BEGIN:
                        begun = log.begin(message)
                        if begun.commit_lsn >= self.bounds.stop:
                            return self.bounds.up_to
                        self._transaction = begun if begun.commit_lsn >= self.bounds.first else None
                    elif kind == log.COMMIT:
                        if self._commit(message):
                            assert self.end is not None
                            return self.end
                    elif kind == log.RELATION:
                        self._relations[message[1:5]] = log.relation(message)
                        self._ready.pop(message[1:5], None)
                count += len(block)
                self.spill()
        if messages is None or count < messages:
            return self.bounds.up_to
        if self.end is None:  # everything that the server decoded is before the window
            raise Again(replace(self.bounds, asked=self.bounds.asked * 4))
        return self.end

    def _commit(self, message: bytes) -> bool:
        """Whether the window is full. Whether the transaction is in it is checked by its end; its begin decided
        whether to read it.
        """
        begun, end = self._transaction, log.end_lsn(message)
        if begun is None:
            if end > self.request.after:
                raise Again(replace(self.bounds, first=log.commit_lsn(message)))
            return False
        if end > self.bounds.up_to:
            raise Again(replace(self.bounds, stop=begun.commit_lsn))
        return self.count(end, begun.ms, begun.xid)

    def _change(self, kind: int, message: bytes, begun: log.Begin) -> None:
        oid = message[1:5]
        try:
            net = self._ready[oid]
        except KeyError:
            net = self._made_ready(oid, begun)
        if net is None:
            self.skipped[Skipped.OTHER_TABLE] += 1
            return
        self.number += 1
        net.changes += 1
        row, at, gaps = log.row_at(message, 6)
        if kind == log.INSERT:
            net.insert(row, self.number, begun.ms)
        elif kind == log.DELETE:
            net.delete(row, self.number, begun.ms)
        elif message[5] == log.NEW:
            net.update(row, gaps, None, False, self.number, begun.ms)
        else:
            new, _, gaps = log.row_at(message, at + 1)
            if net.update(new, gaps, row, message[5] == log.FULL_OLD, self.number, begun.ms):
                self.number += 1

    def _made_ready(self, oid: bytes, begun: log.Begin) -> "SlotTable | None":
        """The table, with the columns that the log has from here on; None if it is not one of the job.

        Raises what `change_columns` raises.
        """
        net = self.tables.get(oid)
        if net is not None:
            assert isinstance(net, SlotTable)
            relation = self._relations[oid]
            known = tuple((column.name, column.type_oid, column.typmod) for column in net.columns)
            if relation.columns != known and not self._same_for_spark(net, relation):
                is_wider = relation.columns[: len(known)] == known
                self.change_columns(net, is_wider, begun.commit_lsn, partial(self._described, net, relation))
            net.identify(relation.identity, relation.full)
        self._ready[oid] = net
        return net

    def _same_for_spark(self, net: "SlotTable", relation: log.Relation) -> bool:
        """Whether only the length of a varchar or the like differs: the catalog has the newest length."""
        if [one[:2] for one in relation.columns] != [(one.name, one.type_oid) for one in net.columns]:
            return False
        return [*map(spark_type, self._described(net, relation))] == [*map(spark_type, net.columns)]

    def _described(self, net: "SlotTable", relation: log.Relation) -> tuple[Column, ...]:
        names, types, typmods = (list(part) for part in zip(*relation.columns, strict=True))
        doing = f"describing the columns of {net.table.name}"
        found = by_table(rows_of(self._connection, doing, DESCRIBED, (names, types, typmods))).get(0, ())
        if len(found) != len(names):
            raise BadData(f"table {net.table.name!r}: the type of a column no longer exists", START_OVER).of(
                net.table.name
            )
        return found


def _of_covered(key: Sequence[Column], predicate: str) -> str:
    """SQL for the places of those keys, given as arrays of texts, that satisfy a predicate over k0 … kn."""
    texts = ", ".join("%s::text[]" for _ in key)
    names = ", ".join(f"t{at}" for at in range(len(key)))
    typed = ", ".join(f"{_typed(f't{at}', column)} AS k{at}" for at, column in enumerate(key))
    return (
        f"SELECT ord FROM unnest({texts}) WITH ORDINALITY u ({names}, ord), "
        f"LATERAL (SELECT {typed}) k WHERE {predicate.replace('%', '%%')}"
    )


def _typed(text: str, column: Column) -> str:
    """Without the column's collation, the database's default would decide the order."""
    collation = f" COLLATE {column.collation}" if column.collation else ""
    return f"({text}::{column.type_name}){collation}"


# -- a table's net changes ----------------------------------------------------------------------------------------

_STRINGS = frozenset({17, 25, 1042, 1043})
"""bytea, text, char, varchar."""
_FLOATS = frozenset({700, 701})
_MINUS_ZERO = re.compile(rb"(?<![^{,])-0(?![^},])")
"""Of a float, or of an element in an array of floats."""


class SlotTable(NetTable[Column]):
    """Values are UTF-8 of the server's text."""

    _identified = _by_key = False

    def types(self) -> "list[pa.DataType]":
        return [arrow_type(column) for column in self.columns]

    def arrays(self, values: Sequence[Sequence[Any]], key: Callable[[int], str]) -> "list[pa.Array]":
        return as_arrow(self.table.name, self.columns, values, self._read, key)

    def _read(self, column: Column, values: Sequence[Any]) -> "pa.Array":
        """A value that the transform drops need not be one that Spark has: a chunk does not read it, either."""
        import pyarrow as pa

        if not self.table.wanted.needs(column.name):
            return pa.nulls(len(values), arrow_type(column))
        return from_text(column, values)

    def may_lack(self) -> set[str]:
        needs = self.table.wanted.needs
        return {one.name for one in self.columns if one.toasts and needs(one.name)} - set(self.table.key)

    def whole_keys(self) -> Hint:
        return (
            "the key's columns must be NOT NULL and in the table's replica identity: "
            + sql(f"ALTER TABLE {self.table.name} REPLICA IDENTITY FULL")
            + "; then "
            + START_OVER
        )

    def identify(self, identity: frozenset[str], full: bool = False) -> None:
        """From here on old rows have these columns, by an index on them unless `full`."""
        self._identified = identity.issuperset(self.table.key)
        self._by_key = identity == frozenset(self.table.key) and not full

    def require_identity(self) -> None:
        if not self._by_key:
            self.unsure = True
        if not self._identified:
            raise BadData(
                f"table {self.table.name!r}: its replica identity lacks a column of the key "
                f"({', '.join(self.table.key)}), so the log does not say which rows changed",
                sql(f"ALTER TABLE {self.table.name} REPLICA IDENTITY FULL") + "; then " + START_OVER,
            ).of(self.table.name)

    def lost(self, rows: dict[Key, Row]) -> ValueLost:
        """The hint's SQL writes the values to the log, where a longer window finds them."""
        key, row = next(iter(rows.items()))
        columns = [self.columns[at] for at, value in enumerate(row) if value is LOST]
        others = f"; such rows: {len(rows):,}" if len(rows) > 1 else ""
        anew = ", ".join(f"{quoted(column.name)} = {_anew(column)}" for column in columns)
        table = self.table.name
        which = f" WHERE {self._is_key(key)}" if not others else ""
        return ValueLost(
            f"table {table!r}: an UPDATE gave a row the new key {self.shown_key(key)}, but the log does not have "
            f"its value of {', '.join(repr(column.name) for column in columns)}, which is stored out of line "
            f"(TOAST) and did not change{others}",
            "write it again, so that the log has it: "
            + sql(f"UPDATE {table} SET {anew}{which}")
            + "; and for later changes of keys: "
            + sql(f"ALTER TABLE {table} REPLICA IDENTITY FULL"),
            ", with REPLICA IDENTITY FULL for a table whose keys change",
        )

    def _is_key(self, key: Key) -> str:
        """SQL that is true of the row with this key."""
        named = zip((self.columns[at] for at in self.key_at), self.values(key), strict=True)
        return " AND ".join(f"{quoted(c.name)}{c.comparable} = {literal(spelled(value))}" for c, value in named)

    def key_reader(self, at: tuple[int, ...]) -> Callable[[Row], Key]:
        """The same key for 0 and -0, as in the database and in sinks."""
        key_of = super().key_reader(at)
        floats = [bool({self.columns[one].base_oid, self.columns[one].element_oid} & _FLOATS) for one in at]
        if not any(floats):
            return key_of

        def unsigned(values: Iterable[Any]) -> tuple[Any, ...]:
            pairs = zip(values, floats, strict=True)
            return tuple(
                _MINUS_ZERO.sub(b"0", one) if known and isinstance(one, bytes) else one for one, known in pairs
            )

        return (lambda row: unsigned(key_of(row))) if len(at) > 1 else (lambda row: unsigned((key_of(row),))[0])


def _anew(column: Column) -> str:
    """SQL that sets a column to its own value as a new one, which the log then has."""
    name = quoted(column.name)
    if column.base_oid in _STRINGS:
        return f"{name} || ''"
    return f"{name}::text::{column.type_name}"
