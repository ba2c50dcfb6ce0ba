"""Turns an epoch plan into durable Parquet files: one Spark job per table, counting rows as it writes.

The files are in `<staging>/<job>/<epoch>-<attempt>/<table>/`, in separate folders by what wrote them; only those
that `StagedTable` names count. An attempt's files are written once; another attempt of the same epoch has another
folder, so a JVM that outlives its runner writes where nobody reads.
"""

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import TakenTable, TakingUpstream, Upstream, own
from backfill_cli.engine.loop.ports import StagedEpoch
from backfill_cli.engine.staging import taking, transform, workers
from backfill_cli.engine.staging.files import (
    copy_renamed,
    footers,
    is_whole,
    listed,
    no_room,
    older_names,
    require_all,
    sync,
    write,
    write_net,
)
from backfill_cli.engine.staging.partitions import PartitionStager
from backfill_cli.engine.staging.schemas import evolved, require_apart, require_same_meaning, sink_schema
from backfill_cli.engine.staging.scratch import sweep as sweep_copies
from backfill_cli.errors import START_OVER, BackfillError, BadData
from backfill_cli.failpoint import hit
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.spark.failures import CHANGES_HINT
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from backfill_cli.config import JobConfig


RENAMED = "renamed"
"""In an attempt's folder: copies of files that an older version staged, whose columns have the names of now."""


