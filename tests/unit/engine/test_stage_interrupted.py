"""Staging that is not wanted any more ends within a moment, and leaves nothing that counts, and no worker."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from stage_world import SCHEMAS, WorkersUpstream, config, leftovers, read

from backfill_cli.config import JobConfig
from backfill_cli.contracts import ArrowTasks, Piece
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import Interrupted, Transient
from backfill_cli.model.plan import EpochPlan, SnapshotRead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["config"]

PLAN = EpochPlan((read("orders", 0, 0, 2),))


@dataclass
class Lasting(WorkersUpstream):
    """One row that takes its time, while its worker shows that it lives."""

    beats: str = ""
    rows_s: float = 3600

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks:
        beats, until = self.beats, time.time() + self.rows_s

        def make(_: Any) -> Iterator[Any]:
            while time.time() < until:
                time.sleep(0.02)
                Path(beats).write_text("alive")
            yield pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int64()), "v": pa.array([1], pa.int32())})

        return ArrowTasks(make, ((Piece(0, 0),),), SCHEMAS[table])


def test_what_is_staged_is_given_up_within_a_second_and_leaves_neither_file_nor_worker(
    spark: "SparkSession", config: JobConfig, tmp_path: Path
) -> None:
    beats, told = tmp_path / "beats", dict[str, float]()
    stager = SparkStager(lambda: spark, Lasting(beats=str(beats)), config)

    def unwanted() -> bool:
        if beats.exists():
            told.setdefault("at", time.monotonic())
        return beats.exists()

    other = list[int]()

    def of_another_thread() -> None:  # as a commit's
        rows = Lasting(beats=str(tmp_path / "other"), rows_s=5).batches("orders", (), 1)
        other.append(rows.frame(spark).toArrow().num_rows)

    beside = threading.Thread(target=of_another_thread)
    beside.start()
    with pytest.raises(Interrupted):
        stager.stage(PLAN, 7, SCHEMAS, unwanted)
    assert time.monotonic() - told["at"] < 5, "it is a tenth of a second on a machine that has nothing else to do"
    beside.join()
    assert other == [1]
    until, seen = time.monotonic() + 20, 0.0
    while time.monotonic() < until and beats.stat().st_mtime != seen:
        seen = beats.stat().st_mtime
        time.sleep(1)
    assert beats.stat().st_mtime == seen, "its worker goes on"
    stager.discard(6, "another")
    assert leftovers(stager) == []
    assert spark.range(3).count() == 3


def test_a_failure_of_what_is_wanted_stays_a_failure(spark: "SparkSession", config: JobConfig) -> None:
    (Path(config.job.staging)).write_text("a file stands here")
    stager = SparkStager(lambda: spark, WorkersUpstream(), config)
    with pytest.raises(Transient, match="staging folder"):
        stager.stage(PLAN, 7, SCHEMAS, lambda: False)
