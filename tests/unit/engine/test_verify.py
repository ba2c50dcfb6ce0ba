"""`verify` finds and names every difference, without false alarms. Runs Spark against a real DuckDB sink."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from backfill_cli.contracts import EpochCommit, JobDefinition, SavedJob, SinkTable
from backfill_cli.engine.verify.job import verify_against
from backfill_cli.engine.verify.table import compare
from backfill_cli.errors import UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.digest import xxhash64
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.model.verify import DifferentRow, TableVerdict
from backfill_cli.sinks.duckdb.options import DuckDBOptions
from backfill_cli.sinks.duckdb.sink import DuckDBSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def a_field(name: str, kind: object, logical: str | None = None) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {"logical": logical} if logical else {}}


def an_array(of: str) -> dict[str, object]:
    return {"type": "array", "elementType": of, "containsNull": True}


A_MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
A_STRUCT = {"type": "struct", "fields": [a_field("x", "long"), a_field("t", "timestamp")]}

# name -> (Spark type, SQL of row i); the last row of every column is NULL
COLUMNS = {
    "flag": (a_field("flag", "boolean"), "i % 3 = 0"),
    "tiny": (a_field("tiny", "byte"), "(i % 100 - 50)::TINYINT"),
    "small": (a_field("small", "short"), "(i * 31 - 9000)::SMALLINT"),
    "whole": (a_field("whole", "integer"), "(i * 1000003 - 300000000)::INTEGER"),
    "big": (a_field("big", "long"), "9223372036854775807 - i * 1000000007"),
    "price": (a_field("price", "decimal(12,2)"), "(i * 7919 - 99999)::DECIMAL(12,2) / 100"),
    "wide": (a_field("wide", "decimal(18,4)"), "99999999999999.9999 - i"),
    "huge": (a_field("huge", "decimal(38,10)"), "(i / 7)::DECIMAL(38,10) + 1234567890123456789012345678"),
    "ratio": (
        a_field("ratio", "double"),
        "CASE i % 4 WHEN 0 THEN i / 7.0 WHEN 1 THEN 'nan' ELSE '-inf' END::DOUBLE",
    ),
    "thin": (a_field("thin", "float"), "(i / 3.0)::FLOAT"),
    "word": (a_field("word", "string"), "['paid', '', 'größe', repeat('long ', 9), NULL][1 + i % 5]"),
    "note": (a_field("note", "string"), "'note ' || i"),
    "data": (a_field("data", "binary"), "encode('b' || i)"),
    "day": (a_field("day", "date"), "DATE '1500-02-27' + i::INTEGER * 200"),
    "at": (
        a_field("at", "timestamp"),
        "TIMESTAMPTZ '1890-01-01 00:00:00.000001+00' + to_microseconds(i * 86400000001)",
    ),
    "local": (
        a_field("local", "timestamp_ntz"),
        "TIMESTAMP '0001-01-01 00:00:00' + to_microseconds(i * 999999999)",
    ),
    "list": (a_field("list", an_array("string")), "CASE WHEN i % 2 = 0 THEN [NULL, 'a' || i] ELSE [] END"),
    "dict": (a_field("dict", A_MAP), "MAP {'k' || i: i, 'z': NULL}"),
    "nest": (a_field("nest", A_STRUCT), "{'x': i, 't': TIMESTAMPTZ '2020-01-01 00:00:00.000007+00'}"),
    "uid": (a_field("uid", "string", "uuid"), "upper(md5('u' || i)::UUID::VARCHAR)"),
    "doc": (a_field("doc", "string", "json"), """'{"a":  ' || i || '}'"""),
}
ROWS = 450


@dataclass
class Case:
    """A DuckDB sink that holds one table, and the upstream that it was filled from, as Parquet."""

    spark: "SparkSession"
    folder: Path
    table: SinkTable
    sink: DuckDBSink

    @classmethod
    def of(
        cls, spark: "SparkSession", folder: Path, key: tuple[str, ...], fields: list[object], sql: str
    ) -> "Case":
        schema = json.dumps({"type": "struct", "fields": fields})
        table = SinkTable("t", "t", key, schema)
        (folder / "up").mkdir()
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            con.execute(f"COPY ({sql}) TO '{folder}/up/0.parquet' (FORMAT parquet)")
        case = cls(spark, folder, table, DuckDBSink(DuckDBOptions(path=str(folder / "w.duckdb"))))
        case.sink.prepare("j", [table], into_existing=False)
        case.commit(1, 0)
        return case

    def commit(self, epoch: int, prev: int, files: tuple[StagedFile, ...] = (StagedFile("0.parquet", 1),)) -> None:
        staged = Staged(f"a{epoch}", {"t": StagedTable(inserts=files, rows=len(files))})
        at = Checkpoint(epoch, prev, 0, f"a{epoch}", "{}", Phase.SNAPSHOT, Position.of({"log": epoch}))
        saved = SavedJob("{}", at)
        folder = str(self.folder / "up")
        self.sink.commit(EpochCommit("j", epoch, prev, 0, f"a{epoch}", (self.table,), folder, staged, (), saved))

    def expected(self) -> "DataFrame":
        return self.spark.read.parquet(str(self.folder / "up"))

    def stranger(self, sql: str) -> None:
        with duckdb.connect(str(self.folder / "w.duckdb")) as con:
            con.execute("SET TimeZone = 'UTC'")
            con.execute(sql)

    def verdict(self, limit: int = 20, sample: float | None = None) -> TableVerdict:
        folder = self.folder / f"v{time.monotonic_ns()}"
        folder.mkdir()
        with self.sink.copied("j", False, folder) as copy:
            return compare(self.spark, self.expected(), copy, self.table, limit, sample).verdict


@pytest.fixture
def orders(spark: "SparkSession", tmp_path: Path) -> Case:
    """Integer key, columns that both engines hash: no fallback to Spark's hash."""
    names = ("whole", "price", "word", "at", "day")
    return Case.of(spark, tmp_path, ("id",), *columns(names))


