"""An epoch plan becomes files: what is in them, what is counted, what is refused, what a failure leaves."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import ArrowTasks, Piece, UpstreamCapabilities
from backfill_cli.engine.job.create import create
from backfill_cli.engine.staging.files import require_shared
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.engine.staging.values import storable
from backfill_cli.errors import BackfillError, BadData, Fatal, Transient, UsageError
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged, StagedFile
from backfill_cli.model.position import START, Cursor, Position
from backfill_cli.spark.failures import from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = """
[job]
name = "shop"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "{table}/snapshot", format = "parquet" }
changes = { path = "{table}/changes", format = "change-feed" }
[[tables]]
name = "orders"
key = ["id"]
[[tables]]
name = "items"
key = ["order", "line"]
[tables.transform]
select = ["line", "order AS `order id`", "upper(note) AS note"]
where = "note <> 'no'"
[sink]
type = "duckdb"
path = "w.duckdb"
"""
WINDOW = ChangeWindow(START, Position.of({"log": 2}), 5, 6, 2)


def struct(**columns: str) -> str:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


SCHEMAS = {
    "orders": struct(id="long", v="integer"),
    "items": struct(order="integer", line="integer", note="string"),
}
ROWS = {
    "orders": [[(1, 10), (2, 20)], [(3, 30)], []],
    "items": [[(1, 1, "a"), (1, 2, "no"), (2, 1, "b")]],
}
CHANGES: dict[str, list[tuple[Any, ...]]] = {
    "orders": [("U", 1, 7, 1, 11), ("U", 2, 9, 1, 12), ("D", 3, 8, 3, None)],
    "items": [("U", 1, None, 1, 1, "no"), ("U", 2, None, 5, 5, "new")],
}


@dataclass
class Upstream:
    """Rows of lists; split = index into a table's lists."""

    rows: dict[str, list[list[tuple[Any, ...]]]] = field(default_factory=lambda: dict(ROWS))
    log: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: dict(CHANGES))
    asked: list[str] = field(default_factory=list)
    place: str = "INT"
    capabilities = UpstreamCapabilities(True, True, True, True)

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """Cursors are letters: a, b, c for the rows 0, 1, 2."""
        return [
            r
            if r.limit_rows is None
            else replace(r, up_to=letter(index(r.after, 0) + r.limit_rows), limit_rows=None)
            for r in reads
        ]

    def row_count(self, read: SnapshotRead) -> int | None:
        return None if read.up_to is None else index(read.up_to, 0) - index(read.after, 0)

    def part(self, table: str, read: SnapshotRead) -> list[tuple[Any, ...]]:
        return self.rows[table][int(read.split)][index(read.after, 0) : index(read.up_to, 99)]

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        found = [(i, *row) for i, r in enumerate(reads) for row in self.part(table, r)]
        return spark.createDataFrame(found, "_read INT, " + ddl(SCHEMAS[table]))

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        self.asked.append(schema)
        columns = f"_op STRING, _seq {self.place}, _ms BIGINT, {ddl(schema)}"
        return spark.createDataFrame(self.log[table], columns)

    def failure(self, exc: Exception) -> BackfillError | None:
        return BadData("part-1 is no Parquet file") if "part-1" in str(exc) else None


class WorkersUpstream(Upstream):
    """The same, with rows produced in workers if there is no transform."""

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks:
        schema = json.loads(SCHEMAS[table])
        names = [field["name"] for field in schema["fields"]]
        kinds = [{"long": "int64", "integer": "int32"}.get(field["type"], "string") for field in schema["fields"]]

        def make(rows: list[tuple[Any, ...]]) -> Iterator[Any]:
            import pyarrow as pa

            arrow = pa.schema(list(zip(names, map(pa.type_for_alias, kinds), strict=True)))
            yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], arrow)

        parts = tuple((Piece(i, self.part(table, r)),) for i, r in enumerate(reads))
        return ArrowTasks(make, parts, SCHEMAS[table])


def ddl(schema: str) -> str:
    return ", ".join(f"`{f['name']}` {f['type']}" for f in json.loads(schema)["fields"])


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    (tmp_path / "job.toml").write_text(JOB.replace("HERE", str(tmp_path)), "utf-8")
    return load(tmp_path / "job.toml")


