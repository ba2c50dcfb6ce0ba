"""What a new job will read is tried first: the oldest changes and the newest, or both ends of a topic."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import ArrowTasks, Piece, SinkTable, own
from backfill_cli.engine.job.checks import sink_tables
from backfill_cli.engine.staging import sample
from backfill_cli.engine.staging.sample import Keys, require_readable, require_unique
from backfill_cli.errors import BadData, Fatal
from backfill_cli.model.plan import SnapshotRead, StagedFile
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.upstreams.files.snapshot.side import TableSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
[job]
name = "shop"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "HERE/{table}/snapshot", format = "parquet" }
changes = { path = "HERE/{table}/changes", format = "debezium", decimals = "string" }
[[tables]]
name = "orders"
key = ["id"]
[[tables]]
name = "items"
key = ["id"]
[tables.transform]
select = ["id", "1 / n AS part"]
[sink]
type = "duckdb"
path = "w.duckdb"
"""
Land = Callable[..., None]


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    for table, columns in (("orders", {"price": pa.decimal128(5, 2)}), ("items", {"n": pa.int32()})):
        (tmp_path / table / "snapshot").mkdir(parents=True)
        (tmp_path / table / "changes").mkdir()
        empty = pa.schema([("id", pa.int64()), *columns.items()]).empty_table()
        pq.write_table(empty, tmp_path / table / "snapshot" / "0.parquet")
    (tmp_path / "job.toml").write_text(JOB.replace("HERE", str(tmp_path)))
    return load(tmp_path / "job.toml")


@pytest.fixture
def land(tmp_path: Path) -> Land:
    """A file with one change per row."""

    def landed(table: str, name: str, *rows: dict[str, Any]) -> None:
        lines = [json.dumps({"op": "u", "before": None, "after": row, "source": {"ts_ms": 5}}) for row in rows]
        (tmp_path / table / "changes" / f"{name}.json").write_text("\n".join(lines))

    return landed


def tried(config: JobConfig, spark: "SparkSession") -> None:
    upstream = config.open_upstream()
    pin = upstream.pin()
    tables = sink_tables(config, lambda: spark, upstream, pin, plain=True)
    require_readable(lambda: spark, upstream, config, pin, tables)


def tried_here(config: JobConfig) -> None:
    """As `tried`, where there is no Spark."""

    def opened() -> Any:
        raise AssertionError("it takes Spark")

    upstream = config.open_upstream()
    pin = upstream.pin()
    require_readable(opened, upstream, config, pin, sink_tables(config, opened, upstream, pin, plain=True))


def without_transform(config: JobConfig) -> JobConfig:
    file = Path(config.file)
    file.write_text(re.sub(r"\[tables.transform]\n.*\n", "", file.read_text()))
    return load(file)


def test_old_dates_are_read_by_spark_where_the_config_says_how(config: JobConfig, land: Land) -> None:
    """It may refuse them, or mean another day than this process."""
    land("orders", "1", {"id": 1, "price": "1.50"})
    plain = without_transform(config)
    tried_here(plain)
    setting = '[spark.conf]\n"spark.sql.parquet.datetimeRebaseModeInRead" = "EXCEPTION"\n'
    file = Path(plain.file)
    file.write_text(file.read_text() + setting)
    with pytest.raises(AssertionError, match="it takes Spark"):
        tried_here(load(file))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a value": ({"id": 1, "price": "1.005"}, r"2\.json: line 1 \(of id 1\): column 'price'"),
    "a NULL key": ({"id": None, "price": "1.50"}, r"2\.json: line 1.*column 'id': the key is NULL"),
}


@pytest.mark.parametrize("broken", ["a value", "a NULL key"])
def test_what_stops_spark_stops_a_sample_without_spark_in_the_same_words(
    config: JobConfig, land: Land, spark: "SparkSession", tmp_path: Path, broken: str
) -> None:
    row, said = BROKEN[broken]
    land("orders", "1", {"id": 1, "price": "1.50"})
    land("items", "1", {"id": 1, "n": 2})
    tried_here(without_transform(config))
    land("orders", "2", row)
    with pytest.raises(BadData, match=said) as by_spark:
        tried(config, spark)
    with pytest.raises(BadData) as here:
        tried_here(without_transform(config))
    assert here.value.message == by_spark.value.message
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize("broken", ["1", "3"])
def test_a_value_that_cannot_be_read_is_found_in_the_oldest_file_and_in_the_newest(
    config: JobConfig, land: Land, spark: "SparkSession", tmp_path: Path, broken: str
) -> None:
    for name in ("1", "2", "3"):
        land("orders", name, {"id": 1, "price": "1.005" if name == broken else "1.50"})
        land("items", name, {"id": 1, "n": 2})
    with pytest.raises(BadData, match=rf"{broken}\.json: line 1 \(of id 1\): column 'price'"):
        tried(config, spark)
    assert not (tmp_path / "staging").exists()


