"""An epoch plan becomes durable Parquet files: one Spark job a table, counts taken as it writes.

The layout is `<staging>/<job>/<epoch>-<attempt>/<table>/{inserts,changes}`. An attempt's files are written once;
another attempt of the same epoch has another folder, so a JVM that outlives its runner writes where nobody reads.
"""

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable, Upstream
from backfill_cli.engine import transform
from backfill_cli.engine.orchestrator import StagedEpoch
from backfill_cli.engine.schemas import evolved, sink_schema
from backfill_cli.errors import BackfillError, BadData, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.config import JobConfig


class SparkStager:
    """Stages epochs of one job with one Spark session."""

    def __init__(self, spark: "SparkSession", upstream: Upstream, config: "JobConfig") -> None:
        self._spark = spark
        self._upstream = upstream
        self._config = config
        self._root = Path(config.job.staging) / config.job.name
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def folder(self, epoch: int, attempt: str) -> str:
        return str(self._root / f"{epoch}-{attempt}")

    def stage(self, plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> StagedEpoch:
        """Write the plan's rows; on a failure nothing of the attempt is left."""
        attempt = uuid.uuid4().hex[:12]
        folder = Path(self.folder(epoch, attempt))
        try:
            return self._stage(plan, attempt, folder, schemas)
        except BackfillError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except Exception as exc:
            shutil.rmtree(folder, ignore_errors=True)
            failure = self._upstream.failure(exc)
            if failure is None:
                raise
            raise failure from exc

    def _stage(self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]) -> StagedEpoch:
        window = plan.window
        now = evolved(schemas, dict(window.schema)) if window else dict(schemas)
        tables: dict[str, StagedTable] = {}
        reads: list[tuple[SnapshotRead, int]] = []
        changes_read = 0
        sinks: dict[str, str] = {}
        for table in self._config.tables:
            name = table.name
            sinks[name] = sink_schema(self._spark, now[name], self._config.transform_of(name))
            of_table = [r for r in plan.reads if r.table == name]
            if of_table:
                tables[name], closed = self._rows(name, of_table, folder / name / "inserts", folder)
                reads += closed
            elif window is not None:
                tables[name], read = self._changes(name, window, now[name], folder / name / "changes", folder)
                changes_read += read
            hit("table-staged")
        _sync(folder)
        return StagedEpoch(Staged(attempt, tables, tuple(reads), changes_read), now, sinks)

    def _rows(
        self, name: str, reads: Sequence[SnapshotRead], path: Path, folder: Path
    ) -> tuple[StagedTable, list[tuple[SnapshotRead, int]]]:
        """One table's slices, written; how many rows each slice held."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        worth = [r for r in reads if r.up_to is None or r.up_to > r.after]
        if not worth:
            return StagedTable(), [(r, 0) for r in reads]
        source = self._upstream.scan(self._spark, name, worth)
        open_ended = [i for i, r in enumerate(worth) if r.up_to is None]
        counts = [F.sum(F.when(F.col("_read") == i, 1).otherwise(0)).alias(f"read_{i}") for i in open_ended]
        before, after = Observation(), Observation()
        source = source.observe(before, *self._null_keys(name), *counts)
        if "_read" in source.columns:
            source = source.drop("_read")
        rows = transform.rows(source, self._config.transform_of(name))
        _write(rows.observe(after, F.count(F.lit(1)).alias("rows")), path)
        seen = before.get
        self._refuse_null_keys(name, seen, "the snapshot")
        written = {
            id(r): int(seen.get(f"read_{i}") or 0) if r.up_to is None else r.up_to - r.after
            for i, r in enumerate(worth)
        }
        closed = [(r, written.get(id(r), 0)) for r in reads]
        return StagedTable(inserts=_listed(path, folder), rows=int(after.get.get("rows") or 0)), closed

    def _changes(
        self, name: str, window: ChangeWindow, schema: str, path: Path, folder: Path
    ) -> tuple[StagedTable, int]:
        """One table's net changes of a window, written; how many changes there were before netting."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        changes = self._upstream.changes(self._spark, name, window.after, window.up_to, schema)
        before, after = Observation(), Observation()
        counted = [F.count(F.lit(1)).alias("changes"), F.max("_ms").alias("ms")]
        changes = changes.observe(before, *self._null_keys(name), *counted)
        net = transform.net(changes, self._config.table(name).key, self._config.transform_of(name))
        ops = [F.sum(F.when(F.col("_op") == op, 1).otherwise(0)).alias(op) for op in ("U", "D")]
        _write(net.observe(after, *ops), path)
        seen, written = before.get, after.get
        self._refuse_null_keys(name, seen, "the change log")
        staged = StagedTable(
            changes=_listed(path, folder),
            changed=int(written.get("U") or 0),
            deleted=int(written.get("D") or 0),
            max_source_ms=seen.get("ms"),
        )
        return staged, int(seen.get("changes") or 0)

    def _null_keys(self, name: str) -> list[Any]:
        from pyspark.sql import functions as F

        key = self._config.table(name).key
        return [
            F.sum(F.when(F.col("`" + c.replace("`", "``") + "`").isNull(), 1).otherwise(0)).alias(f"null_{i}")
            for i, c in enumerate(key)
        ]

    def _refuse_null_keys(self, name: str, seen: Mapping[str, Any], where: str) -> None:
        for i, column in enumerate(self._config.table(name).key):
            if seen.get(f"null_{i}"):
                raise BadData(
                    f"table {name!r}: key column {column!r} is NULL in {seen[f'null_{i}']} row(s) of {where}",
                    "mend the upstream, or choose a key without NULLs",
                )

    def intact(self, epoch: int, staged: Staged) -> bool:
        folder = Path(self.folder(epoch, staged.attempt))
        files = [f for t in staged.tables.values() for f in (*t.inserts, *t.changes)]
        return all((folder / f.path).is_file() and (folder / f.path).stat().st_size == f.size_bytes for f in files)

    def discard(self, epoch: int, attempt: str) -> None:
        shutil.rmtree(self.folder(epoch, attempt), ignore_errors=True)

    def sweep(self, keep: Sequence[tuple[int, str]]) -> None:
        """Remove what dead attempts left; `keep` are the (epoch, attempt) that may still be applied."""
        kept = {f"{epoch}-{attempt}" for epoch, attempt in keep}
        for folder in self._root.glob("*-*"):
            if folder.name not in kept and folder.name.split("-")[0].isdigit():
                shutil.rmtree(folder, ignore_errors=True)