@pytest.fixture(params=[Upstream, WorkersUpstream])
def upstream(request: pytest.FixtureRequest) -> Upstream:
    """Runs each test twice: with rows that Spark reads, and with rows that workers produce."""
    made: Upstream = request.param()
    return made


@pytest.fixture
def stager(spark: "SparkSession", upstream: Upstream, config: JobConfig) -> SparkStager:
    return SparkStager(lambda: spark, upstream, config)  # type: ignore[arg-type]


def test_a_recovery_needs_no_spark(upstream: Upstream, config: JobConfig) -> None:
    def opened() -> Any:
        raise AssertionError("Spark was opened")

    stager = SparkStager(opened, upstream, config)  # type: ignore[arg-type]
    assert stager.intact(7, Staged("a"))
    assert stager.folder(7, "a")
    stager.discard(7, "a")
    stager.sweep([])
    with pytest.raises(AssertionError, match="opened"):
        stager.begin()


def letter(row: int) -> str:
    return "abcdefghij"[row]


def index(cursor: Cursor | None, otherwise: int) -> int:
    return otherwise if cursor is None else "abcdefghij".index(str(cursor))


def read(table: str, split: int, after: int, up_to: int | None) -> SnapshotRead:
    return SnapshotRead(table, str(split), letter(after), None if up_to is None else letter(up_to))


def held(stager: SparkStager, staged: Staged, files: Sequence[StagedFile]) -> list[tuple[Any, ...]]:
    folder = Path(stager.folder(7, staged.attempt))
    rows = [tuple(row.values()) for f in files for row in pq.read_table(folder / f.path).to_pylist()]
    return sorted(rows, key=str)


def leftovers(stager: SparkStager) -> list[Path]:
    return list(Path(stager.folder(0, "x")).parent.glob("*"))


def test_snapshot_rows_are_filtered_selected_and_counted_by_read_before_the_filter(stager: SparkStager) -> None:
    reads = (read("orders", 0, 1, 2), read("orders", 1, 0, None), read("orders", 2, 0, 0), read("items", 0, 0, 3))
    staged = stager.stage(EpochPlan(reads), 7, SCHEMAS).staged
    assert sorted(staged.reads, key=str) == sorted(zip(reads, (1, 1, 0, 3), strict=True), key=str)
    orders, items = staged.tables["orders"], staged.tables["items"]
    assert held(stager, staged, orders.inserts) == [(2, 20), (3, 30)]
    assert held(stager, staged, items.inserts) == [(1, 1, "A"), (1, 2, "B")]
    assert (orders.rows, items.rows, staged.rows) == (2, 2, 4)
    assert orders.changes == items.changes == ()


def test_open_ended_reads_are_counted_each_by_itself(stager: SparkStager, upstream: Upstream) -> None:
    upstream.rows["orders"] = [[(i, i) for i in range(n)] for n in (3, 0, 5)]
    reads = tuple(read("orders", n, 0, None) for n in range(3))
    staged = stager.stage(EpochPlan(reads), 7, SCHEMAS).staged
    assert [rows for _, rows in staged.reads] == [3, 0, 5]