@pytest.fixture
def everything(spark: "SparkSession", tmp_path: Path) -> Case:
    return Case.of(spark, tmp_path, ("id",), *columns(tuple(COLUMNS)))


def columns(names: tuple[str, ...], key: str = "i AS id", kind: str = "long") -> tuple[list[object], str]:
    values = ", ".join(f'CASE WHEN i < {ROWS - 1} THEN {COLUMNS[name][1]} END AS "{name}"' for name in names)
    return [
        a_field("id", kind),
        *(COLUMNS[name][0] for name in names),
    ], f"SELECT {key}, {values} FROM range({ROWS}) r(i)"


def test_xxhash64_is_sparks(spark: "SparkSession") -> None:
    texts = ["", "a", "größe", "null", *("x" * n for n in (3, 4, 7, 8, 31, 32, 33, 64, 100)), "\N{SNOWMAN}" * 40]
    hashes = ", ".join(f"xxhash64(CAST(X'{text.encode().hex()}' AS STRING))" for text in texts)
    row = spark.sql(f"SELECT array({hashes}) AS h").toArrow().to_pylist()
    assert row == [{"h": [xxhash64(text.encode()) for text in texts]}]


def test_every_type_is_equal_to_itself(everything: Case) -> None:
    assert everything.verdict() == TableVerdict("t", "t", True, ROWS, ROWS)


def test_a_value_that_differs_is_named_whatever_its_type(everything: Case) -> None:
    """One value of each column becomes NULL, and a NULL of each another row's value."""
    for at, name in enumerate(COLUMNS):
        everything.stranger(f'UPDATE t SET "{name}" = NULL WHERE id = {20 * at + 6}')
    last = ", ".join(f'"{name}" = (SELECT "{name}" FROM t WHERE id = 0)' for name in COLUMNS)
    everything.stranger(f"UPDATE t SET {last} WHERE id = {ROWS - 1}")
    verdict = everything.verdict(limit=100)
    told = {(row.key[0][1], row.column): (row.upstream is None, row.sink is None) for row in verdict.rows}
    emptied = {(str(20 * at + 6), name): (False, True) for at, name in enumerate(COLUMNS)}
    filled = {(str(ROWS - 1), name): (True, False) for name in COLUMNS}
    assert told == {**emptied, **filled}
    ranges = [found.columns for found in verdict.different]
    assert ranges[:-1] == [(name,) for name in COLUMNS]
    assert set(ranges[-1]) == set(COLUMNS)


def test_columns_of_rows_on_one_side_only_do_not_differ(orders: Case) -> None:
    """Their hashes do, with those of all other columns."""
    orders.stranger("DELETE FROM t WHERE id = 1")
    orders.stranger(f"DELETE FROM t WHERE id = {ROWS // 2}; UPDATE t SET word = 'x' WHERE id = {ROWS // 2 + 1}")
    orders.stranger(f"INSERT INTO t BY NAME SELECT {ROWS} AS id, 'x' AS word")
    verdict = orders.verdict()
    assert (verdict.missing, verdict.extra, verdict.changed) == (2, 1, 1)
    assert [found.columns for found in verdict.different] == [(), ("word",), ()]


