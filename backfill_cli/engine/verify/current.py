"""f(upstream at a checkpoint) for an upstream that shows only its current state: `contracts.TakingUpstream`.

Its current rows are read, and then its log from the checkpoint to past those reads: a key that the log does not
contain has not changed in between. The state at the checkpoint of a key that it does contain is no longer known:
such keys are not compared, but counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkCopy, SinkTable, TakenTable, TakingUpstream, Upstream, own
from backfill_cli.engine.loop.epoch import recall
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.files import folder_made, write
from backfill_cli.errors import BackfillError, LogFirst
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.schema import names_of
from backfill_cli.model.split import SplitStatus
from backfill_cli.spark.names import backticked, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.config import JobConfig


@dataclass
class CurrentRows:
    """folder: for what is read, shared with Spark. live: a runner has the job. only: tables, empty for all.

    not_compared: see VerifyReport.
    """

    spark: "SparkSession"
    upstream: Upstream
    config: "JobConfig"
    folder: Path
    live: bool
    only: tuple[str, ...] = ()
    not_compared: dict[str, int] = field(default_factory=dict)
    _taken: Mapping[str, TakenTable] | None = None

    def beside(self, copy: SinkCopy) -> "Callable[[SinkTable, Checkpoint], DataFrame]":
        """As `Expected`: a table's rows at the checkpoint of the copy."""
        return partial(self._rows, copy)

    def _rows(self, copy: SinkCopy, table: SinkTable, at: Checkpoint) -> "DataFrame":
        if self._taken is None:
            with self._log_first():
                self._taken = self._read(at)
        columns = [backticked(name) for name in names_of(table.schema)]
        now = self.spark.read.parquet(str(self.folder / table.name)).select(*columns)
        taken = self._taken.get(table.name, TakenTable())
        if taken.truncated:
            raise self._applied_first(f"table {table.name!r} was truncated since the checkpoint")
        if not taken.files:
            return now
        source, key = self.config.table(table.name).key, list(table.key)
        changes = self.spark.read.parquet(*(str(self.folder / "taken" / file.path) for file in taken.files))
        renamed = [quoted(theirs).alias(ours) for theirs, ours in zip(source, key, strict=True)]
        changed = changes.select(*renamed).distinct()
        self.not_compared[table.name] = taken.changed + taken.deleted if taken.netted else changed.count()
        held = copy.frame(self.spark, table, names_of(table.schema), None)
        return now.join(changed, key, "left_anti").unionByName(held.join(changed, key, "left_semi"))

    def _read(self, at: Checkpoint) -> Mapping[str, TakenTable]:
        """Writes all rows that the job had read to files, and takes the log from the checkpoint on."""
        recall(self.upstream, at)
        # What has ended the job, or would, is named as a run names it.
        self.upstream.observe(at.position, snapshot_open=False)
        for table in self.config.tables:
            if table.name not in (self.only or (table.name,)):
                continue
            reads = _reads(table.name, at)
            frame = self.upstream.scan(self.spark, table.name, reads).drop(own.READ)
            write(transform.rows(frame, self.config.transform_of(table.name)), self.folder / table.name)
        within = {
            key: None if one.status == SplitStatus.CONSUMED else one.cursor
            for key, one in at.splits.items()
            if one.status != SplitStatus.NOT_STARTED
        }
        folder = self.folder / "taken"
        folder_made(folder)
        window = ChangeWindow(at.position, at.position, 0, 0, 0, open=True)
        assert isinstance(self.upstream, TakingUpstream)
        taken = self.upstream.take(self.spark, window, within, at.schemas, str(folder)).tables
        self.upstream.observe(at.position, snapshot_open=False)  # the log still had everything that was taken
        return taken

    @contextmanager
    def _log_first(self) -> Iterator[None]:
        """Rows that can be read only once the log is applied."""
        try:
            yield
        except Exception as exc:
            failure = exc if isinstance(exc, BackfillError) else self.upstream.failure(exc)
            if not isinstance(failure, LogFirst):
                raise
            raise self._applied_first(failure.message) from exc

    def _applied_first(self, said: str) -> LogFirst:
        """Nobody applies the log while no runner has the job, or while it is paused."""
        name = self.config.job.name
        resume = f"backfill resume {name}{'' if self.live else ' --detach'}"
        return LogFirst(said, f"{resume}; backfill wait {name} --for caught-up; backfill verify {name}")


def _reads(table: str, at: Checkpoint) -> Sequence[SnapshotRead]:
    """The consumed part of each split."""
    return [
        SnapshotRead(table, split, up_to=progress.cursor)
        for (of, split), progress in at.splits.items()
        if of == table and progress.status != SplitStatus.NOT_STARTED
    ]