class SparkStager:
    """Stages epochs of one job with one Spark session, opened by `begin`: a recovery needs none."""

    def __init__(self, session: "Callable[[], SparkSession]", upstream: Upstream, config: "JobConfig") -> None:
        self._session = session
        self._upstream = upstream
        self._config = config
        self._root = Path(config.job.staging) / config.job.name
        self._shapes: dict[str, tuple[str, str]] = {}  # by table: its newest source schema, and the sink's for it

    @cached_property
    def _spark(self) -> "SparkSession":
        spark = self._session()
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        return spark

    def _sink_schema(self, table: str, source: str, before: str) -> str:
        """Of one table. Spark is called once per schema: a call takes 20 ms, at 1,000 tables 20 s per epoch.

        before: the source's schema so far.
        """
        known, shape = self._shapes.get(table, ("", ""))
        if known != source:
            transform = self._config.transform_of(table)
            shape = sink_schema(self._spark, source, transform)
            require_apart(table, shape)
            require_same_meaning(self._spark, table, before, source, transform)
            self._shapes[table] = source, shape
        return shape

    def begin(self) -> None:
        """Spark is running from now on, so that no barrier pays for its start."""
        _ = self._spark

    def folder(self, epoch: int, attempt: str) -> str:
        return str(self._root / f"{epoch}-{attempt}")

    def stage(self, plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> StagedEpoch:
        """Writes the plan's rows; after a failure nothing of the attempt is left."""
        attempt = uuid.uuid4().hex[:12]
        folder = Path(self.folder(epoch, attempt))
        try:
            return self._stage(plan, attempt, folder, schemas)
        except BackfillError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except Exception as exc:
            shutil.rmtree(folder, ignore_errors=True)
            failure = (
                no_room(exc, self._root) or self._upstream.failure(exc) or transform.failure(exc, self._config)
            )
            if failure is None:
                raise
            raise failure from exc

    def _stage(self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]) -> StagedEpoch:
        if self._upstream.capabilities.partitioned:
            return self._stage_partitions(plan, attempt, folder, schemas)
        if isinstance(self._upstream, TakingUpstream):
            return self._stage_taken(self._upstream, plan, attempt, folder, schemas)
        window = plan.window
        now = evolved(schemas, dict(window.schema)) if window else dict(schemas)
        tables: dict[str, StagedTable] = {}
        reads: list[tuple[SnapshotRead, int]] = []
        changes_read = images = 0
        sinks: dict[str, str] = {}
        for table in self._config.tables:
            name = table.name
            sinks[name] = self._sink_schema(name, now[name], schemas[name])
            of_table = [r for r in plan.reads if r.table == name]
            if of_table:
                closed = self._upstream.closed(name, of_table)
                tables[name], counts = self._rows(name, closed, folder / name / "inserts", folder)
                reads += zip(closed, counts, strict=True)
            elif window is not None:
                path = folder / name / "changes"
                tables[name], read, before = self._changes(name, window, now[name], path, folder)
                changes_read, images = changes_read + read, images + before
            hit("table-staged")
        sync(folder)
        staged = Staged(attempt, tables, tuple(reads), changes_read, window, images=images)
        return StagedEpoch(staged, now, sinks)

    def _stage_taken(
        self, upstream: TakingUpstream, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]
    ) -> StagedEpoch:
        """All tables' rows first, then the log past them: the changes prevail over rows with the same key."""
        rows: dict[str, StagedTable] = {}
        reads: list[tuple[SnapshotRead, int]] = []
        for name in dict.fromkeys(read.table for read in plan.reads):
            closed = self._upstream.closed(name, [r for r in plan.reads if r.table == name])
            rows[name], counts = self._rows(name, closed, folder / name / "inserts", folder)
            reads += zip(closed, counts, strict=True)
            hit("table-staged")
        taken = taking.take(upstream, self._spark, plan, reads, schemas, folder)
        now = evolved(schemas, taken.schemas)
        tables: dict[str, StagedTable] = {}
        sinks: dict[str, str] = {}
        for table in self._config.tables:
            shape = self._config.transform_of(table.name)
            sinks[table.name] = self._sink_schema(table.name, now[table.name], schemas[table.name])
            of_table = taken.tables.get(table.name, TakenTable())
            changes = taking.staged(self._spark, table.name, of_table, table.key, shape, folder)
            tables[table.name] = taking.over(rows.get(table.name, StagedTable()), changes)
            hit("table-staged")
        sync(folder)
        read = sum(one.changes for one in taken.tables.values())
        return StagedEpoch(Staged(attempt, tables, tuple(reads), read, taken.window), now, sinks)

    def _stage_partitions(
        self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]
    ) -> StagedEpoch:
        (table,) = self._config.tables
        source = schemas[table.name]
        done = PartitionStager(self._spark, self._upstream, self._config).stage(plan, source, folder)
        hit("table-staged")
        if done.tables:
            sync(folder)
        shape = self._sink_schema(table.name, source, source)
        staged = Staged(attempt, done.tables, done.reads, done.live, plan.window)
        return StagedEpoch(staged, dict(schemas), {table.name: shape})

    def _rows(
        self, name: str, reads: Sequence[SnapshotRead], path: Path, folder: Path
    ) -> tuple[StagedTable, list[int]]:
        """Writes one table's closed reads; also returns how many rows each held."""
        known = [self._upstream.row_count(read) for read in reads]
        worth = [read for read, rows in zip(reads, known, strict=True) if rows != 0]
        if not worth:
            return StagedTable(), [0 for _ in reads]
        shape, key = self._config.transform_of(name), self._config.sink_key(name)
        made = None
        if shape.is_empty:
            made = workers.made_in_workers(self._upstream, self._spark, name, worth)
        if made is not None:
            done = workers.write(self._spark, made, path, folder, key)
            files, found, counts = done.files, done.found, [done.rows.get(i, 0) for i in range(len(worth))]
        else:
            source = self._upstream.scan(self._spark, name, worth)
            source, counted = self._counted(source, [rows for rows in known if rows != 0])
            written = write(transform.rows(source.drop(own.READ), shape), path)
            files, counts = listed(path, folder), counted()
            found = footers(folder, files, key)
            require_all(path, written["rows"], found)
        nulls = [found.nulls[column] for column in key]
        refuse_null_keys_of_snapshot(name, key, nulls)
        held = iter(counts)
        return StagedTable(inserts=files, rows=found.rows), [0 if rows == 0 else next(held) for rows in known]

    def _counted(
        self, source: "DataFrame", known: Sequence[int | None]
    ) -> "tuple[DataFrame, Callable[[], list[int]]]":
        """The rows of some reads, and a function for each read's row count. known: row counts from metadata."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        unknown = [i for i, rows in enumerate(known) if rows is None]
        if not unknown:
            return source, lambda: [rows for rows in known if rows is not None]
        seen = Observation()
        counts = [F.sum(F.when(F.col(own.READ) == i, 1).otherwise(0)).alias(f"read_{i}") for i in unknown]

        def counted() -> list[int]:
            told = seen.get  # every call fetches all of them from the driver
            return [int(told[f"read_{i}"] or 0) if rows is None else rows for i, rows in enumerate(known)]

        return source.observe(seen, *counts), counted

    def _changes(
        self, name: str, window: ChangeWindow, schema: str, path: Path, folder: Path
    ) -> tuple[StagedTable, int, int]:
        """Writes one table's net changes of a window; also returns how many changes and images it had."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        changes = self._upstream.changes(self._spark, name, window.after, window.up_to, schema)
        read = Observation()
        key = self._config.table(name).key
        counted = [F.count(column).alias(f"null_{i}") for i, column in enumerate(null_keys(key))]
        counted += [F.count(F.when(transform.is_image(changes), 1)).alias("images")]
        changes = changes.observe(read, *counted, F.count(F.lit(1)).alias("rows"))
        net = transform.net(changes, key, self._config.transform_of(name))
        staged = write_net(net, path, folder)
        seen = read.get
        nulls = [seen.get(f"null_{i}") for i in range(len(key))]
        refuse_null_keys_of_log(self._upstream, name, key, nulls)
        images = int(seen.get("images") or 0)
        return staged, int(seen.get("rows") or 0) - images, images

    def intact(self, epoch: int, staged: Staged) -> bool:
        folder = Path(self.folder(epoch, staged.attempt))
        return all(is_whole(folder / f.path, f.size_bytes) for f in _files(staged))

    def current_folder(self, epoch: int, staged: Staged) -> str:
        folder = Path(self.folder(epoch, staged.attempt))
        changes = [f.path for t in staged.tables.values() for f in t.changes]
        if not any(older_names(folder / path) for path in changes):
            return str(folder)
        for file in _files(staged):
            names = older_names(folder / file.path) if file.path in changes else {}
            copy_renamed(folder / file.path, folder / RENAMED / file.path, names)
        return str(folder / RENAMED)

    def discard(self, epoch: int, attempt: str) -> None:
        shutil.rmtree(self.folder(epoch, attempt), ignore_errors=True)

    def sweep(self, keep: Sequence[tuple[int, str]]) -> None:
        """Removes what dead attempts left, except `keep`: each (epoch, attempt) that may still be applied.

        Also removes what a killed `verify` left.
        """
        sweep_copies(self._root)
        kept = {f"{epoch}-{attempt}" for epoch, attempt in keep}
        for folder in self._root.glob("*-*"):
            if folder.name not in kept and folder.name.split("-")[0].isdigit():
                shutil.rmtree(folder, ignore_errors=True)


