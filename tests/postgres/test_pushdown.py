"""What chunks leave out of a table, against Spark, which decides: random conditions over values of every kind."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from postgres import Server
from postgres_database import Database, database
from postgres_job import Run

from backfill_cli.config.pushdown import wanted
from backfill_cli.config.sections import Transform
from backfill_cli.contracts import TableSpec
from backfill_cli.engine.verify.job import verify
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.refill import Extent
from backfill_cli.model.verify import Asked
from backfill_cli.upstreams.postgres import conditions
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.source import PostgresSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = {
    "i2": ("smallint", ["-32768", "-1", "0", "1", "32767"], ["-1", "0", "1", "32768", "40000", "-99999999999"]),
    "i4": ("int", ["-2147483648", "-1", "0", "7", "2147483647"], ["7", "0", "2147483648", "-2147483648", "7.0"]),
    "I8": (
        "bigint",
        ["-9223372036854775808", "5", "9223372036854775807"],
        ["5", "9223372036854775807", "-5", "5L"],
    ),
    "d": ("positive", ["1", "2", "3"], ["2", "3", "9"]),
    "n": ("numeric(12,2)", ["-9999999999.99", "0.00", "0.01", "12.50"], ["12.5", "0", "0.005", "-1", "12.50"]),
    "wide": ("numeric(38,10)", ["1.0000000001", "9999999999999999999999999999"], ["1", "1.0000000001", "0.5"]),
    "tiny": ("numeric(38,38)", ["0.5", "0." + "0" * 37 + "1"], ["0", "0.5", "1"]),
    "free": ("numeric", ["1.5", "2"], ["'2'", "'2.0'"]),
    "day": (
        "date",
        ["0001-01-01", "1582-10-10", "2024-02-29", "9999-12-31"],
        ["'2024-02-29'", "DATE '1582-10-10'"],
    ),
    "at": (
        "timestamptz",
        ["0001-01-01 00:00:00+00", "2024-03-31 01:59:59.999999+00", "2024-03-31 02:00:00+02"],
        ["'2024-03-31 00:00:00'", "TIMESTAMP '2024-03-31 01:59:59.999999'", "DATE '2024-03-31'", "'2024-03-31'"],
    ),
    "moment": (
        "timestamp",
        ["1900-01-01 00:00:00", "2024-03-31 02:30:00.5"],
        ["'2024-03-31 02:30:00.5'", "'1900-01-01'", "DATE '2024-03-31'", "TIMESTAMP '2024-03-31 02:30:00.5'"],
    ),
    "ok": ("boolean", ["true", "false"], ["TRUE", "false"]),
    "s": ("text", ["", "a", "A", "a ", "ä", "é"], ["'a'", "'A'", "''", "'a '", "'ä'", "'it''s'"]),
    "v": ('varchar(9) COLLATE "alike"', ["a", "A", "e", "E"], ["'a'", "'E'"]),
    "c": ("char(3)", ["a", "ab"], ["'a'", "'a  '"]),
    "u": ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], ["'A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11'"]),
    "f": ("float8", ["NaN", "-0", "0", "1.5", "Infinity"], ["0", "1.5"]),
}


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(
            "CREATE COLLATION alike (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
            "CREATE DOMAIN positive AS int CHECK (value > 0)",
            "CREATE TABLE t (id int PRIMARY KEY, "
            + ", ".join(f'"{n}" {kind}' for n, (kind, *_) in VALUES.items())
            + ")",
        )
        yield made


def _filled(db: Database, chance: random.Random, rows: int) -> None:
    def value(kind: str, values: list[str]) -> str:
        return "NULL" if chance.random() < 0.15 else f"'{chance.choice(values)}'::{kind.partition(' ')[0]}"

    made = (
        f"({n}, " + ", ".join(value(kind, some) for kind, some, _ in VALUES.values()) + ")" for n in range(rows)
    )
    db("INSERT INTO t VALUES " + ", ".join(made))


def _condition(chance: random.Random) -> str:
    """Of one column, as users write them."""
    name = chance.choice(list(VALUES))
    constants = VALUES[name][2]
    one, two = chance.choice(constants), chance.choice(constants)
    op = chance.choice(["=", "<>", "!=", "<", "<=", ">", ">=", "=="])
    return chance.choice(
        [
            f"{name} {op} {one}",
            f"{one} {op} {name}",
            f"NOT ({name} {op} {one})",
            f"{name} IN ({one}, {two})",
            f"{name} NOT IN ({one}, {two})",
            f"{name} BETWEEN {one} AND {two}",
            f"`{name}` IS NULL",
            f"{name.upper()} IS NOT NULL",
            f"{name} <=> {one}",
            f"({name} {op} {one} OR {name} IS NULL)",
            "ok",
            "NOT ok",
        ]
    )


def test_a_row_that_is_left_out_is_one_that_spark_leaves_out(spark: "SparkSession", db: Database) -> None:
    chance = random.Random(29)
    _filled(db, chance, 300)
    whole = PostgresSource(PostgresOptions(dsn=db.dsn, slot=db.name), [TableSpec("t", ("id",))])
    try:
        (split,) = whole.pin().splits
        frame = whole.scan(spark, "t", whole.closed("t", [SnapshotRead("t", split.id, limit_rows=1000)])).cache()
        columns = whole._catalog.in_force["t"]
    finally:
        whole.close()
    asked = [" AND ".join(_condition(chance) for _ in range(chance.choice([1, 1, 2]))) for _ in range(150)]
    marks = (f"coalesce(({one}), false) AS p{n}" for n, one in enumerate(asked))
    kept = frame.selectExpr("id", *marks).orderBy("id").toArrow().to_pydict()
    told = [conditions.condition(columns, wanted(Transform(where=one), ["id"])) for one in asked]
    read = db("SELECT " + ", ".join(f"coalesce({one}, false)" for one in told) + " FROM t ORDER BY id")
    exact = 0
    for n, (one, sql) in enumerate(zip(asked, told, strict=True)):
        by_spark, by_server = kept[f"p{n}"], [row[n] for row in read]
        assert all(there or not met for met, there in zip(by_spark, by_server, strict=True)), (one, sql)
        exact += sql != "true" and by_spark == by_server
    assert sum(sql != "true" for sql in told) > 75
    assert exact > 60  # beside parts that only Spark decides


def test_only_what_is_needed_is_read(spark: "SparkSession", db: Database) -> None:
    _filled(db, random.Random(1), 40)
    shape = Transform(select=["id", "i4 + 1 AS more", "s"], where="i4 >= 0 AND length(s) < 9")
    spec = TableSpec("t", ("id",), filtered=True, wanted=wanted(shape, ["id"]))
    source = PostgresSource(PostgresOptions(dsn=db.dsn, slot=db.name), [spec])
    try:
        (split,) = source.pin().splits
        (closed,) = source.closed("t", [SnapshotRead("t", split.id, limit_rows=30)])
        assert source.row_count(closed) == 30, "rows that are passed, whichever are read"
        frame = source.scan(spark, "t", [closed])
        assert frame.columns == ["id", "i4", "s"]
        expected = db("SELECT id, i4, s FROM t WHERE i4 >= 0 AND id < 30 ORDER BY 1")
        assert [tuple(row.values()) for row in frame.orderBy("id").toArrow().to_pylist()] == expected
        (rest,) = source.closed("t", [SnapshotRead("t", split.id, closed.up_to, limit_rows=30)])
        assert (rest.up_to, source.row_count(rest)) == (None, 10)
        (none,) = source.closed("t", [SnapshotRead("t", split.id, json.dumps(["39"]), limit_rows=30)])
        assert source.row_count(none) is None, (
            "a row that must be seen may not have been visible when it was counted"
        )
    finally:
        source.close()


def test_a_row_that_begins_or_ceases_to_match_comes_with_the_log(
    spark: "SparkSession", db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_DSN", db.dsn)
    db(
        "CREATE TABLE o (id int PRIMARY KEY, n int, day date, unused text, ends date)",
        "ALTER TABLE o REPLICA IDENTITY FULL",
        "INSERT INTO o SELECT n, n % 10, date '2026-01-01' + n, repeat('x', 100) FROM generate_series(1, 200) n",
    )
    shape = """[transform]
select = ["* EXCEPT (unused, Day, ends)", "n * 2 AS twice"]
where = "n = 3 AND day > '2026-02-01'"
"""
    run = Run(db, tmp_path, "o", more=shape)
    run.catch_up()
    right = "SELECT id, n, n * 2 FROM o WHERE n = 3 AND day > '2026-02-01' ORDER BY 1"
    assert run.rows("SELECT id, n, twice FROM o ORDER BY 1") == db(right) != []
    assert {(line.snapshot_rows) for line in run.catalog.ledger("orders", 100) if line.snapshot_rows} == {200}
    db(
        "UPDATE o SET n = 3, ends = 'infinity' WHERE id IN (100, 101)",  # which Spark does not have
        "UPDATE o SET n = 4 WHERE id = 103",
        "DELETE FROM o WHERE id = 113",
    )
    run.catch_up()
    assert run.rows("SELECT id, n, twice FROM o ORDER BY 1") == db(right)
    assert verify("orders", run.catalog).equal
    (part,) = verify("orders", run.catalog, asked=Asked(("o",), None, Extent("", "90", "110"))).tables
    between = [row for row in db(right) if 90 <= row[0] <= 110]
    assert (part.equal, part.rows_upstream, part.rows_sink) == (True, len(between), len(between))
