"""The files upstream: a pinned folder of files, and folders where change files land."""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import ArrowTasks, TableSpec, UpstreamCapabilities
from backfill_cli.errors import BackfillError, ConfigError
from backfill_cli.formats import frames, schemas
from backfill_cli.formats.listing import place
from backfill_cli.formats.schemas import Columns
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.spark.failures import from_spark, spark_reading
from backfill_cli.upstreams.files.changes.change_feed import ChangeFeed
from backfill_cli.upstreams.files.changes.change_format import ChangeFormat
from backfill_cli.upstreams.files.changes.debezium import Debezium
from backfill_cli.upstreams.files.changes.dms import Dms
from backfill_cli.upstreams.files.changes.epoch_column import EpochLog
from backfill_cli.upstreams.files.changes.epochs import FileLog, Log
from backfill_cli.upstreams.files.changes.table_log import TableLog
from backfill_cli.upstreams.files.options import ChangesOptions, FilesOptions
from backfill_cli.upstreams.files.snapshot import pin
from backfill_cli.upstreams.files.snapshot.by_duckdb import rows_sql
from backfill_cli.upstreams.files.snapshot.side import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS: dict[str, type[ChangeFormat]] = {"debezium": Debezium, "dms": Dms, "change-feed": ChangeFeed}


