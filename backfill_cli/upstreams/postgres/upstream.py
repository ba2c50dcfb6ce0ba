"""The PostgreSQL upstream: tables read as they are now, by ranges of their keys, and one log of all their changes.

Reading order: `tables` describes, `slot` holds the log, `chunks` reads rows, `log/take` the changes; `keys` says
what the database compares.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks, Piece, TableSpec, Taken, UpstreamCapabilities
from backfill_cli.errors import BackfillError, Fatal, Transient
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import field as schema_field
from backfill_cli.model.schema import names_of
from backfill_cli.model.split import SplitKey
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.postgres import checks, chunks, identity, publications, slot, taking
from backfill_cli.upstreams.postgres.client import asking, connected, lsn_text, server_of
from backfill_cli.upstreams.postgres.log.window import TakeRequest
from backfill_cli.upstreams.postgres.look import Look, schema_of_columns
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.ranges import Ranges
from backfill_cli.upstreams.postgres.tables import PgTable, places, schema_of, splits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOG = "wal"
"""The one log of a position."""

MARK_EVERY_S = 30.0
"""A position that moved without changes of ours is committed so often: an idle table must not hold the log."""

LONG_LOG_BYTES = 1 << 30
"""More than this is applied before state is read again: an epoch that reads has to take all of it at once."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """What is known beside a position.

    hidden: transactions taken, shown by no snapshot yet. read: whether a chunk was. columns: names, by table, of
    those in force. storage: of the tables when they were last looked at, as text.
    """

    hidden: tuple[int, ...] = ()
    read: bool = False
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    storage: str = ""


class PostgresUpstream:
    """See contracts.Upstream, TakingUpstream and HeldUpstream. Nothing is asked before `pin` or `restore`."""

    def __init__(self, options: PostgresOptions, specs: Sequence[TableSpec]) -> None:
        self._options, self._specs = options, specs
        self.capabilities = UpstreamCapabilities(
            pinned=False,
            keeps_log=True,
            before_images=True,
            one_log=True,
            current=True,
            keeps=f"the write-ahead log of one epoch, by replication slot {options.slot!r}; all of it while the "
            "job is paused or stopped",
        )
        self._pin: Pin | None = None
        self._ranges = Ranges(())
        self._look = Look(specs)
        self._making = False
        self._memory: dict[int, _Memory] = {}
        self._since: int | None = None
        self._unheld = False  # pinned by somebody who only looks
        self._ends: tuple[int, ...] = ()  # of the log, as seen before
        self._empty_to = 0  # up to here the log was seen to hold nothing for us
        self._marked_s = time.monotonic()

    @cached_property
    def _connection(self) -> Any:
        return connected(self._options.dsn)

    # -- what is there -------------------------------------------------------------------------------------------

    def pin(self) -> Pin:
        connection = self._alive()
        self._look.begin(connection)
        tables = self._look.listed
        checks.require_followable(tables)
        seen = slot.now(connection, self._options.slot)
        self._unheld = seen.plugin is None
        position = seen.confirmed if seen.confirmed is not None else seen.insert
        self._pin = Pin(
            position=_position(position),
            position_ms=None,
            complete_at=None,
            splits=tuple(split for table in tables for split in splits(connection, table)),
            schema={table.name: schema_of(table) for table in tables},
            identity=self._identity(seen),
            shown=f"LSN {lsn_text(position)}",
        )
        self._see_from_here()
        self._ranges = Ranges(self._pin.splits)
        return self._pin

    def restore(self, pin: Pin) -> None:
        self._pin, self._unheld = pin, False
        self._ranges = Ranges(pin.splits)
        self._look.begin(self._alive())
        self._look.apply(pin.schema)
        self._see_from_here()

    def _see_from_here(self) -> None:
        """A transaction that began before the slot may commit unseen by it: none may be open at the first read."""
        query = """
            SELECT CASE WHEN pg_is_in_recovery() THEN pg_snapshot_xmax(pg_current_snapshot())
                   ELSE pg_current_xact_id() END::text::bigint,
                   CASE WHEN NOT pg_is_in_recovery() THEN pg_logical_emit_message(true, 'backfill', '') END"""
        with asking("looking which transactions are open"), self._connection.transaction():
            # an id of our own, for xmax is one past those that ended: one that waits for a standby may be above;
            # with a message, for the end of a transaction without one is not written to disk at once
            self._connection.execute("SET LOCAL synchronous_commit = local")
            row = self._connection.execute(query).fetchone()
        self._since = row[0]

    def may_hold(self) -> None:
        checks.require_able(self._alive(), self._options, self._look.listed)

    def hold(self) -> None:
        connection, options = self._alive(), self._options
        if not self._making:
            slot.require_none(slot.now(connection, options.slot), options.slot)
        self._making = True  # one that is there at the next try is of a try whose answer was lost
        slot.make(connection, options.slot, options.publication, self._look.listed)

    def keep_within(self, position: Position) -> None:
        slot.require_within(self._alive(), self._options, _lsn(position))

    def would_hold(self) -> Sequence[str]:
        movable = [self._look.tables[spec.name] for spec in self._specs if not spec.immutable_key]
        made = checks.would_make(self._alive(), self._options, self._look.listed)
        return [*made, *checks.generated(self._look.listed), *checks.lost_with_a_key(movable)]

    def release(self, pin: Pin) -> None:
        seen = slot.now(self._alive(), self._options.slot)
        identity.require_same_database(pin.identity, seen)
        slot.remove(self._connection, self._options.slot, self._options.publication)

    def places(self) -> Mapping[str, frozenset[str]]:
        return {table.name: places(self._alive(), table) for table in self._look.listed}

    def advice(self) -> Sequence[str]:
        return checks.advice(self._alive(), self._options, self._look.listed)

    def _identity(self, seen: slot.Now) -> str:
        tables = self._look.listed
        published = publications.published(self._connection, self._options.publication, tables)
        return identity.of(seen, self._options.slot, published, tables)

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        pin, at = self._taken(), _lsn(position)
        seen = slot.now(self._alive(), self._options.slot)
        self._look.again(self._connection)
        identity.require(pin.identity, self._identity(seen), seen)
        if seen.plugin is None and self._unheld:
            return UpstreamView(identity=pin.identity, latest=_position(seen.insert))
        slot.require_ours(seen, self._options.slot, at)
        end = max(at, slot.settled(self._connection, seen, self._ends))
        self._ends = (*self._ends, seen.insert)[-2:]
        added = self._look.added(self._connection)
        self._look.compare(self._connection)
        told = self._look.told_by(end, added, lambda: slot.now(self._connection, self._options.slot).insert)
        return UpstreamView(
            identity=pin.identity,
            latest=_position(end),
            pending=self._pending(at, end, told),
            oldest=None if seen.confirmed is None else _position(seen.confirmed),
            log_first=snapshot_open and (end - at > LONG_LOG_BYTES or bool(added)),
            held_bytes=seen.held_bytes,
        )

    def _pending(self, at: int, end: int, added: Mapping[str, str]) -> tuple[UpstreamEpoch, ...]:
        """What the slot holds after `at`, as one epoch; what moved without changes of ours only now and then.

        Columns that were added come with the log's next change of their table, or with a window that has none.
        """
        now_ms = time.time_ns() // 1_000_000
        first_ms = None
        if end > max(at, self._empty_to):
            first_ms = slot.first_after(self._connection, self._options.slot, self._options.publication, end)
        if first_ms is not None:
            return (UpstreamEpoch(((LOG, end),), first_ms, None, end - at, tuple(added.items())),)
        self._empty_to = max(self._empty_to, end)
        if added:
            return (UpstreamEpoch(((LOG, end),), now_ms, 0, 0, tuple(added.items())),)
        if end > at and time.monotonic() - self._marked_s > MARK_EVERY_S:
            return (UpstreamEpoch(((LOG, end),), now_ms, 0, 0),)
        return ()

    # -- rows as they are now ------------------------------------------------------------------------------------

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """Each ends at the key that its limit reaches now, or at its split's end where there are fewer rows."""
        return [self._ranges.closed(self._alive(), self._look.tables[table], read) for read in reads]

    def row_count(self, read: SnapshotRead) -> int | None:
        """Only reading tells."""
        return None

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
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
            oid=table.oid,
            table=table.sql,
            source=table.source,
            condition=condition,
            columns=columns,
            sight=self._sight,
        )

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        """As `batches`, with a column `_read INT`."""
        from pyspark.sql.types import StructType

        tasks = self.batches(spark, table, reads)
        assert tasks is not None
        shape = json.loads(tasks.schema)
        shape["fields"].append(schema_field("_read", "integer"))
        return arrow_tasks.frame(spark, _with_read, tasks.parts, StructType.fromJson(shape))

    # -- the log -------------------------------------------------------------------------------------------------

    def may_lack(self, table: str) -> frozenset[str]:
        return self._look.tables[table].may_lack()

    def take(
        self,
        spark: "SparkSession",
        window: ChangeWindow,
        within: Mapping[SplitKey, Cursor | None] | None,
        schemas: Mapping[str, str],
        folder: str,
    ) -> Taken:
        after = _lsn(window.after)
        connection = self._alive()
        self._look.apply(schemas)
        up_to = slot.past_now(connection, self._options.slot) if window.open else _lsn(window.up_to)
        if up_to <= self._empty_to:
            taken = taking.nothing(up_to)
        else:
            request = TakeRequest(
                dsn=self._options.dsn,
                slot=self._options.slot,
                publication=self._options.publication,
                after=after,
                up_to=up_to,
                tables=taking.log_tables(self._look.tables, self._look.in_force),
                folder=folder,
                attempt=uuid.uuid4().hex,
                limit=window.limit,
                covered=self._ranges.covered(self._look.tables, within),
            )
            taken = taking.in_worker(spark, request)
        if window.open and taken.up_to < up_to:
            raise Transient("a table's columns changed while it was read", "wait: the log is applied first now")
        known = self._memory.get(after, _Memory())
        hidden = slot.hidden(connection, taken.xids, known.hidden) if within is not None else ()
        for name, columns in taken.changed.items():
            in_force = {column.name for column in self._look.in_force[name]}
            new = [column.name for column in columns if column.name not in in_force]
            checks.require_told(connection, self._look.tables[name], new)
        whole = taken.up_to == up_to
        added = {name: schema for name, schema in window.schema if whole and name not in taken.tables}
        changed = added | {name: schema_of_columns(columns) for name, columns in taken.changed.items()}
        in_force_then = {name: names_of(text) for name, text in {**schemas, **changed}.items()}
        read, storage = known.read or window.open, self._look.storage()
        self._memory = {after: known, taken.up_to: _Memory(hidden, read, in_force_then, storage)}
        end = replace(
            window,
            up_to=_position(taken.up_to),
            up_to_ms=window.up_to_ms if taken.up_to_ms is None else taken.up_to_ms,
            from_ms=window.from_ms if taken.from_ms is None else taken.from_ms,
            epochs=max(taken.transactions, window.epochs),
        )
        return Taken(end, taken.tables, changed)

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        raise Fatal("the log of PostgreSQL is taken, not read")

    def acknowledge(self, position: Position) -> None:
        self._marked_s = time.monotonic()
        slot.advance(self._alive(), self._options.slot, _lsn(position))

    # -- what is remembered --------------------------------------------------------------------------------------

    @property
    def _sight(self) -> chunks.Sight:
        """What the next chunks must show: what is known at the newest position that was taken."""
        newest = self._memory[max(self._memory)] if self._memory else _Memory()
        return chunks.Sight(newest.hidden, None if newest.read else self._since)

    def remembered(self, position: Position) -> str:
        known = self._memory.get(_lsn(position), _Memory())
        return json.dumps({"at": _lsn(position), **asdict(known)})

    def recall(self, memory: str) -> None:
        told = json.loads(memory)
        known = _Memory(tuple(told["hidden"]), told["read"], told["columns"], told["storage"])
        self._memory = {told["at"]: known}
        self._look.recall(known.columns, known.storage)

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc)

    def close(self) -> None:
        if "_connection" in self.__dict__:
            self._connection.close()

    def _alive(self) -> Any:
        """The connection, a new one where it was lost."""
        if "_connection" in self.__dict__ and (self._connection.closed or self._connection.broken):
            del self.__dict__["_connection"]
        return self._connection

    def _taken(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin


def _with_read(pieces: Sequence[Piece]) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker: the rows of some chunks, each with the read that it is of."""
    import pyarrow as pa

    for piece in pieces:
        for batch in chunks.batches(piece.what):
            yield batch.append_column("_read", pa.repeat(pa.scalar(piece.read, pa.int32()), batch.num_rows))


def _position(lsn: int) -> Position:
    return Position.of({LOG: lsn})


def _lsn(position: Position) -> int:
    return int(position.get(LOG) or 0)