def test_a_transform_that_fails_for_a_sampled_change_is_found(
    config: JobConfig, land: Land, spark: "SparkSession"
) -> None:
    land("orders", "1", {"id": 1, "price": "1.50"})
    land("items", "1", {"id": 1, "n": 1})
    land("items", "2", {"id": 1, "n": 0})
    with pytest.raises(BadData, match=r"in '1 / n AS part': \[DIVIDE_BY_ZERO\] Division by zero\. Use") as caught:
        tried(config, spark)
    with typed(caught.value.without_job()) as hint:
        hint.says("correct [transform]: use try_divide")
        hint.says("then start again")
        file = Path(config.file)
        file.write_text(file.read_text().replace("1 / n", "try_divide(1, n)"))
        tried(load(file), spark)


def test_what_can_be_read_leaves_nothing_and_what_is_large_is_not_read(
    config: JobConfig, land: Land, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land("orders", "1", {"id": 1, "price": "1.50"})
    land("items", "1", {"id": 1, "n": 1})
    tried(config, spark)
    assert not (tmp_path / "staging").exists()
    land("orders", "2", {"id": 1, "price": "1.005"})
    monkeypatch.setattr(sample, "_BYTES", 10)
    tried(config, spark)


SNAPSHOT = """
[job]
name = "shop"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "HERE/rows", format = "FORMAT"MORE }
[[tables]]
name = "rows"
key = ["id", "part"]
WHERE
[sink]
type = "duckdb"
path = "HERE/w.duckdb"
"""
DECLARED = ', schema = "id BIGINT, part STRING, n INT"'
KEPT = '[tables.transform]\nselect = ["part", "id AS `the id`"]\nwhere = "n > 1"'


def with_rows(here: Path, kind: str, *files: str, where: str = "") -> JobConfig:
    """Rows `id,part,n` in one file for each text."""
    (here / "rows").mkdir(parents=True)
    for number, text in enumerate(files):
        rows = [line.split(",") for line in text.split()]
        file = here / "rows" / f"{number}.{kind}"
        if kind == "parquet":
            held = {"id": [int(r[0]) for r in rows], "part": [r[1] for r in rows], "n": [int(r[2]) for r in rows]}
            pq.write_table(pa.table(held), file)
        elif kind == "csv":
            file.write_text("id,part,n\n" + text.replace(" ", "\n") + "\n")
        else:
            lines = [json.dumps({"id": int(r[0]), "part": r[1], "n": int(r[2])}) for r in rows]
            file.write_text("\n".join(lines) + "\n")
    more = DECLARED if kind != "parquet" else ""
    text = SNAPSHOT.replace("FORMAT", kind).replace("MORE", more).replace("WHERE", where)
    (here / "job.toml").write_text(text.replace("HERE", str(here)))
    return load(here / "job.toml")


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_key_that_two_files_of_a_small_snapshot_have_is_refused_as_the_sink_would(
    spark: "SparkSession", tmp_path: Path, kind: str
) -> None:
    with pytest.raises(BadData) as refused:
        tried(with_rows(tmp_path / "twice", kind, "1,a,1 1,b,1", "2,a,1 1,b,2"), spark)
    assert refused.value.message == (
        "table 'rows': the key (id, part) is not unique in the snapshot: (1, b) 2 times"
    )
    with typed(refused.value) as hint:
        hint.says("a `where` that excludes some of them")
        tried(with_rows(tmp_path / "where", kind, "1,a,2 1,b,1", "2,a,2 1,b,2", where=KEPT), spark)
    with pytest.raises(BadData, match=r"the key \(the id, part\) is not unique in the snapshot: \(1, b\) 2 times"):
        tried(with_rows(tmp_path / "still", kind, "1,a,2 1,b,2", "2,a,2 1,b,2", where=KEPT), spark)
    assert not (tmp_path / "twice" / "staging").exists()


def test_a_snapshot_of_which_workers_lose_rows_is_refused_before_there_is_a_job(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = TableSnapshot.batches

    def lossy(self: TableSnapshot, *asked: Any) -> ArrowTasks:
        tasks = right(self, *asked)
        assert tasks is not None
        return replace(tasks, parts=((tasks.parts[0][0],),))

    config = with_rows(tmp_path, "parquet", "1,a,1 1,b,1", "2,a,1")
    monkeypatch.setattr(TableSnapshot, "batches", lossy)
    with pytest.raises(Fatal, match=r"metadata states 3 rows in '0.parquet', '1.parquet', but 2 were"):
        tried(config, spark)
    assert not (tmp_path / "staging").exists()


def test_of_a_large_snapshot_the_beginning_is_looked_at(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_BYTES", 10)
    monkeypatch.setattr(sample, "_BEGINNING_BYTES", 1 << 20)
    with pytest.raises(BadData, match=r"not unique in the rows at its beginning: \(1, a\) 2 times"):
        tried(with_rows(tmp_path / "first", "parquet", "1,a,1 1,a,1", "2,a,1"), spark)
    tried(with_rows(tmp_path / "later", "parquet", "1,a,1", "2,a,1 2,a,1"), spark)  # the sink finds it


def test_of_a_small_file_with_many_rows_the_beginning_is_looked_at(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "ROWS", 3)
    monkeypatch.setattr(sample, "_BEGINNING_ROWS", 2)
    with pytest.raises(BadData, match=r"not unique in the rows at its beginning: \(1, a\) 2 times"):
        tried(with_rows(tmp_path / "first", "parquet", "1,a,1 1,a,1 2,a,1 3,a,1"), spark)
    tried(with_rows(tmp_path / "later", "parquet", "1,a,1 2,a,1 3,a,1 3,a,1"), spark)  # the sink finds it
    tried(with_rows(tmp_path / "both", "parquet", "1,a,1 2,a,1", "2,a,1 4,a,1"), spark)


@pytest.mark.parametrize("bound", ["ROWS", "BYTES"])
def test_no_more_keys_of_staged_files_are_read_than_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    rows = pa.table({"n": range(200_000), "id": range(200_000)})
    files = [StagedFile(f"{name}.parquet", 1) for name in "ab"]
    for file in files:
        pq.write_table(rows, tmp_path / file.path, row_group_size=70_000)
    assert sample.staged_here(tmp_path, files, ["id"]).rows.num_rows == 400_000
    monkeypatch.setattr(sample, bound, 100_000 if bound == "ROWS" else 800_000)
    found = sample.staged_here(tmp_path, files, ["id"])
    assert not found.whole
    assert 100_000 < found.rows.num_rows < 200_000
    monkeypatch.undo()
    assert sample.staged_here(tmp_path, files, ["id"]).whole
    assert sample.staged_here(tmp_path, files[:0], ["id"]) == Keys(pa.table({"id": []}))


def test_rows_that_are_quarantined_have_no_keys_and_are_counted() -> None:
    def make(_: object) -> Iterator[pa.RecordBatch]:
        kept = pa.array([None, {"line": 2}, None], pa.struct([("line", pa.int64())]))
        yield pa.RecordBatch.from_pydict({"id": pa.array([1, None, 3]), own.QUARANTINED: kept})

    upstream: Any = SimpleNamespace(capabilities=SimpleNamespace(place=(), quarantines=True))
    unused: Any = None
    count: list[int] = []
    rows = sample._Tried(unused, upstream, unused, unused)._readable(
        "t", ArrowTasks(make, ((Piece(0, None),),), "{}"), count
    )
    found = sample._few(rows, ["id"])
    assert (found.rows["id"].to_pylist(), sum(count), found.whole) == ([1, 3], 3, True)


MANY = """
[job]
name = "many"
[upstream]
type = "files"
snapshot = { path = "HERE/{table}", format = "parquet" }
[transform]
select = ["id AS k", "n"]
where = "n > 0"
[sink]
type = "duckdb"
path = "w.duckdb"
"""


def test_of_many_tables_with_a_transform_spark_stages_a_few_and_those_whose_keys_it_may_exclude(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{at:02}" for at in range(20)]
    rows: dict[str, list[int | None]] = {name: [1, 2] for name in names} | {"t18": [1, 1], "t19": [1, None]}
    for name, ids in rows.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "n": [1, 0]}), tmp_path / name / "0.parquet")
    tables = "".join(f'[[tables]]\nname = "{name}"\nkey = ["id"]\n' for name in names)
    (tmp_path / "job.toml").write_text(MANY.replace("HERE", str(tmp_path)) + tables)
    staged: list[str] = []
    monkeypatch.setattr(sample._Tried, "stage", lambda _, plan, *more: staged.extend(r.table for r in plan.reads))
    tried(load(tmp_path / "job.toml"), spark)
    assert len(staged) == sample._STAGED_TABLES + 2
    assert {"t18", "t19"} < set(staged)


def test_of_a_delta_table_the_keys_are_looked_at_whether_or_not_its_files_are_plain(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from deltalake import write_deltalake

    held, feed = pa.table({"id": [1, 2], "part": ["a", "b"]}), {"delta.enableChangeDataFeed": "true"}
    for name, by in (("plain", None), ("parted", ["part"])):
        config = with_rows(tmp_path / name, "parquet", "1,a,1")
        folder = str(tmp_path / name / "lake")
        write_deltalake(folder, held, configuration=feed, partition_by=by)
        write_deltalake(folder, held.slice(1), mode="append")
        text = (tmp_path / name / "job.toml").read_text().splitlines()
        kept = [line for line in text if not line.startswith(("snapshot", 'type = "files'))]
        at = kept.index("[upstream]") + 1
        kept[at:at] = ['type = "delta"', f'table = "{folder}"']
        (tmp_path / name / "job.toml").write_text("\n".join(kept))
        config = load(tmp_path / name / "job.toml")
        with pytest.raises(BadData, match=r"not unique in the snapshot: \(2, b\) 2 times"):
            tried(config, spark)


KEYS = {
    pa.int64(): st.integers(-3, 3),
    pa.string(): st.sampled_from(["", "a", "A", "a ", "é"]),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5]),
    pa.binary(): st.sampled_from([b"", b"\x00", b"\xff"]),
    pa.decimal128(20, 2): st.sampled_from([Decimal("1.10"), Decimal("-1.10"), Decimal(0)]),
    pa.date32(): st.sampled_from([date(1, 1, 1), date(2026, 11, 26)]),
}


@st.composite
def keyed(draw: st.DrawFn) -> tuple[tuple[pa.DataType, ...], list[tuple[Any, ...]]]:
    kinds = tuple(draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2)))
    return kinds, draw(st.lists(st.tuples(*(st.none() | KEYS[kind] for kind in kinds)), max_size=4))


@given(keyed())
@example(((pa.float64(),), [(0.0,), (-0.0,)]))
def test_keys_that_occur_twice_or_are_missing_are_those_that_plain_python_counts(
    given: tuple[tuple[pa.DataType, ...], list[tuple[Any, ...]]],
) -> None:
    kinds, rows = given
    table = SinkTable("t", "t", tuple(f"k{n}" for n in range(len(kinds))), "{}")
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)]
    twice = [count for count in Counter(rows).values() if count > 1]
    missing = [name for n, name in enumerate(table.key) if any(row[n] is None for row in rows)]
    with pytest.raises(BadData) if twice or missing else nullcontext() as refused:
        require_unique(table, Keys(pa.table(columns, list(table.key))))
    if missing:
        assert f"key column {missing[0]!r} is NULL in" in refused.value.message
    elif twice:
        said = refused.value.message.partition("snapshot: ")[2]
        assert sorted(int(n) for n in re.findall(r"\) (\d) times", said)) == sorted(twice)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=8))