def test_a_null_that_moves_to_the_next_column_is_seen(spark: "SparkSession", tmp_path: Path) -> None:
    fields: list[object] = [a_field("id", "long"), a_field("x", "double"), a_field("y", "double")]
    case = Case.of(spark, tmp_path, ("id",), fields, "SELECT 1::BIGINT AS id, 1.5::DOUBLE AS x, NULL::DOUBLE AS y")
    case.stranger("UPDATE t SET x = NULL, y = 1.5")
    assert [(row.column, row.upstream, row.sink) for row in case.verdict().rows] == [
        ("x", "1.5", None),
        ("y", None, "1.5"),
    ]


def test_a_microsecond_and_an_infinite_time_are_seen(everything: Case) -> None:
    everything.stranger("UPDATE t SET nest = {'x': id, 't': nest.t + INTERVAL 1 MICROSECOND} WHERE id = 3")
    everything.stranger('UPDATE t SET "at" = "at" + INTERVAL 1 MICROSECOND WHERE id = 33')
    everything.stranger("UPDATE t SET \"at\" = 'infinity' WHERE id = 63")
    everything.stranger(f"UPDATE t SET day = '-infinity' WHERE id IN (93, {ROWS - 1})")  # the last one is NULL
    told = [(row.key[0][1], row.column) for row in everything.verdict().rows]
    assert told == [("3", "nest"), ("33", "at"), ("63", "at"), ("93", "day"), (str(ROWS - 1), "day")]


def test_infinite_dates_and_times_of_a_parquet_file_are_equal_to_themselves(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """DuckDB and Parquet keep them as numbers that Spark reads as distant times."""
    fields = [
        a_field("id", "long"),
        a_field("d", "date"),
        a_field("t", "timestamp"),
        a_field("l", "timestamp_ntz"),
    ]
    ends = ("'infinity'", "'-infinity'", "'2000-01-01'")
    rows = (f"({i}::BIGINT, {v}::DATE, {v}::TIMESTAMPTZ, {v}::TIMESTAMP)" for i, v in enumerate(ends))
    case = Case.of(
        spark, tmp_path, ("id",), list(fields), f"SELECT * FROM (VALUES {', '.join(rows)}) r(id, d, t, l)"
    )
    assert case.verdict().equal
    case.stranger("UPDATE t SET d = '-infinity', t = '-infinity', l = '-infinity' WHERE id = 0")
    assert [row.column for row in case.verdict().rows] == ["d", "t", "l"]


def test_case_47_what_a_stranger_wrote_is_named(orders: Case) -> None:
    orders.stranger("UPDATE t SET price = price + 0.01 WHERE id = 77")
    orders.stranger("DELETE FROM t WHERE id = 5")
    orders.stranger("INSERT INTO t SELECT * FROM t WHERE id = 300")
    orders.stranger("INSERT INTO t (id) VALUES (-8), (99999)")
    verdict = orders.verdict()
    assert not verdict.equal
    assert (verdict.rows_upstream, verdict.rows_sink) == (ROWS, ROWS + 2)
    assert (verdict.missing, verdict.extra, verdict.changed) == (1, 3, 1)
    assert set(verdict.rows) == {
        DifferentRow((("id", "-8"),), None, "0 rows", "1 row"),
        DifferentRow((("id", "5"),), None, "1 row", "0 rows"),
        DifferentRow((("id", "77"),), "price", "5097.64", "5097.65"),
        DifferentRow((("id", "300"),), None, "1 row", "2 rows"),
        DifferentRow((("id", "99999"),), None, "0 rows", "1 row"),
    }
    assert verdict.different[0].name == "id from the first to 1554"


def test_two_values_that_changed_places_are_named(orders: Case) -> None:
    orders.stranger("UPDATE t SET word = CASE id WHEN 10 THEN '' ELSE 'paid' END WHERE id IN (10, 11)")
    assert [(row.key[0][1], row.upstream, row.sink) for row in orders.verdict().rows] == [
        ("10", "paid", ""),
        ("11", "", "paid"),
    ]


def test_null_and_empty_string_differ(orders: Case) -> None:
    orders.stranger("UPDATE t SET word = '' WHERE word IS NULL AND id < 10")
    assert [(row.upstream, row.sink) for row in orders.verdict().rows] == [(None, ""), (None, "")]


def test_no_more_rows_are_named_than_asked_for(orders: Case) -> None:
    orders.stranger("UPDATE t SET whole = 0")
    verdict = orders.verdict(limit=3)
    assert [row.key[0][1] for row in verdict.rows] == ["0", "1", "2"]
    assert len(verdict.different) == verdict.ranges
    assert (verdict.missing, verdict.extra, verdict.changed) == (0, 0, ROWS)


def test_an_emptied_sink_and_an_empty_upstream_are_told_apart(orders: Case) -> None:
    orders.stranger("DELETE FROM t")
    verdict = orders.verdict(limit=2)
    assert (verdict.equal, verdict.rows_upstream, verdict.rows_sink) == (False, ROWS, 0)
    assert (verdict.missing, verdict.extra, verdict.changed) == (ROWS, 0, 0)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("'k' || i AS id", "string"),
        ("i::DOUBLE / 7 AS id", "double"),
        ("DATE '1999-12-31' + i::INTEGER AS id", "date"),
        ("9223372036854775807 - i * 20000000000000000 AS id", "long"),
        ("(i::DECIMAL(18,2) / 4)::DECIMAL(18,2) AS id", "decimal(18,2)"),
    ],
)
def test_keys_of_any_type(spark: "SparkSession", tmp_path: Path, key: str, kind: str) -> None:
    case = Case.of(spark, tmp_path, ("id",), *columns(("whole", "note"), key, kind))
    assert (case.verdict().equal, case.verdict().ranges) == (True, 1)
    case.stranger("UPDATE t SET note = 'other' WHERE note = 'note 7'")
    case.stranger("DELETE FROM t WHERE note = 'note 8'")
    assert [(row.column, row.sink) for row in case.verdict().rows] == [(None, "0 rows"), ("note", "other")]


