"""The PostgreSQL upstream: tables read as they are now, by ranges of their keys, and one log of all their changes.

Reading order: `tables` describes, `slot` holds the log, `chunks` reads rows, `log/take` the changes; `keys` says
what the database compares.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backfill_cli.contracts import (
    ArrowTasks,
    Capabilities,
    ConsumableLog,
    Current,
    Extras,
    Piece,
    Source,
    TableSpec,
    Taken,
    own,
)
from backfill_cli.errors import RETRIED, BackfillError, LogFirst
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import field as schema_field
from backfill_cli.model.schema import names_of
from backfill_cli.model.split import SplitKey
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.postgres import checks, chunks, identity, slot, taking
from backfill_cli.upstreams.postgres.client import clock_ms, lsn_text, server_of
from backfill_cli.upstreams.postgres.lease import Holding
from backfill_cli.upstreams.postgres.memory import Known, Memory
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.pending import Pending, lsn_of, position_of
from backfill_cli.upstreams.postgres.ranges import Ranges
from backfill_cli.upstreams.postgres.rewritten import schema_of_columns
from backfill_cli.upstreams.postgres.tables import PgTable, called, places, schema_of, splits

LONG_LOG_BYTES = 1 << 30
"""A longer log is applied before rows are read again: an epoch that reads rows must take all of it at once."""


class PostgresUpstream(Holding, ConsumableLog, Source):
    """See contracts.Source, ConsumableLog and Lease. Nothing is queried before `pin` or `restore`."""

    def __init__(self, options: PostgresOptions, specs: Sequence[TableSpec]) -> None:
        super().__init__(options, specs)
        self.lease = self
        self.extras = Extras(
            format_position=self._shown,
            places=self._places,
            waits_for=self._waits_for,
            clock_ms=self._clock_ms,
        )
        self.capabilities = Capabilities(
            Current(self),
            before_images=True,
            one_log=True,
            keeps=f"the write-ahead log of one epoch, by replication slot {options.slot!r}; all of it while the "
            "job is paused or stopped",
        )
        self._pin: Pin | None = None
        self._ranges = Ranges(())
        self._memory = Memory()
        self._pending = Pending(options)
        self._since: int | None = None
        self._unheld = False  # pinned by a command that only reads
        self._apart = False
        self._named = False  # the tables that a publication must name were seen to be

    # -- pin, restore, observe -----------------------------------------------------------------------------------

    def pin(self) -> Pin:
        connection = self._alive()
        self._look.begin(connection)
        tables = self._look.listed
        checks.require_followable(tables)
        seen = slot.now(connection, self._options.slot)
        self._unheld = seen.plugin is None
        position = seen.confirmed if seen.confirmed is not None else seen.insert
        self._pin = Pin(
            position=position_of(position),
            position_ms=None,
            complete_at=None,
            splits=tuple(split for table in tables for split in splits(connection, table)),
            schema={table.name: schema_of(table) for table in tables},
            identity=self._identity(seen),
            shown=self._shown(position_of(position)),
        )
        self._see_from_here()
        self._ranges = Ranges(self._pin.splits)
        return self._pin

    def restore(self, pin: Pin) -> None:
        self._pin, self._unheld = pin, False
        self._ranges = Ranges(pin.splits)
        self._look.begin(self._alive())
        if not identity.pins_money(pin.identity):
            checks.require_same_money(self._connection, self._look.listed)
        self._look.apply(pin.schema)
        self._see_from_here()

    def _see_from_here(self) -> None:
        """The first read waits for transactions open now: one from before the slot can commit unseen by it."""
        self._since = slot.transaction_now(self._connection)

    def _places(self) -> Mapping[str, frozenset[str]]:
        return {table.name: places(self._alive(), table) for table in self._look.listed}

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        pin, at = self._taken(), lsn_of(position)
        seen = slot.now(self._alive(), self._read_slot)
        if seen.plugin is None and self._retained is not None:
            raise slot.copy_gone()
        looks_only = seen.plugin is None and self._unheld
        identity.require_same_history(pin.identity, seen)
        if not looks_only:
            slot.require_ours(seen, self._read_slot, at)
        self._look.again(self._connection)
        found = self._identity(seen)
        identity.require_not_replaced(pin.identity, found, lambda oid: called(self._connection, oid))
        self._look.require_followable()
        identity.require_same_tables(pin.identity, found)
        if looks_only:
            return UpstreamView(identity=pin.identity, latest=position_of(seen.insert))
        if not self._named and self._retained is None:
            checks.require_named(self._connection, self._options, self._look.listed)
            self._named = True
        end = self._pending.end(self._connection, seen, at)
        added = self._look.added(self._connection)
        self._look.compare(self._connection, self._log_end)
        told = self._look.told_by(end, added, self._log_end)
        return UpstreamView(
            identity=pin.identity,
            latest=position_of(end),
            pending=self._pending.epochs(self._connection, self._read_slot, at, end, told),
            oldest=None if seen.confirmed is None else position_of(seen.confirmed),
            log_first=snapshot_open and (end - at > LONG_LOG_BYTES or bool(added)),
            held_bytes=seen.held_bytes,
        )

    def _log_end(self) -> int:
        return slot.now(self._connection, self._options.slot).insert

    def _shown(self, position: Position) -> str:
        """As the server writes it."""
        return f"LSN {lsn_text(lsn_of(position))}"

    def snapshot_only(self, begun: bool) -> None:
        self._apart = True
        if begun:
            self._since = None

    # -- rows as they are now ------------------------------------------------------------------------------------

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """Each read ends at the key that its limit reaches now, or at its split's end if there are fewer rows."""
        return [self._ranges.closed(self._alive(), self._look.tables[table], read) for read in reads]

    def batches(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        of, columns = self._look.tables[table], self._look.in_force[table]
        pieces = tuple(
            (Piece(index, self._chunk(of, self._ranges.condition(of, part))),)
            for index, read in enumerate(reads)
            for part in self._ranges.parts(read)
        )
        return ArrowTasks(chunks.batches, pieces, schema_of_columns(columns))

    def _chunk(self, table: PgTable, condition: str) -> chunks.Chunk:
        columns = self._look.in_force[table.name]
        return chunks.Chunk(
            dsn=self._options.dsn,
            server=server_of(self._connection),
            name=table.name,
            key=tuple(column.name for column in table.key),
            oid=table.oid,
            table=table.sql,
            source=table.source,
            condition=condition,
            columns=columns,
            sight=self._sight,
            may_have_more=self._apart,
        )

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        """As `batches`, with a column `own.READ INT`."""
        from pyspark.sql.types import StructType

        tasks = self.batches(spark, table, reads)
        assert tasks is not None
        shape = json.loads(tasks.schema)
        shape["fields"].append(schema_field(own.READ, "integer"))
        return arrow_tasks.frame(spark, chunks.with_read, tasks.parts, StructType.fromJson(shape))

    # -- the log -------------------------------------------------------------------------------------------------

    def may_lack(self, table: str) -> frozenset[str]:
        return self._look.tables[table].may_lack()

    def take(
        self,
        spark: SparkSession,
        window: ChangeWindow,
        within: Mapping[SplitKey, Cursor | None] | None,
        schemas: Mapping[str, str],
        folder: str,
    ) -> Taken:
        after = lsn_of(window.after)
        connection = self._alive()
        self._look.apply(schemas)
        up_to = slot.past_now(connection, self._options.slot) if window.open else lsn_of(window.up_to)
        if self._pending.nothing_to(up_to):
            taken = taking.nothing(up_to)
        else:
            tables = taking.log_tables(self._look.tables, self._look.in_force)
            covered = self._ranges.covered(self._look.tables, within)
            widens = not window.open
            request = taking.request(self._options, after, up_to, tables, folder, window.limit, covered, widens)
            if self._retained is not None:
                request = replace(request, slot=self._retained, copies=True)
            taken = taking.in_worker(spark, request)
        if window.open and taken.up_to < up_to:
            whose = f"table {next(iter(taken.changed))!r}: its" if taken.changed else "a table's"
            raise LogFirst(f"{whose} columns changed while rows were read", RETRIED)
        known = self._memory.at(after)
        hidden = slot.hidden(connection, taken.xids, known.hidden) if within is not None else ()
        self._look.require_kept_unique(connection, taken.unsure, after)
        if taken.changed:
            self._look.again(connection)
            self._look.require_followable()
            self._look.compare(connection, self._log_end)
        for name, columns in taken.changed.items():
            in_force = {column.name for column in self._look.in_force[name]}
            new = [column.name for column in columns if column.name not in in_force]
            checks.require_told(connection, self._look.tables[name], new)
        whole = taken.up_to == up_to
        added = {name: schema for name, schema in window.schema if whole and name not in taken.tables}
        changed = added | {name: schema_of_columns(columns) for name, columns in taken.changed.items()}
        in_force_then = {name: names_of(text) for name, text in {**schemas, **changed}.items()}
        read, storage = known.read or window.open, self._look.storage()
        self._memory.keep(after, taken.up_to, Known(hidden, read, in_force_then, storage))
        return Taken(taking.closed(window, taken), taken.tables, changed)

    def acknowledge(self, position: Position) -> None:
        self._pending.marked()
        slot.advance(self._alive(), self._options.slot, lsn_of(position))

    # -- what is remembered --------------------------------------------------------------------------------------

    @property
    def _sight(self) -> chunks.Sight:
        """What the next chunks must show, from what is known at the newest position that was taken."""
        newest = self._memory.newest
        return chunks.Sight(newest.hidden, None if newest.read else self._since)

    def remembered(self, position: Position) -> str:
        return self._memory.text(lsn_of(position))

    def recall(self, memory: str) -> None:
        known = self._memory.recall(memory)
        self._look.recall(known.columns, known.storage)

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc)

    def _clock_ms(self) -> int:
        return clock_ms(self._alive())

    def _taken(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin
