"""The Delta sink under the contract, and what can only go wrong with a Delta table. Reads rows without Spark."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from sink_contract import ROW, Epochs, Read, Row, SinkContract, a_table, rows, schema_json

from backfill_cli.contracts import EpochCommit
from backfill_cli.errors import Fatal, Held, SinkInUse, StateConflict, UsageError
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.sinks.delta import apply as apply_module
from backfill_cli.sinks.delta import connector
from backfill_cli.sinks.delta import sink as module
from backfill_cli.sinks.delta.marks import MarkedTable
from backfill_cli.sinks.delta.options import DeltaOptions
from backfill_cli.sinks.delta.sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_table(folder: Path, target: str) -> list[Row]:
    found: list[Row] = DeltaTable(str(folder / target)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def opened(folder: Path, spark: "SparkSession") -> DeltaSink:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{folder}/{{table}}"))
    sink.use(lambda: spark)
    return sink


class TestDeltaSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path, spark: "SparkSession") -> DeltaSink:
        return opened(tmp_path / "lake", spark)

    @pytest.fixture
    def read(self, tmp_path: Path) -> Read:
        return lambda target: read_table(tmp_path / "lake", target)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sink(lake: Path, spark: "SparkSession") -> DeltaSink:
    return opened(lake, spark)


@pytest.fixture
def epochs(sink: DeltaSink, tmp_path: Path) -> Epochs:
    made = Epochs(tmp_path / "staging")
    sink.prepare("orders", made.tables, into_existing=False)
    sink.fence("orders", 1)
    return made


# A runner that another one got ahead of


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
    with pytest.raises(Held, match="another runner took job 'orders' over: table 'orders' has token 2, ours is 1"):
        sink.commit(stalled)
    assert read_table(lake, "orders") == (rows((1, "new"), (2, "b")) if epoch_goes_on else rows((1, "a")))
    marker = sink.committed("orders")["orders"]
    assert marker == (Marker(20, 2, "a20") if epoch_goes_on else Marker(10, 2, "a10"))


def test_a_takeover_while_spark_writes_is_refused_by_the_table_itself(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    read = apply_module.changes

    def slow(*told: Any) -> Any:
        frame = read(*told)
        assert frame is not None
        return frame.where("coalesce(reflect('java.lang.Thread', 'sleep', 4000L), '') = ''")

    monkeypatch.setattr(apply_module, "changes", slow)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(sink.commit, epochs.next(upserts=rows((2, "b"))))
        time.sleep(2.5)
        assert not late.done()
        opened(lake, spark).fence("orders", 2)
        with pytest.raises(Held, match="has token 2, ours is 1"):
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


# Other writers


def test_commits_of_others_in_between_stay_and_are_no_conflict(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    for key in (100, 101):
        write_deltalake(str(lake / "orders"), pa.table({"id": [key], "name": ["theirs"]}), mode="append")
    DeltaTable(str(lake / "orders")).optimize.compact()
    sink.commit(epochs.next(upserts=rows((1, "new")), deletes=[2]))
    assert read_table(lake, "orders") == rows((1, "new"), (100, "theirs"), (101, "theirs"))


def test_the_partitioning_of_a_table_that_was_there_is_kept(sink: DeltaSink, lake: Path, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    write_deltalake(str(lake / "mine"), schema.empty_table(), partition_by=["name"])
    epochs = Epochs(tmp_path / "staging", job="other", tables=(a_table("mine"),))
    sink.prepare("other", epochs.tables, into_existing=False)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    sink.commit(epochs.next(upserts=rows((1, "c"))))
    assert read_table(lake, "mine") == rows((1, "c"), (2, "b"))
    assert DeltaTable(str(lake / "mine")).metadata().partition_columns == ["name"]


# Staged files that become files of the table


def parts(epochs: Epochs, *pieces: list[Row]) -> EpochCommit:
    """An epoch of plain inserts, staged in a file for each piece."""
    commit = epochs.next(inserts=pieces[0])
    files = []
    for number, piece in enumerate(pieces):
        path = Path(commit.folder, f"orders/inserts/{number}.parquet")
        pq.write_table(pa.Table.from_pylist(piece, ROW), path)
        files.append(StagedFile(f"orders/inserts/{number}.parquet", path.stat().st_size))
    staged = StagedTable(inserts=tuple(files), rows=sum(map(len, pieces)))
    return replace(commit, staged=Staged(commit.attempt, {"orders": staged}))


def added(lake: Path) -> list[dict[str, Any]]:
    """The files that the newest version of the table with any adds, according to its log."""
    log = sorted((lake / "orders" / "_delta_log").glob("*.json"))
    told = [[json.loads(line) for line in file.read_text().splitlines()] for file in log]
    return [
        [one["add"] for one in actions if "add" in one] for actions in told if any("add" in a for a in actions)
    ][-1]


def test_a_staged_file_becomes_the_tables_own_with_what_its_footer_says(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    commit = epochs.next(inserts=[*rows((1, "a"), (5, "é" * 40)), {"id": 7, "name": None}])
    sink.commit(commit)
    (file,) = added(lake)
    staged = Path(commit.folder, "orders/inserts/0.parquet")
    assert (lake / "orders" / file["path"]).samefile(staged)
    assert json.loads(file["stats"]) == {
        "numRecords": 3,
        "minValues": {"id": 1},
        "maxValues": {"id": 7},
        "nullCount": {"id": 0},
    }
    shutil.rmtree(commit.folder)
    table = spark.read.format("delta").load(f"{lake}/orders")
    assert [row["id"] for row in table.where("id >= 5").toArrow().to_pylist()] == [5, 7]
    assert [row["id"] for row in table.where("name IS NULL").toArrow().to_pylist()] == [7]


def test_small_files_are_written_as_one_by_spark(sink: DeltaSink, lake: Path, epochs: Epochs) -> None:
    sink.commit(parts(epochs, rows((1, "a")), rows((2, "b"))))
    assert read_table(lake, "orders") == rows((1, "a"), (2, "b"))
    assert len(added(lake)) == 1


def test_rows_that_a_table_checks_are_written_by_spark(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    DeltaTable(str(lake / "orders")).alter.add_constraint({"positive": "id > 0"})
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    with pytest.raises(Fatal, match="Delta refuses the epoch's commit"):
        sink.commit(epochs.next(inserts=rows((-1, "b"))))
    assert read_table(lake, "orders") == rows((1, "a"))


# The sink's state, and where it is kept


def test_what_is_kept_of_a_long_job_does_not_grow(sink: DeltaSink, lake: Path, epochs: Epochs) -> None:
    for _ in range(6):
        sink.commit(epochs.next())
    assert len([path for path in (lake / "_backfill_state").rglob("*") if path.is_file()]) <= 9
    assert sink.committed("orders")["orders"] == Marker(60, 1, "a60")


def test_of_tables_at_two_epochs_nothing_is_rebuilt_and_the_error_says_which(
    sink: DeltaSink, tmp_path: Path
) -> None:
    tables = (a_table("a"), a_table("b"))
    epochs = Epochs(tmp_path / "s", job="two", tables=tables)
    sink.prepare("two", tables, into_existing=False)
    sink.commit(epochs.next())
    sink.commit(replace(epochs.next(), only=frozenset({"b"})))
    with pytest.raises(StateConflict, match="table 'a' is at epoch 10, others at 20"):
        sink.saved("two")


def test_a_stopped_jobs_tables_that_cannot_be_compared_are_refused_at_once(
    sink: DeltaSink, tmp_path: Path
) -> None:
    tables = (a_table("a"), a_table("b"))
    epochs = Epochs(tmp_path / "s", job="two", tables=tables)
    sink.prepare("two", tables, into_existing=False)
    with sink.copied("two", False, tmp_path) as copy:
        assert copy.saved() is None, "nothing is committed yet"
    sink.commit(epochs.next())
    sink.commit(replace(epochs.next(), only=frozenset({"b"})))
    began_s = time.monotonic()
    with pytest.raises(StateConflict, match=r"several epochs \(a: 10, b: 20\)") as caught:
        sink.copied("two", False, tmp_path).__enter__()
    assert caught.value.hint == "backfill resume two"
    shutil.rmtree(tmp_path / "lake" / "a")
    with pytest.raises(StateConflict, match="table 'a' of the sink is gone") as caught:
        sink.copied("two", True, tmp_path).__enter__()
    assert caught.value.hint.startswith("restore it, or start over: backfill drop two")
    assert time.monotonic() - began_s < 60


def test_a_table_option_without_a_place_for_the_tables_name_is_for_one_table(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{tmp_path}/lake/mine"))
    sink.use(lambda: spark)
    with pytest.raises(UsageError, match="tables 'a' and 'b' have the same target"):
        sink.check("two", (a_table("a"), a_table("b")), into_existing=False)
    side = a_table("_backfill_bad", side=True)
    sink.prepare("one", (a_table("a"), side), into_existing=False)
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == [
        "_backfill_bad",
        "_backfill_state",
        "mine",
    ]
    with pytest.raises(ValueError, match=r"named by its folder, .* or by catalog"):
        DeltaOptions(table="mine")


def test_check_makes_nothing_and_needs_no_spark(tmp_path: Path) -> None:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{tmp_path}/lake/{{table}}"))
    sink.check("orders", (a_table(),), into_existing=False)
    assert list(tmp_path.iterdir()) == []
    write_deltalake(str(tmp_path / "lake" / "orders"), pa.table({"id": [1], "name": ["x"]}))
    with pytest.raises(SinkInUse, match="with rows that are not this job's"):
        sink.check("orders", (a_table(),), into_existing=False)


def test_a_column_is_added_to_a_table_with_column_mapping(
    sink: DeltaSink, lake: Path, tmp_path: Path, spark: "SparkSession"
) -> None:
    lake.mkdir(exist_ok=True)
    spark.sql(
        f"CREATE TABLE delta.`{lake}/mapped` (id BIGINT, name STRING) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', delta.enableDeletionVectors = true)"
    )
    epochs = Epochs(tmp_path / "staging", job="other", tables=(a_table("mapped"),))
    sink.prepare("other", epochs.tables, into_existing=False)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    wider = a_table("mapped", schema=schema_json(id="long", name="string", note="string"))
    sink.prepare("other", (wider,), into_existing=False)
    sink.fence("other", 5)
    assert sink.committed("other")["mapped"] == Marker(10, 5, "a10")
    found = spark.read.format("delta").load(f"{lake}/mapped").orderBy("id").toArrow().to_pylist()
    assert found == [{**row, "note": None} for row in rows((1, "a"), (2, "b"))]


def test_case_36_a_table_taken_back_by_restore_is_refused_until_it_is_taken_forth(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    """RESTORE keeps the transaction number: by its marker the table has the epoch, but its rows are gone."""
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    table = DeltaTable(str(lake / "orders"))
    before = table.version()
    sink.commit(second := epochs.next(inserts=rows((2, "b"))))
    table.update_incremental()
    after = table.version()
    table.restore(before)
    third = epochs.next(inserts=rows((3, "c")))
    with pytest.raises(StateConflict, match="taken back by RESTORE to before an epoch of job 'orders'"):
        sink.commit(third)
    with pytest.raises(StateConflict, match="taken back by RESTORE"):
        opened(lake, spark).fence("orders", 2)
    assert sink.committed("orders")["orders"].epoch == second.epoch
    table.update_incremental()
    table.restore(after)
    sink.commit(third)
    assert read_table(lake, "orders") == rows((1, "a"), (2, "b"), (3, "c"))
