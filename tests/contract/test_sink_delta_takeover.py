"""A runner of a Delta sink that another one got ahead of: it writes nothing."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta_sink import epochs, lake, opened, read_table, sink
from sink_contract import Epochs, rows

from backfill_cli.errors import Held
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.delta import apply as apply_module
from backfill_cli.sinks.delta import sink as module
from backfill_cli.sinks.delta.marks import MarkedTable
from backfill_cli.sinks.delta.sink import DeltaSink
from backfill_cli.spark.api import F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["epochs", "lake", "sink"]


@pytest.mark.parametrize("epoch_goes_on", [True, False])
def test_case_40_a_stalled_runner_that_wakes_up_after_a_takeover_writes_nothing(
    sink: DeltaSink,
    lake: Path,
    epochs: Epochs,
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    epoch_goes_on: bool,
) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    stalled = epochs.next(inserts=rows((2, "b")), upserts=rows((1, "new")))

    def taken_over(point: str) -> None:
        if point == "sink-before-commit":
            monkeypatch.undo()
            newer = opened(lake, spark)
            newer.fence("orders", 2)
            if epoch_goes_on:
                newer.commit(replace(stalled, token=2))

    monkeypatch.setattr(module, "hit", taken_over)
    with pytest.raises(Held, match="job 'orders' was taken over by another runner, which has written to table"):
        sink.commit(stalled)
    assert read_table(lake, "orders") == (rows((1, "new"), (2, "b")) if epoch_goes_on else rows((1, "a")))
    marker = sink.committed("orders")["orders"]
    assert marker == (Marker(20, 2, "a20") if epoch_goes_on else Marker(10, 2, "a10"))


def test_a_takeover_while_spark_writes_is_refused_by_the_table_itself(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    read, begun, go = apply_module.changes, lake.parent / "begun", lake.parent / "go"

    def held(*told: Any) -> Any:
        frame = read(*told)
        assert frame is not None
        reading, may_end = str(begun), str(go)

        def waits(_: object) -> bool:
            from pathlib import Path
            from time import sleep

            Path(reading).touch()
            while not Path(may_end).exists():
                sleep(0.05)
            return True

        return frame.where(F.udf(waits, "boolean")(frame.columns[0]))

    monkeypatch.setattr(apply_module, "changes", held)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(sink.commit, epochs.next(upserts=rows((2, "b"))))
        try:
            until_s = time.monotonic() + 60
            while not begun.exists():
                assert time.monotonic() < until_s
                assert not late.done()
                time.sleep(0.05)
            opened(lake, spark).fence("orders", 2)
        finally:
            go.touch()
        with pytest.raises(Held, match="was taken over by another runner, which has written"):
            late.result()
    assert read_table(lake, "orders") == rows((1, "a"))
    assert sink.committed("orders")["orders"] == Marker(10, 2, "a10")


def test_a_fence_looks_again_where_an_epoch_was_committed_meanwhile(
    sink: DeltaSink, lake: Path, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    late = epochs.next(inserts=rows((2, "b")))
    write = MarkedTable.write

    def beaten(table: MarkedTable, number: int, onto: int) -> bool:
        monkeypatch.undo()
        sink.commit(late)
        return write(table, number, onto)

    monkeypatch.setattr(MarkedTable, "write", beaten)
    sink.fence("orders", 2)
    assert sink.committed("orders")["orders"] == Marker(20, 2, "a20")


def test_a_job_that_is_forgotten_while_its_commit_is_under_way_writes_nothing(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    late = epochs.next(inserts=rows((1, "late")))

    def forgotten(point: str) -> None:
        if point == "sink-before-commit":
            monkeypatch.undo()
            opened(lake, spark).forget("orders")

    monkeypatch.setattr(module, "hit", forgotten)
    with pytest.raises(Held):
        sink.commit(late)
    assert read_table(lake, "orders") == []
