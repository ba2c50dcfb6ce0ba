"""RESTORE of a Delta sink's table while an epoch is being committed, and who sees it. Without Spark."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from sink_contract import Epochs, Row, rows

from backfill_cli.errors import StateConflict
from backfill_cli.lake.delta.edge import Where
from backfill_cli.sinks.delta import DeltaOptions, connector
from backfill_cli.sinks.delta import sink as module
from backfill_cli.sinks.delta.marks import MarkedTable
from backfill_cli.sinks.delta.sink import DeltaSink


def no_spark() -> NoReturn:
    raise AssertionError("no Spark here")


def opened(lake: Path) -> DeltaSink:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{lake}/{{table}}"))
    sink.use(no_spark)
    return sink


def table_of(lake: Path) -> DeltaTable:
    return DeltaTable(str(lake / "orders"))


def read_table(lake: Path) -> list[Row]:
    found: list[Row] = table_of(lake).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sink(lake: Path) -> DeltaSink:
    return opened(lake)


@pytest.fixture
def epochs(sink: DeltaSink, tmp_path: Path) -> Epochs:
    made = Epochs(tmp_path / "staging")
    sink.prepare("orders", made.tables, into_existing=False)
    sink.fence("orders", 1)
    return made


@pytest.fixture
def first(sink: DeltaSink, lake: Path, epochs: Epochs) -> int:
    """The version of epoch 10, which epoch 20 follows."""
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    version = table_of(lake).version()
    sink.commit(epochs.next(inserts=rows((2, "b"))))
    return version


def test_a_restore_between_the_check_and_a_commit_of_the_log_alone_is_refused_before_anything_is_written(
    sink: DeltaSink, lake: Path, epochs: Epochs, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "hit", lambda point: table_of(lake).restore(first))
    with pytest.raises(StateConflict, match="set back by RESTORE"):
        sink.commit(epochs.next(inserts=rows((3, "c"))))
    assert read_table(lake) == rows((1, "a"))
    assert sink.committed("orders")["orders"].epoch == 20


def appended_by_spark(lake: Path, first: int) -> Callable[..., None]:
    """A blind append does not conflict with a RESTORE that came after its first read of the log."""

    def apply(_: Any, commit: Any, table: Any, where: Where, app: str, number: int) -> None:
        table_of(lake).restore(first)
        told = CommitProperties(app_transactions=[Transaction(app, number)])
        write_deltalake(
            where.library_uri, pa.table({"id": [3], "name": ["c"]}), mode="append", commit_properties=told
        )

    return apply


def test_a_restore_while_spark_appends_stops_the_job_and_it_stays_stopped(
    sink: DeltaSink, lake: Path, epochs: Epochs, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "apply", appended_by_spark(lake, first))
    sink.__dict__["_spark"] = None
    third = epochs.next(upserts=rows((3, "c")))
    with pytest.raises(StateConflict, match="to before a commit of job 'orders': its rows are gone"):
        sink.commit(third)
    with pytest.raises(StateConflict, match="set back by RESTORE"):
        opened(lake).fence("orders", 2)
    with pytest.raises(StateConflict, match="set back by RESTORE"):
        opened(lake).commit(third)
    with pytest.raises(StateConflict, match="set back by RESTORE"):
        opened(lake).commit(epochs.next(inserts=rows((4, "d"))))
    assert read_table(lake) == rows((1, "a"), (3, "c"))


def test_a_runner_that_died_between_its_commit_and_the_look_after_it_leaves_the_look_to_the_next(
    sink: DeltaSink, lake: Path, epochs: Epochs, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = appended_by_spark(lake, first)

    def dies(*told: Any) -> None:
        append(*told)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "apply", dies)
    sink.__dict__["_spark"] = None
    with pytest.raises(KeyboardInterrupt):
        sink.commit(epochs.next(upserts=rows((3, "c"))))
    with pytest.raises(StateConflict, match="set back by RESTORE"):
        opened(lake).fence("orders", 2)


def test_a_restore_between_a_fences_look_and_its_token_is_seen_by_the_next_commit(
    sink: DeltaSink, lake: Path, epochs: Epochs, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_token = MarkedTable.raise_token

    def late(table: MarkedTable, token: int) -> None:
        table_of(lake).restore(first)
        raise_token(table, token)

    monkeypatch.setattr(MarkedTable, "raise_token", late)
    sink.fence("orders", 2)
    for again in (sink, opened(lake)):
        with pytest.raises(StateConflict, match="set back by RESTORE"):
            again.commit(replace(epochs.next(inserts=rows((3, "c"))), token=2, prev_epoch=20))
