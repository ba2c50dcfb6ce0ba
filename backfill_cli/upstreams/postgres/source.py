"""The PostgreSQL upstream: tables read as they are now, by ranges of their keys, and one log of all their changes.

Reading order: `cdc.source` is the way of an epoch, `tables` describes, `slot` holds the log, `chunks` reads rows,
`take` the changes; `keys` says what the database compares.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from backfill_cli.cdc import bounded, ranges
from backfill_cli.cdc.files import LogTable
from backfill_cli.cdc.ranges import KeyRange
from backfill_cli.cdc.source import Known, LogSource, in_worker, place_of
from backfill_cli.cdc.window import TakenWindow, WindowRequest
from backfill_cli.contracts import Extras, TableSpec
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.spark.api import SparkSession
from backfill_cli.upstreams.postgres import checks, chunks, conditions, ddl, identity, keys, publications, slot
from backfill_cli.upstreams.postgres.client import Connection, clock_ms, limited, lsn_text, server_of
from backfill_cli.upstreams.postgres.ddl import schema_of_columns
from backfill_cli.upstreams.postgres.headroom import SlotHeadroom
from backfill_cli.upstreams.postgres.in_time import in_time, too_slow
from backfill_cli.upstreams.postgres.lease import SlotLease
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.pgoutput import Slot
from backfill_cli.upstreams.postgres.tables import PgTable, called, places, schema_of
from backfill_cli.upstreams.postgres.take import TakeRequest, take
from backfill_cli.upstreams.postgres.types import Column

T = TypeVar("T")


class PostgresSource(SlotLease, LogSource[Column]):
    """See contracts.Source, ConsumableLog and Lease. Nothing is queried before `pin` or `restore`."""

    log = "wal"

    def __init__(self, options: PostgresOptions, specs: Sequence[TableSpec]) -> None:
        SlotLease.__init__(self, options, specs)
        LogSource.__init__(
            self,
            f"the write-ahead log of one commit, by replication slot {options.slot!r}; all of it while the job is "
            "paused or stopped",
            chunks.batches,
        )
        self.lease = self
        self.extras = Extras(
            format_position=self._shown,
            places=self._places,
            waits_for=self._waits_for,
            clock_ms=self._clock_ms,
            headroom=SlotHeadroom(options),
        )
        self._ends: tuple[int, ...] = ()  # the log's end, as seen before
        self._wanted = {spec.name: spec.wanted for spec in specs}
        self._unheld = False  # pinned by a command that only reads
        self._named = False  # the tables that a publication must name were seen to be

    # -- pin, restore, observe -----------------------------------------------------------------------------------

    def pin(self) -> Pin:
        connection = self._alive()
        self._catalog.begin(connection)
        tables = self._catalog.listed
        checks.require_followable(tables)
        seen = slot.now(connection, self._options.slot)
        self._unheld = seen.plugin is None
        position = self._position(seen.confirmed if seen.confirmed is not None else seen.insert)
        found = [
            ranges.splits(table.name, table.rows, table.size_bytes, partial(keys.cuts, connection, table))
            for table in tables
        ]
        return self._follow(
            Pin(
                position=position,
                position_ms=None,
                complete_at=None,
                splits=tuple(itertools.chain.from_iterable(found)),
                schema={table.name: schema_of(table) for table in tables},
                identity=self._identity(seen),
                shown=self._shown(position),
            )
        )

    def restore(self, pin: Pin) -> None:
        self._unheld = False
        self._catalog.begin(self._alive())
        if not identity.pins_money(pin.identity):
            checks.require_same_money(self._connection, self._catalog.listed)
        self._catalog.apply(pin.schema)
        self._follow(pin)

    def _identity(self, seen: slot.SlotState) -> str:
        tables = self._catalog.listed
        published = publications.published(self._connection, self._options.publication, tables)
        return identity.of(seen, self._options.slot, published, tables)

    def _places(self) -> Mapping[str, frozenset[str]]:
        return {table.name: places(self._alive(), table) for table in self._catalog.listed}

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        pin, at = self._pinned, place_of(position)
        seen = slot.now(self._alive(), self._read_slot)
        if seen.plugin is None and self._retained is not None:
            raise slot.copy_gone()
        looks_only = seen.plugin is None and self._unheld
        identity.require_same_history(pin.identity, seen)
        if not looks_only:
            slot.require_ours(seen, self._read_slot, at)
        self._catalog.again(self._connection)
        found = self._identity(seen)
        identity.require_not_replaced(pin.identity, found, lambda oid: called(self._connection, oid))
        self._catalog.require_followable()
        identity.require_same_tables(pin.identity, found)
        if looks_only:
            return UpstreamView(identity=pin.identity, latest=self._position(seen.insert))
        if not self._named and self._retained is None:
            checks.require_named(self._connection, self._options, self._catalog.listed)
            self._named = True
        end = max(at, slot.settled(self._connection, seen, self._ends))
        self._ends = (*self._ends, seen.insert)[-2:]
        added = self._catalog.added(self._connection)
        self._catalog.compare(self._connection, self._insert)
        return self._view(
            at,
            end,
            snapshot_open,
            oldest=seen.confirmed,
            held_bytes=seen.held_bytes,
            columns_wait=bool(added),
            added=self._catalog.added_before(end, added, self._insert),
            behind=end < seen.flushed,
        )

    def keeps_aside(self, table: str) -> str:
        return (
            f"the server still decodes and sends its changes (publication {self._options.publication!r}), but "
            "keeps no log for it"
        )

    def _insert(self) -> int:
        return slot.now(self._connection, self._options.slot).insert

    def _shown(self, position: Position) -> str:
        """As the server writes it."""
        return f"LSN {lsn_text(place_of(position))}"

    def _clock_ms(self) -> int:
        return clock_ms(self._alive())

    # -- rows as they are now ------------------------------------------------------------------------------------

    def _key_after(self, table: str, keys_of: KeyRange, rows: int) -> Cursor | None:
        limit_ms, of = self._options.chunk_time_ms, self._catalog.tables[table]
        if limit_ms is None:
            return keys.key_after(self._alive(), of, keys_of, rows)
        with _named(of, limit_ms):
            return bounded.key_after(keys_of, rows, partial(self._in_time, keys.key_after, of, limit_ms))

    def _rows_in(self, table: str, keys_of: KeyRange, most: int) -> int:
        limit_ms, of = self._options.chunk_time_ms, self._catalog.tables[table]
        if limit_ms is None:
            return keys.rows_in(self._alive(), of, keys_of, most)
        with _named(of, limit_ms):
            count = partial(self._in_time, keys.rows_in, of, limit_ms)
            return bounded.rows_in(keys_of, most, count, partial(self._key_after, table))

    def _in_time(
        self,
        ask: Callable[[Connection, PgTable, KeyRange, int], T],
        table: PgTable,
        limit_ms: int,
        keys_of: KeyRange,
        rows: int,
    ) -> T:
        with in_time(limit_ms), limited(self._alive(), limit_ms) as connection:
            return ask(connection, table, keys_of, rows)

    def _chunk_rows(self, table: str) -> int:
        of = self._catalog.tables[table]
        return ranges.chunk_rows(of.rows, of.size_bytes)

    def _schema(self, table: str) -> str:
        return schema_of_columns(conditions.chosen(self._catalog.in_force[table], self._wanted[table]))

    def leaves_rows_out(self, table: str) -> bool:
        return bool(conditions.decided(self._catalog.in_force[table], self._wanted[table]))

    def _chunk(self, table: str, keys_of: KeyRange) -> chunks.Chunk:
        of, wanted = self._catalog.tables[table], self._wanted[table]
        columns = self._catalog.in_force[table]
        return chunks.Chunk(
            dsn=self._options.dsn,
            server=server_of(self._connection),
            name=table,
            key=of.key,
            oid=of.oid,
            table=of.sql,
            source=of.source,
            keys=keys_of,
            condition=conditions.condition(columns, wanted),
            columns=columns,
            read=conditions.chosen(columns, wanted),
            visibility=self._visibility,
            may_have_more=self._apart,
            limit_ms=self._options.chunk_time_ms,
        )

    def _newest_transaction(self) -> int:
        return slot.transaction_now(self._connection)

    def _open_before(self, since: int) -> Limit | None:
        oldest = slot.oldest_transaction(self._alive())
        return None if oldest >= since else slot.holder(self._connection, oldest)

    # -- the log -------------------------------------------------------------------------------------------------

    def may_lack(self, table: str) -> frozenset[str]:
        return frozenset(filter(self._wanted[table].needs, self._catalog.tables[table].may_lack()))

    def _tables(self, schemas: Mapping[str, str]) -> tuple[LogTable[Column], ...]:
        self._alive()
        self._catalog.apply(schemas)
        in_force = self._catalog.in_force
        return tuple(
            LogTable(
                table.name,
                table.oid,
                in_force[table.name],
                tuple(column.name for column in table.key),
                self._wanted[table.name],
            )
            for table in self._catalog.listed
        )

    def _log_end(self) -> int:
        return slot.past_now(self._connection, self._options.slot)

    def _first_ms(self, up_to: int) -> int | None:
        return Slot(self._connection, self._read_slot, self._options.publication).first_ms(up_to)

    def _covered(self, table: str, ranges: Sequence[KeyRange]) -> str:
        return keys.in_any(self._catalog.tables[table].key, ranges)

    def _take(self, spark: SparkSession, request: WindowRequest[Column]) -> TakenWindow[Column]:
        options, copies = self._options, self._retained is not None
        whole = TakeRequest(request, options.dsn, self._read_slot, options.publication, copies)
        return in_worker(spark, take, whole, TakenWindow[Column])

    def _hidden(self, taken: TakenWindow[Column], known: Sequence[int]) -> tuple[int, ...]:
        return slot.hidden(self._connection, taken.xids, known)

    def _followed(self, taken: TakenWindow[Column], after: int) -> Mapping[str, str]:
        connection = self._connection
        self._catalog.require_kept_unique(connection, taken.unsure, after)
        if taken.changed:
            self._catalog.again(connection)
            self._catalog.require_followable()
            self._catalog.compare(connection, self._insert)
        for name, columns in taken.changed.items():
            in_force = {column.name for column in self._catalog.in_force[name]}
            new = [column.name for column in columns if column.name not in in_force]
            checks.require_no_default(connection, self._catalog.tables[name], new)
        return {name: schema_of_columns(columns) for name, columns in taken.changed.items()}

    def _advance(self, at: int) -> None:
        slot.advance(self._alive(), self._options.slot, at)

    def _storage(self) -> str:
        return self._catalog.storage()

    def _storage_without(self, storage: str, tables: Collection[str]) -> str:
        return ddl.without(storage, tables)

    def _recalled(self, known: Known) -> None:
        self._catalog.recall(known.columns, known.storage)


@contextmanager
def _named(table: PgTable, limit_ms: int) -> Iterator[None]:
    """A statement inside that takes too long for one row is an error that names the row."""
    try:
        yield
    except bounded.TimedOut as exc:
        raise too_slow(table.name, table.key, exc.after, limit_ms) from exc
