"""An epoch plan becomes durable Parquet files: one Spark job a table, counts taken as it writes.

They are in `<staging>/<job>/<epoch>-<attempt>/<table>/`, in folders of their own by what wrote them; which of them
count is what `StagedTable` names. An attempt's files are written once; another attempt of the same epoch has
another folder, so a JVM that outlives its runner writes where nobody reads.
"""

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import Upstream
from backfill_cli.engine.loop.ports import StagedEpoch
from backfill_cli.engine.staging import transform, workers
from backfill_cli.engine.staging.files import footers, listed, no_room, require_all, sync, write, write_net
from backfill_cli.engine.staging.partitions import PartitionStager
from backfill_cli.engine.staging.schemas import evolved, sink_schema
from backfill_cli.engine.verify.folder import sweep as sweep_copies
from backfill_cli.errors import BackfillError, BadData
from backfill_cli.failpoint import hit
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged, StagedTable
from backfill_cli.spark.names import quoted

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
            failure = self._upstream.failure(exc) or no_room(exc, self._root)
            if failure is None:
                raise
            raise failure from exc

    def _stage(self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]) -> StagedEpoch:
        if self._upstream.capabilities.partitioned:
            return self._stage_partitions(plan, attempt, folder, schemas)
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
        sync(folder)
        return StagedEpoch(Staged(attempt, tables, tuple(reads), changes_read), now, sinks)

    def _stage_partitions(
        self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]
    ) -> StagedEpoch:
        (table,) = self._config.tables
        source = schemas[table.name]
        done = PartitionStager(self._spark, self._upstream, self._config).stage(plan, source, folder)
        hit("table-staged")
        if done.tables:
            sync(folder)
        shape = sink_schema(self._spark, source, self._config.transform_of(table.name))
        return StagedEpoch(Staged(attempt, done.tables, done.reads, done.live), dict(schemas), {table.name: shape})

    def _rows(
        self, name: str, reads: Sequence[SnapshotRead], path: Path, folder: Path
    ) -> tuple[StagedTable, list[tuple[SnapshotRead, int]]]:
        """One table's slices, written; how many rows each slice held."""
        worth = [r for r in reads if r.up_to is None or r.up_to > r.after]
        if not worth:
            return StagedTable(), [(r, 0) for r in reads]
        shape, key = self._config.transform_of(name), self._config.sink_key(name)
        made = None
        if shape.is_empty:
            made = workers.made_in_workers(self._upstream, self._spark, name, worth)
        if made is not None:
            done = workers.write(self._spark, made, path, folder, key)
            files, found, counts = done.files, done.found, [done.rows.get(i, 0) for i in range(len(worth))]
        else:
            source, counted = self._counted(self._upstream.scan(self._spark, name, worth), worth)
            written = write(transform.rows(source.drop("_read"), shape), path)
            files, counts = listed(path, folder), counted()
            found = footers(folder, files, key)
            require_all(path, written["rows"], found)
        self._refuse_null_keys(name, key, [found.nulls[column] for column in key], "the snapshot")
        held = dict(zip(map(id, worth), counts, strict=True))
        return StagedTable(inserts=files, rows=found.rows), [(r, held.get(id(r), 0)) for r in reads]

    def _counted(
        self, source: "DataFrame", reads: Sequence[SnapshotRead]
    ) -> "tuple[DataFrame, Callable[[], list[int]]]":
        """The rows of `reads`, and how many each held: known before, but for those that are open-ended."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        open_ended = [i for i, r in enumerate(reads) if r.up_to is None]
        if not open_ended:
            return source, lambda: [r.up_to - r.after for r in reads if r.up_to is not None]
        seen = Observation()
        counts = [F.sum(F.when(F.col("_read") == i, 1).otherwise(0)).alias(f"read_{i}") for i in open_ended]
        return source.observe(seen, *counts), lambda: [
            int(seen.get[f"read_{i}"] or 0) if r.up_to is None else r.up_to - r.after for i, r in enumerate(reads)
        ]

    def _changes(
        self, name: str, window: ChangeWindow, schema: str, path: Path, folder: Path
    ) -> tuple[StagedTable, int]:
        """One table's net changes of a window, written; how many changes there were before netting."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        changes = self._upstream.changes(self._spark, name, window.after, window.up_to, schema)
        read = Observation()
        changes = changes.observe(read, *self._null_keys(name), F.count(F.lit(1)).alias("changes"))
        key = self._config.table(name).key
        net = transform.net(changes, key, self._config.transform_of(name))
        staged = write_net(net, path, folder)
        seen = read.get
        self._refuse_null_keys(name, key, [seen.get(f"null_{i}") for i in range(len(key))], "the change log")
        return staged, int(seen.get("changes") or 0)

    def _null_keys(self, name: str) -> list[Any]:
        from pyspark.sql import functions as F

        key = self._config.table(name).key
        return [F.sum(F.when(quoted(c).isNull(), 1).otherwise(0)).alias(f"null_{i}") for i, c in enumerate(key)]

    def _refuse_null_keys(self, name: str, key: Sequence[str], nulls: Sequence[int | None], where: str) -> None:
        for column, count in zip(key, nulls, strict=True):
            if count:
                raise BadData(
                    f"table {name!r}: key column {column!r} is NULL in {count} row(s) of {where}",
                    "correct the upstream, or choose a key without NULLs",
                )

    def intact(self, epoch: int, staged: Staged) -> bool:
        folder = Path(self.folder(epoch, staged.attempt))
        files = [f for t in staged.tables.values() for f in (*t.inserts, *t.changes)]
        return all((folder / f.path).is_file() and (folder / f.path).stat().st_size == f.size_bytes for f in files)

    def discard(self, epoch: int, attempt: str) -> None:
        shutil.rmtree(self.folder(epoch, attempt), ignore_errors=True)

    def sweep(self, keep: Sequence[tuple[int, str]]) -> None:
        """Remove what dead attempts left; `keep` are the (epoch, attempt) that may still be applied.

        So is what a `verify` left that was killed.
        """
        sweep_copies(self._root)
        kept = {f"{epoch}-{attempt}" for epoch, attempt in keep}
        for folder in self._root.glob("*-*"):
            if folder.name not in kept and folder.name.split("-")[0].isdigit():
                shutil.rmtree(folder, ignore_errors=True)
