"""Delta tables as a source: a pinned version, and the change data feed after it, read many versions at a time."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs as pafs

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import START_OVER, BackfillError, HistoryGone, UsageError, in_config, sql
from backfill_cli.lake.damage import FROM_COPY, Stored
from backfill_cli.lake.delta import is_name
from backfill_cli.lake.delta.commits import FEED, columns_of_delta, commit, faulty
from backfill_cli.lake.delta.edge import Session, Where, beside, delta_errors, located, named_in
from backfill_cli.lake.delta.plain import add_actions, column_values, deleted_rows, plain_files, version_files
from backfill_cli.lake.key_ranges import FileKeys, point_of
from backfill_cli.lake.options import moment
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.lake.upstream import LakeUpstream, PinnedTable, require_key
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import Columns
from backfill_cli.model.units import spell_known
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import GONE, from_spark, spark_reading
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.delta import DeltaOptions
from backfill_cli.upstreams.delta.log import FollowedTable, require_names, version_of


class DeltaSourceTable(FollowedTable):
    """A table at its pinned version, and the changes since."""

    def __init__(self, spec: TableSpec, locate: Callable[[], Where]) -> None:
        super().__init__(spec, locate)
        self._version = -1
        self._frame: DataFrame | None = None

    def pinned(self, version: int | str) -> PinnedTable:
        """Read from the log only. The identity's `physical`: column -> its name in the files."""
        where, opened = self.where, self._opened(version)
        number = opened.version()
        made = commit(where, number)
        ms = made.ms if made is not None else int(opened.history(1)[0]["timestamp"])
        if (at := moment(str(version))) is not None and ms > at.timestamp() * 1000:
            raise UsageError(
                f"{where.shown}: no version is as old as {version}, the oldest is {number}",
                "name a later time",
            )
        metadata = opened.metadata()
        if metadata.configuration.get(FEED, "").lower() != "true":
            raise UsageError(
                f"{where.shown}: version {number} has no change data feed: changes after it cannot be followed",
                sql(f"ALTER TABLE delta.`{where.shown}` SET TBLPROPERTIES ({FEED} = true)")
                + ", and pin the version it creates",
            )
        columns, physical = columns_of_delta(opened.schema().to_json())
        require_names(where, columns)
        require_key(where.shown, self.spec, columns)
        self._require_files(opened)
        key, deleted = self.spec.key[0], deleted_rows(where, opened)
        files = list(_file_keys(add_actions(opened), key, physical[key], columns[key]["type"]))
        counted = deleted is not None and all(file.rows or not file.size_bytes for file in files)
        splits = self.splits(files, sum((deleted or {}).values()), counted)
        identity = {"id": str(metadata.id), "version": number, "ms": ms, "physical": physical}
        return PinnedTable(number, ms, columns, splits, identity, dict(metadata.configuration))

    def _opened(self, version: int | str) -> DeltaTable:
        if isinstance(version, int):
            return self.where.open(version)
        opened = self.where.open()
        if (at := moment(version)) is not None:
            with delta_errors(self.where.shown):
                opened.load_as_version(at)
        return opened

    def _require_files(self, opened: DeltaTable) -> None:
        """The version's files exist, of those that the newest version lacks: VACUUM may have removed some.

        Raises HistoryGone naming one. Without this check counts would come from statistics while rows lack.
        """
        where, newest = self.where, self.where.open()
        if newest.version() == opened.version():
            return
        now = set(_paths(newest))
        older = [path for path in _paths(opened) if path not in now]
        with delta_errors(where.shown):
            infos = where.fs.get_file_info([f"{where.folder}/{path}" for path in older])
        gone = [path for path, info in zip(older, infos, strict=True) if info.type == pafs.FileType.NotFound]
        if gone:
            raise HistoryGone(
                f"{where.shown}: version {opened.version()} lacks {len(gone)} of its files: VACUUM removed "
                f"{gone[0]}",
                in_config(f'pin a newer one: upstream.version = "latest" (now {newest.version()})'),
            )

    def go_to(self, cursor: Cursor | None) -> None:
        self._version = cursor if isinstance(cursor, int) else -1
        self._frame = None

    def rows(self, spark: SparkSession) -> DataFrame:
        if self._frame is None:  # planning it reads the log: once a process
            self._frame = self._load(spark, self._version)
        return self._frame

    def rows_at(self, spark: SparkSession, cursor: Cursor | None) -> DataFrame:
        self.require_read(version_of(cursor))
        return self._load(spark, version_of(cursor))

    def _load(self, spark: SparkSession, version: int) -> DataFrame:
        return spark.read.format("delta").option("versionAsOf", version).load(self.where.uri)

    def find_plain(self, columns: Columns) -> PlainFiles | None:
        return plain_files(self.where, self._version, self.spec.key[0], columns)

    def check(self) -> None:
        """Nothing: a file that VACUUM took fails the read, and its log tells the rest."""

    def changes(
        self, spark: SparkSession, after: Cursor | None, up_to: Cursor | None, columns: Columns
    ) -> DataFrame | None:
        first, last = version_of(after) + 1, version_of(up_to)
        if last < first:
            return None
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        with spark_reading(FROM_COPY):
            told = feed.option("startingVersion", first).option("endingVersion", last).load(self.where.uri)
        self.require_log(last)
        gone = F.col("_change_type").isin("delete", "update_preimage")
        image = F.col("_change_type") == "update_preimage"
        return told.select(
            F.when(gone, "D").otherwise("U").alias(own.OP),
            # a commit changes a row once; what it removes comes before what it adds
            F.struct(F.col("_commit_version").alias("version"), (~gone).alias("puts"), image.alias("image")).alias(
                own.SEQ
            ),
            F.unix_millis("_commit_timestamp").alias(own.MS),
            *(quoted(name) for name in columns),
        )

    def warning(self) -> str | None:
        """What VACUUM may remove before the job reads it. None if the table was not pinned here."""
        if self.held is None:
            return None
        kept = self.held.properties.get("delta.deletedFileRetentionDuration", "interval 1 week")
        log = self.held.properties.get("delta.logRetentionDuration", "interval 30 days")
        return (
            f"table {self.spec.name!r}: VACUUM may remove files of version {self.held.cursor}, and changes, that "
            f"are older than {kept}; its log is kept for {log}: reading the snapshot, and any pause, must take "
            "less (delta.deletedFileRetentionDuration, delta.logRetentionDuration)"
        )

    def fault(self, files: Callable[[], Sequence[Stored]]) -> BackfillError | None:
        return faulty(self.where, files, file_gone)

    def version_files(self) -> Sequence[Stored]:
        return version_files(self.where, self._version)