def _write(frame: "DataFrame", path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise Transient(f"staging folder {path.parent}: {exc.strerror}", "check job.staging and the disk") from exc
    # lz4_raw: 10 % quicker to write than snappy, and DuckDB loads it as fast
    frame.write.option("compression", "lz4_raw").parquet(str(path))


def _listed(path: Path, folder: Path) -> tuple[StagedFile, ...]:
    files = sorted(path.glob("*.parquet"))
    return tuple(StagedFile(str(f.relative_to(folder)), f.stat().st_size) for f in files)


def _sync(folder: Path) -> None:
    """Every file and folder of the attempt is on disk: preparing it is a promise."""
    for path in (folder, *folder.rglob("*")):
        if path.exists():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def expected(
    spark: "SparkSession",
    upstream: Upstream,
    config: "JobConfig",
    pin: Pin,
    checkpoint: Checkpoint,
    table: SinkTable,
) -> "DataFrame":
    """f(upstream at the checkpoint) of one table: the sink's columns, unique by key.

    The consumed prefix of each split, without the keys that the log changed up to the position, and with what the
    log made of them.
    """
    name = table.name
    shape = config.transform_of(name)
    reads = [
        SnapshotRead(name, split, 0, None if progress.status == SplitStatus.CONSUMED else progress.after)
        for (of, split), progress in checkpoint.splits.items()
        if of == name and progress.after > 0
    ]
    columns = list(_columns(table))
    base = _empty(spark, table)
    if reads:
        base = transform.rows(upstream.scan(spark, name, reads).drop("_read"), shape)
    if checkpoint.position == pin.position:
        return base.select(*columns)
    changes = upstream.changes(spark, name, pin.position, checkpoint.position, checkpoint.schemas[name])
    last = transform.net(changes, config.table(name).key, shape)
    untouched = base.join(last.select(*table.key), list(table.key), "left_anti")
    changed = last.where("_op = 'U'").select(*columns)
    return untouched.unionByName(changed, allowMissingColumns=True).select(*columns)


def _columns(table: SinkTable) -> list[str]:
    import json

    return ["`" + f["name"].replace("`", "``") + "`" for f in json.loads(table.schema)["fields"]]


def _empty(spark: "SparkSession", table: SinkTable) -> "DataFrame":
    import json

    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType.fromJson(json.loads(table.schema)))