def test_a_string_key_with_many_values_is_compared_by_sparks_hash_alone(
    spark: "SparkSession", tmp_path: Path
) -> None:
    sql = "SELECT 'key ' || i AS id, i AS whole FROM range(5000) r(i)"
    case = Case.of(spark, tmp_path, ("id",), [a_field("id", "string"), a_field("whole", "long")], sql)
    assert case.verdict().equal
    case.stranger("UPDATE t SET whole = -1 WHERE id = 'key 4321'")
    verdict = case.verdict()
    assert [(row.key, row.upstream, row.sink) for row in verdict.rows] == [((("id", "key 4321"),), "4321", "-1")]
    assert verdict.different[0].columns == ("whole",)
    assert "of 64 by hash of id" in verdict.different[0].name


def test_a_key_of_several_columns(spark: "SparkSession", tmp_path: Path) -> None:
    fields: list[object] = [a_field("region", "string"), a_field("id", "long"), a_field("v", "double")]
    case = Case.of(
        spark,
        tmp_path,
        ("region", "id"),
        fields,
        "SELECT 'r' || i % 3 AS region, i // 3 AS id, i / 4.0 AS v FROM range(90) r(i)",
    )
    assert case.verdict().equal
    case.stranger("UPDATE t SET v = -0.5 WHERE region = 'r1' AND id = 4")
    assert [(row.key, row.column) for row in case.verdict().rows] == [((("region", "r1"), ("id", "4")), "v")]


def test_case_48_names_are_data(spark: "SparkSession", tmp_path: Path) -> None:
    odd = 'a[/b] "q" `t` .{x} %s'
    quoted = '"' + odd.replace('"', '""') + '"'
    fields: list[object] = [a_field(odd, "long"), a_field(odd + "2", "string")]
    sql = f"SELECT i AS {quoted}, 'x' || i AS {quoted[:-1]}2\" FROM range(9) r(i)"
    case = Case.of(spark, tmp_path, (odd,), fields, sql)
    assert case.verdict().equal
    case.stranger(f"DELETE FROM t WHERE {quoted} = 3")
    assert case.verdict().rows == (DifferentRow(((odd, "3"),), None, "1 row", "0 rows"),)