def _paths(opened: DeltaTable) -> list[str]:
    paths = add_actions(opened).column("path").to_pylist()
    return [unquote(path) for path in paths if "://" not in path]


def _file_keys(files: pa.Table, key: str, physical: str, kind: Any) -> Iterator[FileKeys]:
    of_partition = f"min.{physical}" not in files.column_names
    names = [f"partition.{key}"] * 2 if of_partition else [f"min.{physical}", f"max.{physical}"]
    lows, highs, rows, sizes = (column_values(files, name) for name in (*names, "num_records", "size_bytes"))
    text = kind if isinstance(kind, str) else ""
    for low, high, count, size in zip(lows, highs, rows, sizes, strict=True):
        yield FileKeys(point_of(low, text), point_of(high, text), count or 0, size)


class DeltaUpstream(LakeUpstream[DeltaSourceTable]):
    kind = "delta"
    keeps = (
        "the files of the pinned version until they are read (VACUUM removes what is older than its retention), "
        "the change data feed until it is applied (logs and change files are kept by the table's retentions)"
    )

    def __init__(self, options: DeltaOptions, tables: Sequence[TableSpec]) -> None:
        def found(table: TableSpec) -> DeltaSourceTable:
            return DeltaSourceTable(table, partial(place_of, options.table, table.name, lambda: self._session()))

        super().__init__(map(found, tables), options.version)

    def acknowledge(self, position: Position) -> None:
        """The table keeps its own log; what was parsed of it is forgotten."""
        for name, one in self.tables.items():
            one.applied(version_of(position.get(name)))

    def remembered(self, position: Position) -> str:
        """The commit of each table's version."""
        versions = {name: version_of(position.get(name)) for name in self.tables}
        found = {name: (version, self.tables[name].crc(version)) for name, version in versions.items()}
        return json.dumps({name: one for name, one in found.items() if one[1] is not None})

    def recall(self, memory: str) -> None:
        """Receives what an earlier process read: a restored table can have another commit of that version."""
        for name, (version, crc) in json.loads(memory).items():
            if name in self.tables:
                self.tables[name].recall(version, crc)

    def rejoined(self, memory: str, tables: Collection[str], before: str = "") -> str:
        known = {name: one for name, one in json.loads(memory or "{}").items() if name not in tables}
        return json.dumps(known) if known else ""

    def failure(self, exc: Exception) -> BackfillError | None:
        """Our error for a failure over these tables; where its words do not tell, their files do."""
        tables = self.tables.values()
        where = [one.where for one in tables]
        if (known := vacuumed(exc, where) or from_spark(exc, FROM_COPY)) is not None:
            return known
        read = (one.fault(one.version_files) for one in tables)
        changed = (one.fault(one.pending_files) for one in tables)
        return next(filter(None, read), None) or cleaned_up(exc, where) or next(filter(None, changed), None)