def null_keys(key: Sequence[str]) -> "list[Column]":
    """For each key column, an expression that is not NULL where the column is NULL: for counting."""
    from pyspark.sql import functions as F

    return [F.when(quoted(column).isNull(), 1) for column in key]


def refuse_null_keys(table: str, key: Sequence[str], nulls: Sequence[int | None], where: str, hint: str) -> None:
    """nulls: the number of NULLs in each key column. Raises BadData naming the first column that has any."""
    for column, count in zip(key, nulls, strict=True):
        if count:
            raise BadData(f"table {table!r}: key column {column!r} is NULL in {count} row(s) of {where}", hint)


def refuse_null_keys_of_snapshot(table: str, key: Sequence[str], nulls: Sequence[int | None]) -> None:
    """As `refuse_null_keys`, for rows of the snapshot."""
    over = f"{START_OVER}, with the snapshot corrected or with a key without NULLs"
    refuse_null_keys(table, key, nulls, "the snapshot", over)


def refuse_null_keys_of_log(log: Upstream, table: str, key: Sequence[str], nulls: Sequence[int | None]) -> None:
    """As `refuse_null_keys`, for changes: what is in a log stays there, unless it can be corrected."""
    over = (
        f"correct these rows upstream, then {START_OVER}, from a snapshot taken after that: the "
        "change log keeps such changes"
    )
    hint = CHANGES_HINT if log.capabilities.correctable_log else over
    refuse_null_keys(table, key, nulls, "the change log", hint)


def _files(staged: Staged) -> list[StagedFile]:
    return [file for table in staged.tables.values() for file in (*table.inserts, *table.changes)]