def test_what_is_read_of_a_snapshot_is_all_of_small_tables_and_a_part_of_others(
    given: list[tuple[int, int, int, bool]],
) -> None:
    splits = tuple(
        Split(f"t{table}", str(n), rows or None, size, cuttable=cuttable)
        for n, (table, rows, size, cuttable) in enumerate(given)
    )
    pin = Pin(Position(), None, None, splits, {f"t{table}": "{}" for table in range(4)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "_BYTES", 40)
        patch.setattr(sample, "_BEGINNING_BYTES", 4)
        patch.setattr(sample, "_BEGINNING_ROWS", 3)
        patch.setattr(sample, "ROWS", 30)
        found = list(sample._of_snapshot(pin))
    sizes = {split.id: split.size_bytes for split in splits}
    numbers = {split.id: split.rows or 0 for split in splits}
    read_whole = rows_whole = 0
    for table, reads, whole in found:
        of_table = [split.id for split in splits if split.table == table]
        if whole:
            assert [read.split for read in reads] == of_table
            read_whole += sum(sizes[split] for split in of_table)
            rows_whole += sum(numbers[split] for split in of_table)
        else:
            (read,) = reads
            assert read.split in of_table
            assert 1 <= read.limit_rows <= 3 if read.limit_rows is not None else numbers[read.split] <= 3
    assert read_whole <= 40
    assert rows_whole <= 30


def test_of_a_topic_both_ends_of_its_fullest_partitions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_PARTITIONS", 2)
    ends, oldest = {"0": 5, "1": 1000, "2": 150, "3": 40}, {"0": 0, "1": 300, "2": 0, "3": 40}
    splits = tuple(Split("t", p, None, 0, first=10 if p == "2" else 0) for p in ends)
    pin = Pin(Position.of(oldest), None, None, splits, {"t": "{}"})
    view = UpstreamView("{}", Position.of(ends), oldest=Position.of(oldest))
    reads = [plan.reads for plan in sample._of_partitions(pin, view)]
    assert reads == [
        (SnapshotRead("t", "1", 300, 400), SnapshotRead("t", "2", 10, 110)),
        (SnapshotRead("t", "1", 900, 1000), SnapshotRead("t", "2", 110, 150)),
    ]