_FAILURES = {
    "DELTA_MISSING_CHANGE_DATA": "its change data feed was off for a time: some changes are not in it",
    "DELTA_VERSION_NOT_FOUND": "log cleanup removed a version that is not applied yet",
    "DELTA_LOG_FILE_NOT_FOUND": "log cleanup removed a version that is not applied yet",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE": "its columns changed in a way that its feed cannot show",
}


def cleaned_up(exc: Exception, tables: Sequence[Where]) -> HistoryGone | None:
    """What a failure says of the change feed: turned off, or cleaned up. None: nothing of that."""
    text = str(exc)
    told = next((meaning for mark, meaning in _FAILURES.items() if mark in text), None)
    if told is None:
        return None
    where = named_in(text, tables)
    shown = ", ".join(one.shown for one in tables) if where is None else where.shown
    return HistoryGone(f"{shown}: {told}", START_OVER)


def place_of(template: str, table: str, session: Session) -> Where:
    """The table's folder. Raises UsageError where the option names a catalog that has no such table."""
    if not is_name(template):
        return Where.of(template, table)
    name = template.replace("{table}", table)
    found = located(session(), name)
    if found is None:
        known = spell_known(name, beside(session(), name))
        raise UsageError(f"{name}: this Delta table does not exist{known}", in_config("correct upstream.table"))
    return found


def vacuumed(exc: Exception, tables: Sequence[Where]) -> BackfillError | None:
    """What a missing file of one of these tables means; None: not that."""
    text = str(exc)
    if not any(name in text for name in ("FILE_NOT_EXIST", "FileNotFoundException", GONE)):
        return None
    where = named_in(text, tables)
    return None if where is None else file_gone(where)


def file_gone(where: Where, path: str = "") -> HistoryGone:
    return HistoryGone(
        f"{where.shown}: VACUUM removed a file that was still to be read{path and f': {path}'}",
        START_OVER
        + "; keep files longer than the job needs: "
        + sql(
            f"ALTER TABLE delta.`{where.shown}` SET TBLPROPERTIES (delta.deletedFileRetentionDuration = "
            "'interval 30 days')"
        ),
    )