def test_counts_of_many_reads_are_asked_of_the_driver_together(
    stager: SparkStager, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query returns the counts of all reads: one query per read took half the time for 127 files."""
    from pyspark.sql import Observation

    asked: list[Observation] = []
    answer = Observation.get.fget
    monkeypatch.setattr(Observation, "get", property(lambda seen: (asked.append(seen), answer(seen))[1]))
    upstream.rows["orders"] = [[(i, i) for i in range(n)] for n in range(12)]
    staged = stager.stage(EpochPlan(tuple(read("orders", n, 0, None) for n in range(12))), 7, SCHEMAS).staged
    assert [rows for _, rows in staged.reads] == list(range(12))
    assert len(asked) == len(set(map(id, asked)))


def test_splits_without_a_row_write_no_file(stager: SparkStager) -> None:
    staged = stager.stage(EpochPlan((read("orders", 2, 0, 0),)), 7, SCHEMAS).staged
    assert staged.reads == ((read("orders", 2, 0, 0), 0),)
    assert staged.rows == 0
    assert stager.intact(7, staged)


def test_changes_are_net_by_key_and_counted_before_and_after(stager: SparkStager) -> None:
    staged = stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
    orders, items = staged.tables["orders"], staged.tables["items"]
    assert held(stager, staged, orders.changes) == [("D", 3, None), ("U", 1, 12)]
    assert (orders.changed, orders.deleted) == (1, 1)
    assert [row[:3] for row in held(stager, staged, items.changes)] == [("D", 1, 1), ("U", 5, 5)]
    assert (items.changed, items.deleted) == (1, 1)
    assert (staged.changes_read, staged.images) == (5, 0)
    assert orders.inserts == items.inserts == ()


def test_a_row_that_says_what_was_there_before_an_update_is_no_change_of_its_own(
    stager: SparkStager, upstream: Upstream
) -> None:
    upstream.place = "STRUCT<at INT, image BOOLEAN>"
    of = [("D", (1, True), 7, 1, 10), ("U", (2, False), 7, 1, 11), ("D", (3, False), 8, 3, None)]
    upstream.log = {"orders": of, "items": [("U", (1, False), None, 5, 5, "new")]}
    staged = stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
    assert held(stager, staged, staged.tables["orders"].changes) == [("D", 3, None), ("U", 1, 11)]
    assert (staged.changes_read, staged.images) == (3, 1)


def test_a_window_without_a_change_is_staged_as_nothing(stager: SparkStager, upstream: Upstream) -> None:
    upstream.log = {"orders": [], "items": []}
    staged = stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
    assert (staged.rows, staged.changes_read) == (0, 0)
    assert stager.intact(7, staged)


def test_case_26_changes_are_read_with_the_columns_that_came_with_them(
    stager: SparkStager, upstream: Upstream
) -> None:
    wider = {"items": struct(order="integer", line="integer", note="string", price="double")}
    upstream.log["items"] = [("U", 1, None, 5, 5, "new", 1.5)]
    window = ChangeWindow(START, WINDOW.up_to, 5, 6, 1, tuple(wider.items()))
    done = stager.stage(EpochPlan(window=window), 7, SCHEMAS)
    assert "price" in upstream.asked[1]
    assert json.loads(done.schemas["items"])["fields"][-1]["name"] == "price"
    assert done.schemas["orders"] == SCHEMAS["orders"]
    assert [f["name"] for f in json.loads(done.sink_schemas["items"])["fields"]] == ["line", "order id", "note"]
    assert done.sink_schemas["orders"] == SCHEMAS["orders"]


def test_a_null_key_in_the_snapshot_is_named_and_nothing_is_left(stager: SparkStager, upstream: Upstream) -> None:
    upstream.rows["items"] = [[(1, 1, "a"), (1, None, "b"), (2, None, "c")]]
    with pytest.raises(BadData, match=r"table 'items': key column 'line' is NULL in 2 row\(s\) of the snapshot"):
        stager.stage(EpochPlan((read("items", 0, 0, 3),)), 7, SCHEMAS)
    assert leftovers(stager) == []


def test_a_null_key_in_a_table_without_transform_is_named(stager: SparkStager, upstream: Upstream) -> None:
    upstream.rows["orders"] = [[(1, 1), (None, 2)]]
    with pytest.raises(BadData, match=r"table 'orders': key column 'id' is NULL in 1 row\(s\) of the snapshot"):
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)
    assert leftovers(stager) == []


def test_a_null_key_in_the_change_log_is_named_also_where_it_is_netted_away(
    stager: SparkStager, upstream: Upstream
) -> None:
    upstream.log["orders"] = [("U", 1, 1, None, 1), ("D", 2, 2, None, None)]
    with pytest.raises(BadData, match=r"table 'orders': key column 'id' is NULL in 2 row\(s\) of the change log"):
        stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS)
    assert leftovers(stager) == []


def test_another_change_of_the_schema_stops_before_anything_is_read(
    stager: SparkStager, upstream: Upstream
) -> None:
    window = ChangeWindow(START, WINDOW.up_to, 5, 6, 1, (("orders", struct(id="long", v="string")),))
    with pytest.raises(BadData, match="integer became string"):
        stager.stage(EpochPlan(window=window), 7, SCHEMAS)
    assert upstream.asked == []


def _broken(message: str) -> Callable[..., Any]:
    def scan(*_: Any) -> Any:
        raise RuntimeError(message)

    return scan


def test_what_spark_says_of_a_broken_upstream_is_told_in_its_words(
    stager: SparkStager, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = EpochPlan((read("orders", 0, 0, 2),))
    for read_by in ("scan", "batches"):
        monkeypatch.setattr(upstream, read_by, _broken("cannot read part-1"), raising=False)
    with pytest.raises(Fatal, match="part-1 is no Parquet file"):
        stager.stage(plan, 7, SCHEMAS)
    for read_by in ("scan", "batches"):
        monkeypatch.setattr(upstream, read_by, _broken("our own mistake"), raising=False)
    with pytest.raises(RuntimeError, match="our own mistake"):
        stager.stage(plan, 7, SCHEMAS)
    assert leftovers(stager) == []


@pytest.mark.parametrize(
    "said", ["OSError: [errno 28] No space left on device", "IOException: Disk quota exceeded"]
)
def test_case_43_a_full_staging_disk_may_pass_and_leaves_nothing(
    stager: SparkStager, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    for read_by in ("scan", "batches"):
        monkeypatch.setattr(upstream, read_by, _broken(said), raising=False)
    with pytest.raises(
        Transient, match=r"(No space left on device|Disk quota exceeded): the staging folder"
    ) as caught:
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)
    assert "spark.local.dir" in caught.value.hint
    assert leftovers(stager) == []


def test_a_staging_folder_that_cannot_be_made_may_pass(stager: SparkStager, tmp_path: Path) -> None:
    (tmp_path / "staging").write_text("a file stands here")
    with pytest.raises(Transient, match="staging folder"):
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)


def test_case_41_two_attempts_of_one_epoch_share_no_file(stager: SparkStager) -> None:
    plan = EpochPlan((read("orders", 0, 0, 2),))
    first, second = (stager.stage(plan, 7, SCHEMAS).staged for _ in range(2))
    assert first.attempt != second.attempt
    stager.discard(7, first.attempt)
    assert stager.intact(7, second)
    assert not stager.intact(7, first)


def test_case_42_a_file_that_is_gone_or_of_another_size_is_damage(stager: SparkStager) -> None:
    plan = EpochPlan((read("orders", 0, 0, 2),))
    for damage in (Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1])):
        staged = stager.stage(plan, 7, SCHEMAS).staged
        assert stager.intact(7, staged)
        damage(Path(stager.folder(7, staged.attempt)) / staged.tables["orders"].inserts[0].path)
        assert not stager.intact(7, staged)


def test_what_dead_attempts_left_is_swept_and_what_may_still_be_applied_is_kept(stager: SparkStager) -> None:
    root = Path(stager.folder(7, "x")).parent
    for name in ("7-keep", "7-dead", "6-dead", "notes-of-a-stranger"):
        (root / name).mkdir(parents=True)
    stager.sweep([(7, "keep")])
    assert sorted(f.name for f in root.iterdir()) == ["7-keep", "notes-of-a-stranger"]


# -- what the driver sees, and what a sink can take -----------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1], ids=["no file is seen", "one of two files is seen"])
@pytest.mark.parametrize(
    "plan",
    [
        EpochPlan((read("orders", 0, 0, 2), read("orders", 1, 0, 1))),
        EpochPlan((read("items", 0, 0, 3),)),
        EpochPlan(window=WINDOW),
    ],
    ids=["snapshot", "snapshot, transformed", "changes"],
)
def test_an_epoch_whose_files_the_driver_does_not_see_fails(
    stager: SparkStager, monkeypatch: pytest.MonkeyPatch, plan: EpochPlan, kept: int
) -> None:
    """Executors that write to their own disk: an epoch without rows would commit, and its rows would be lost."""
    shown = Path.glob

    def hide(folder: Path, how: str) -> list[Path]:
        found = sorted(shown(folder, how))
        with_rows = [file for file in found if pq.read_metadata(file).num_rows]
        return with_rows[: kept if len(with_rows) > 1 else 0]

    def seen(file: Path) -> bool:
        return real(file) and (file.suffix != ".parquet" or (bool(kept) and "part-0-" in file.name))

    real = Path.exists
    monkeypatch.setattr(Path, "glob", hide)
    monkeypatch.setattr(Path, "exists", seen)
    with pytest.raises(
        Transient, match=r"[1-3] row\(s\) were written to .*, but the files visible there hold [0-2]"
    ) as caught:
        stager.stage(plan, 7, SCHEMAS)
    assert "job.staging" in caught.value.hint
    monkeypatch.undo()
    assert leftovers(stager) == []


NOT_UTF8 = "CAST(X'61FF62' AS STRING)"


@pytest.mark.parametrize(
    "note",
    [
        NOT_UTF8,
        f"array('a', {NOT_UTF8})",
        f"map('k', {NOT_UTF8})",
        f"map({NOT_UTF8}, 1)",
        f"named_struct('x', array(named_struct('y', {NOT_UTF8})))",
    ],
    ids=["text", "array", "map", "map key", "struct"],
)
@pytest.mark.parametrize(
    "plan", [EpochPlan((read("items", 0, 0, 3),)), EpochPlan(window=WINDOW)], ids=["rows", "changes"]
)
def test_text_that_is_not_utf8_is_refused_while_it_is_staged(
    spark: "SparkSession", tmp_path: Path, plan: EpochPlan, note: str
) -> None:
    text = JOB.replace("HERE", str(tmp_path)).replace("upper(note) AS note", f"{note} AS note")
    (tmp_path / "job.toml").write_text(text, "utf-8")
    upstream = Upstream()
    upstream.failure = from_spark  # type: ignore[assignment, method-assign]
    stager = SparkStager(lambda: spark, upstream, load(tmp_path / "job.toml"))  # type: ignore[arg-type]
    with pytest.raises(BadData, match="column 'note': text that is not UTF-8") as caught:
        stager.stage(plan, 7, SCHEMAS)
    assert ("61FF62" in caught.value.message) == (note == NOT_UTF8)
    assert leftovers(stager) == []


def test_values_without_bad_text_pass_whatever_is_null(spark: "SparkSession", tmp_path: Path) -> None:
    values = (
        "map('k', CAST(NULL AS STRING)) AS m, array(NULL, 'ü') AS a, CAST(NULL AS ARRAY<STRING>) AS n, "
        "named_struct('x', CAST(NULL AS STRUCT<y: STRING>)) AS s, CAST(NULL AS STRING) AS t, "
        "'\\u0000' AS z, 1 AS i"
    )
    frame = spark.sql(f"SELECT {values}")
    assert storable(frame).toArrow().to_pylist() == frame.toArrow().to_pylist()
    assert storable(frame).schema.simpleString() == frame.schema.simpleString()


def test_a_start_on_a_cluster_tries_the_staging_folder_before_anything_is_made(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, columns in {
        "orders": {"id": [1], "v": [2]},
        "items": {"order": [1], "line": [1], "note": ["a"]},
    }.items():
        (tmp_path / table / "snapshot").mkdir(parents=True)
        (tmp_path / table / "changes").mkdir()
        pq.write_table(pa.table(columns), tmp_path / table / "snapshot" / "0.parquet")
    text = JOB.replace("HERE", str(tmp_path)).replace('"w.duckdb"', f'"{tmp_path}/w.duckdb"')
    text = text.replace('"{table}', f'"{tmp_path}/{{table}}') + '[spark]\nmaster = "spark://h:7077"\n'
    (tmp_path / "job.toml").write_text(text, "utf-8")
    config = load(tmp_path / "job.toml")
    require_shared(config, spark)
    assert list((tmp_path / "staging").iterdir()) == []
    monkeypatch.setattr(Path, "glob", lambda folder, how: iter(()))
    sink, catalog = config.open_sink(), Catalog(tmp_path / "c.duckdb")
    world = SimpleNamespace(spark=spark, upstream=config.open_upstream(), sink=sink, patiently=lambda act: act())
    with pytest.raises(UsageError, match=r"16 row\(s\) were written .* hold 0"):
        create(config, catalog, world, "forever", False)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert list((tmp_path / "staging").iterdir()) == []
    assert not (tmp_path / "w.duckdb").exists()
    assert catalog.jobs() == ()


def test_spark_is_asked_for_a_sinks_columns_once_per_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    asked: list[str] = []

    def shape(_spark: object, source: str, _transform: object) -> str:
        asked.append(source)
        return source.upper()

    monkeypatch.setattr("backfill_cli.engine.staging.stage.sink_schema", shape)
    stager = SparkStager(SimpleNamespace, SimpleNamespace(), load(tmp_path / "job.toml"))  # type: ignore[arg-type]
    stager.__dict__["_spark"] = None
    first = [stager._sink_schema(table, SCHEMAS[table]) for table in ("items", "orders", "items", "orders")]
    wider = stager._sink_schema("items", SCHEMAS["orders"])
    assert first[0] == first[2] == SCHEMAS["items"].upper()
    assert (wider, len(asked)) == (SCHEMAS["orders"].upper(), 3)