class FilesUpstream:
    """See contracts.Upstream. Nothing is read before `pin`, `restore` or `observe`."""

    def __init__(self, options: FilesOptions, tables: Sequence[TableSpec]) -> None:
        self._options = options
        self._tables = {table.name: table for table in tables}
        self._places_hold_tables()
        self._snapshots = {t.name: Snapshot(t, options.snapshot) for t in tables}
        changes = options.changes
        self._logs = {t.name: _table_log(t, changes) for t in tables} if changes else {}
        self._log: Log = EpochLog(self._logs, changes) if changes and changes.epoch else FileLog(self._logs)
        self.capabilities = UpstreamCapabilities(
            pinned=True,
            keeps_log=True,
            before_images=changes is None or _FORMATS[changes.format].before_images,
            one_log=len(tables) == 1 or bool(changes and changes.epoch),
        )
        self._pin: Pin | None = None
        self._identity = ""

    def pin(self) -> Pin:
        found = {name: snapshot.pin() for name, snapshot in self._snapshots.items()}
        for log in self._logs.values():
            log.must_exist()
        splits = tuple(split for part, _ in found.values() for split in part)
        position, complete_at = self._marks()
        self._log.begin({name: columns for name, (_, columns) in found.items()}, position, True)
        made = Pin(
            position=position,
            position_ms=self._log.ms_at(position),
            complete_at=complete_at,
            splits=splits,
            schema={name: schemas.to_json(columns) for name, (_, columns) in found.items()},
            identity=pin.identity(self._paths(), splits, self._sources()),
        )
        self._take(made)
        return made

    def restore(self, pin: Pin) -> None:
        self._take(pin)
        self._log.begin({n: schemas.from_json(s) for n, s in pin.schema.items()}, pin.position, False)

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        self._taken()
        if snapshot_open:
            for snapshot in self._snapshots.values():
                snapshot.check()
        pending = self._log.pending(position)
        latest = position
        for epoch in pending:
            latest = latest.join(Position.of(dict(epoch.cursors)))
        return UpstreamView(self._identity, latest, tuple(pending))

    def remembered(self, position: Position) -> str:
        """The files applied up to a position, for `recall` of a later process."""
        logs = {name: log.remembered(self._log.cursor(position, name)) for name, log in self._logs.items()}
        return json.dumps(logs) if logs else ""

    def recall(self, memory: str) -> None:
        """Take up what an earlier process remembered; what it says is compared at the next look."""
        for name, told in json.loads(memory).items():
            self._logs[name].recall(told)

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        self._taken()
        with spark_reading():
            return self._snapshots[table].scan(spark, reads)

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        self._taken()
        return self._snapshots[table].batches(spark, reads)

    def duckdb_sql(self, table: str, types: Mapping[str, str]) -> str:
        files = [pin.pinned_file(split) for split in self._taken().splits if split.table == table]
        return rows_sql(self._options.snapshot, self._snapshots[table].where, files, types)

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        self._taken()
        columns = schemas.from_json(schema)
        with spark_reading():
            found = self._log.changes(spark, table, after, up_to, columns)
            return _no_changes(spark, columns) if found is None else found

    def acknowledge(self, position: Position) -> None:
        """The files are their owner's: nothing is removed. What is remembered begins here from now on."""
        for name, log in self._logs.items():
            log.forget_before(self._log.cursor(position, name))

    def failure(self, exc: BaseException) -> BackfillError | None:
        """What a Spark failure means that rose while one of our frames was computed; None: not ours."""
        return from_spark(exc)

    def close(self) -> None:
        """Nothing is held open."""

    def _take(self, made: Pin) -> None:
        sources = json.loads(made.identity).get("sources")
        self._pin, self._identity = made, pin.identity(self._paths(), made.splits, sources)
        for name, form, log in self._debezium() if sources is not None else ():
            form.expect(sources.get(name), log.where.folder)
        for name, snapshot in self._snapshots.items():
            snapshot.take(made.splits, schemas.from_json(made.schema[name]))

    def _taken(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin

    def _marks(self) -> tuple[Position, Position | None]:
        """(S, the position that covers the load's end), from the change files that the options name."""
        named = self._options.snapshot
        if not self._logs:
            return START, None
        position = self._position_of(named.as_of, "as_of") if named.as_of else START
        if named.complete_at:
            return position, self._position_of(named.complete_at, "complete_at")
        if named.as_of:
            return position, None
        newest = max((name for log in self._logs.values() for name in log.names()), default=None)
        return position, None if newest is None else self._log.position_at(newest)

    def _position_of(self, name: str, option: str) -> Position:
        names = sorted({n for log in self._logs.values() for n in log.names()})
        if name not in names:
            near = difflib.get_close_matches(name, names, 3, 0.6) or names[:3]
            hint = f"name one of: {', '.join(near)}" if near else "there are no change files yet: leave it out"
            raise ConfigError("upstream", [f"upstream.snapshot.{option}: no change file '{name}'"], hint)
        return self._log.position_at(name)

    def _sources(self) -> Mapping[str, str | None] | None:
        """Of which table of the source each table's files are, as far as they say it; None without Debezium's."""
        found = {name: form.source(log.where, list(log.files().values())) for name, form, log in self._debezium()}
        return found or None

    def _debezium(self) -> list[tuple[str, Debezium, TableLog]]:
        logs = ((name, log.form, log) for name, log in self._logs.items())
        return [(name, form, log) for name, form, log in logs if isinstance(form, Debezium)]

    def _paths(self) -> Mapping[str, str]:
        paths = {f"snapshot {name}": s.where.uri for name, s in self._snapshots.items()}
        return paths | {f"changes {name}": log.where.uri for name, log in self._logs.items()}

    def _places_hold_tables(self) -> None:
        given = {"snapshot": self._options.snapshot.path}
        if self._options.changes:
            given["changes"] = self._options.changes.path
        faults = [
            f"upstream.{part}.path: '{path}' has no {{table}}, and the job has {len(self._tables)} tables"
            for part, path in given.items()
            if len(self._tables) > 1 and "{table}" not in path
        ]
        if faults:
            raise ConfigError("upstream", faults, 'write it like "data/{table}/snapshot"')


def _table_log(table: TableSpec, options: ChangesOptions) -> TableLog:
    declared: Columns = pin.declared(options.columns, table.name, "upstream.changes.columns")
    form: ChangeFormat = _FORMATS[options.format](table, options, declared)
    where, rise = place(options.path, table.name), options.epoch is None
    return TableLog(table.name, where, form, versions_rise=rise, consecutive=options.consecutive)


def _no_changes(spark: "SparkSession", columns: Columns) -> "DataFrame":
    marks = {"_op": "string", "_seq": "long", "_ms": "long"}
    return spark.createDataFrame(
        [], frames.struct_type({n: schemas.field(n, k) for n, k in marks.items()} | columns)
    )