def test_a_difference_of_hashes_without_a_row_that_differs_is_no_alarm(
    orders: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    import backfill_cli.sinks.duckdb.verify as sink_side

    monkeypatch.setattr(sink_side, "xxhash64", lambda data: 1)
    verdict = orders.verdict()
    assert (verdict.equal, verdict.different, verdict.ranges > 1) == (True, (), True)


SAMPLED = [  # a key with a word, one that only Spark hashes, one of several columns, a column without a word
    (("id",), "i AS id", "long", ("whole", "word")),
    (("id",), "'key ' || i AS id", "string", ("whole",)),
    (("id",), "i::DOUBLE / 7 AS id", "double", ("note",)),
    (("id", "whole"), "i AS id", "long", ("whole", "note")),
]


@pytest.mark.parametrize(("keys", "key", "kind", "names"), SAMPLED)
def test_of_a_sample_every_difference_is_found_and_of_the_rest_none(
    spark: "SparkSession",
    tmp_path: Path,
    keys: tuple[str, ...],
    key: str,
    kind: str,
    names: tuple[str, ...],
) -> None:
    """Emptying the sink shows which keys are in the sample: the missing ones."""
    rows = 2_400
    sql = ", ".join(f"{COLUMNS[name][1]} AS {name}" for name in names)
    fields = [a_field("id", kind), *(COLUMNS[name][0] for name in names)]
    case = Case.of(spark, tmp_path, keys, fields, f"SELECT {key}, {sql} FROM range({rows}) r(i)")
    assert case.verdict(sample=0.1).equal
    case.stranger("CREATE TABLE kept AS FROM t; DELETE FROM t")
    emptied = case.verdict(limit=rows, sample=0.1)
    chosen = {row.key[0][1] for row in emptied.rows}
    assert emptied.missing == emptied.rows_upstream == len(chosen)
    assert 0.07 < len(chosen) / rows < 0.13

    listed = ", ".join(f"'{text}'" for text in chosen)
    inside = f"CAST(id AS VARCHAR) IN ({listed})"
    case.stranger(f"INSERT INTO t FROM kept; UPDATE t SET {names[-1]} = NULL WHERE NOT {inside}")
    assert case.verdict(sample=0.1).equal
    case.stranger(f"DELETE FROM t WHERE NOT {inside}")
    assert case.verdict(sample=0.1).equal
    case.stranger(f"UPDATE t SET {names[-1]} = NULL WHERE {inside} AND {names[-1]} IS NOT NULL")
    case.stranger(f"INSERT INTO t SELECT * FROM t WHERE CAST(id AS VARCHAR) = '{min(chosen)}'")
    found = case.verdict(sample=0.1)
    assert (found.extra, found.changed > len(chosen) // 2, found.missing) == (1, True, 0)


# The job continues


def definition(case: Case, complete_at: Position | None = None) -> JobDefinition:
    pin = Pin(START, None, complete_at, ())
    return JobDefinition("j", "{}", "{}", pin, "forever", "snapshot", (case.table,))


def test_a_live_job_commits_while_it_is_verified(orders: Case) -> None:
    def expected(table: SinkTable, at: Checkpoint) -> "DataFrame":
        orders.commit(2, 1)
        assert at.epoch == 1
        return orders.expected()

    report = verify_against(orders.spark, definition(orders), orders.sink, True, orders.folder / "st", expected)
    assert (report.equal, report.epoch, report.live) == (True, 1, True)
    assert orders.sink.committed("j")["t"].epoch == 2
    assert list((orders.folder / "st").glob("*")) == []


def test_verify_waits_for_a_commit_in_flight(orders: Case) -> None:
    with held_for(orders.folder / "w.duckdb", seconds=1.0) as held_until:
        report = verify_against(
            orders.spark, definition(orders), orders.sink, True, orders.folder, lambda table, at: orders.expected()
        )
        assert time.monotonic() > held_until
    assert report.equal


def test_case_47_no_false_alarm_after_a_resume_applied_an_epoch_again(orders: Case) -> None:
    orders.commit(1, 0)
    report = verify_against(
        orders.spark, definition(orders), orders.sink, False, orders.folder, lambda table, at: orders.expected()
    )
    assert report.equal


def test_a_fuzzy_load_says_that_it_is_still_converging(orders: Case) -> None:
    for complete_at, converging in ((1, False), (2, True)):
        told = definition(orders, Position.of({"log": complete_at}))
        report = verify_against(
            orders.spark, told, orders.sink, False, orders.folder, lambda table, at: orders.expected()
        )
        assert report.converging is converging


def test_a_job_without_a_commit_has_nothing_to_compare(orders: Case) -> None:
    other = replace(definition(orders), name="other")
    with pytest.raises(UsageError, match="committed nothing yet"):
        verify_against(orders.spark, other, orders.sink, False, orders.folder, lambda table, at: orders.expected())


@contextmanager
def held_for(path: Path, seconds: float) -> Iterator[float]:
    """Another process holds the file, as a runner does while it commits; yields when it will release it."""
    script = f"import duckdb; con = duckdb.connect({str(path)!r}); print('held', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        release = threading.Timer(seconds, holder.stdin.close)
        release.start()
        yield time.monotonic() + seconds
        release.join()
