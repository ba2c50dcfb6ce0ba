"""Values of change and snapshot files come out exactly, or the file and the column are named."""

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from backfill_cli.contracts import TableSpec, Upstream
from backfill_cli.errors import BadData, Fatal
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.upstreams.files import connector
from backfill_cli.upstreams.files.edge import from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC = dt.UTC
FAILURES = (BadData, PySparkException, Py4JError)
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "flag": pa.bool_(),
    "small": pa.int16(),
    "ratio": pa.float64(),
    "price": pa.decimal128(38, 4),
    "day": pa.date32(),
    "local": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "raw": pa.binary(),
    "tags": pa.list_(pa.string()),
    "prices": pa.list_(pa.decimal128(10, 2)),
    "point": pa.struct([("x", pa.float64()), ("at", pa.timestamp("us"))]),
    "labels": pa.map_(pa.string(), pa.int64()),
}
VALUES: dict[str, Any] = {
    "id": -(2**63),
    "flag": True,
    "small": -32768,
    "ratio": 0.1,
    "price": Decimal("-9999999999999999999999999999999999.9999"),
    "day": dt.date(1500, 2, 28),
    "local": dt.datetime(1500, 1, 1, 0, 0, 0, 1),
    "instant": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "raw": b"\x00\xff",
    "tags": ["a", None, ""],
    "prices": [Decimal("-0.01"), None, Decimal("12.30")],
    "point": {"x": -0.5, "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999999)},
    "labels": [("k", 1), ("l", None)],
}
NULLS: dict[str, Any] = dict.fromkeys(COLUMNS) | {"id": 1}


def unscaled(value: Decimal, scale: int) -> str:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * 10 ** (scale + int(exponent)) * (-1 if sign else 1)
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def micros(value: dt.datetime | dt.date) -> int:
    if not isinstance(value, dt.datetime):
        return (value - dt.date(1970, 1, 1)).days
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (zoned - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1)


def as_debezium(row: dict[str, Any]) -> dict[str, Any]:
    if row["price"] is None:
        return row
    return row | {
        "price": unscaled(row["price"], 4),
        "day": micros(row["day"]),
        "local": micros(row["local"]),
        "instant": row["instant"].isoformat().replace("+00:00", "Z"),
        "raw": base64.b64encode(row["raw"]).decode(),
        "prices": [None if v is None else unscaled(v, 2) for v in row["prices"]],
        "point": {"x": row["point"]["x"], "at": micros(row["point"]["at"])},
        "labels": dict(row["labels"]),
    }


def logical(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "parameters": parameters}


TOLD: dict[str, dict[str, Any]] = {
    "id": {"type": "int64"},
    "flag": {"type": "boolean"},
    "small": {"type": "int16"},
    "ratio": {"type": "double"},
    "price": logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="4"),
    "day": logical("int32", "io.debezium.time.Date"),
    "local": logical("int64", "io.debezium.time.MicroTimestamp"),
    "instant": logical("string", "io.debezium.time.ZonedTimestamp"),
    "raw": {"type": "bytes"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "prices": {"type": "array", "items": logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="2")},
    "point": {
        "type": "struct",
        "fields": [
            {"type": "double", "field": "x"},
            {"field": "at", **logical("int64", "io.debezium.time.MicroTimestamp")},
        ],
    },
    "labels": {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}},
}


def block(told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    fields = [{**field, "field": name} for name, field in told.items()]
    return {"fields": [{"field": "after", "fields": fields}, {"field": "before", "fields": fields}]}


def event(op: str, before: Any, after: Any, told: dict[str, dict[str, Any]] | None = None) -> str:
    envelope = {"op": op, "before": before, "after": after, "source": {"ts_ms": 5}}
    return json.dumps(envelope if told is None else {"schema": block(told), "payload": envelope})


def opened(root: Path, columns: dict[str, pa.DataType], changes: dict[str, Any], key: str = "id") -> Upstream:
    (root / "snapshot").mkdir(exist_ok=True)
    (root / "changes").mkdir(exist_ok=True)
    pq.write_table(pa.schema(list(columns.items())).empty_table(), root / "snapshot" / "0.parquet")
    options = connector.options.model_validate(
        {
            "snapshot": {"path": str(root / "snapshot"), "format": "parquet"},
            "changes": {"path": str(root / "changes"), **changes},
        }
    )
    return connector.open(options, [TableSpec("t", (key,))])


def changes_of(upstream: Upstream, spark: "SparkSession") -> "DataFrame":
    pin = upstream.pin()
    view = upstream.observe(pin.position, False)
    schema = dict(pin.schema)["t"]
    for epoch in view.pending:
        schema = dict(epoch.schema).get("t", schema)
    return upstream.changes(spark, "t", pin.position, view.latest, schema).orderBy("_seq")


def read(upstream: Upstream, spark: "SparkSession", *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = changes_of(upstream, spark).select(*columns).toArrow().to_pylist()
    return found


def failure(upstream: Upstream, spark: "SparkSession") -> BadData:
    """What computing the changes fails with."""
    with pytest.raises(FAILURES) as caught:
        changes_of(upstream, spark).collect()
    ours = caught.value if isinstance(caught.value, BadData) else from_spark(caught.value)
    assert isinstance(ours, BadData), caught.value
    return ours


@pytest.mark.parametrize("told", [None, TOLD], ids=["schemaless", "with schema block"])
def test_case_25_every_type_comes_out_of_debezium_exactly(
    tmp_path: Path, spark: "SparkSession", told: dict[str, Any] | None
) -> None:
    options = {"timestamps": "us", "decimals": "precise"} if told is None else {}
    upstream = opened(tmp_path, COLUMNS, {"format": "debezium", **options})
    lines = [event("c", None, as_debezium(VALUES), told), event("r", None, as_debezium(NULLS), told), "", "null"]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    assert read(upstream, spark, *COLUMNS) == [VALUES, NULLS]


ONE = {"id": pa.int64(), "v": pa.string()}


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_case_06_the_order_in_a_file_is_kept_when_many_tasks_read_it(
    tmp_path: Path, spark: "SparkSession", kind: str
) -> None:
    upstream = opened(
        tmp_path, {"id": pa.int64(), "n": pa.int64()}, {"format": "debezium" if kind == "json" else "dms"}
    )
    path = tmp_path / "changes" / f"1.{kind}"
    numbers = range(20_000)
    if kind == "json":
        path.write_text("".join(f"{event('u', None, {'id': 1, 'n': n})}\n" for n in numbers))
    elif kind == "csv":
        path.write_text("".join(f"U,1,{n}\n" for n in numbers))
    else:
        table = pa.table({"Op": ["U"] * len(numbers), "id": [1] * len(numbers), "n": list(numbers)})
        pq.write_table(table, path, row_group_size=500)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        frame = changes_of(upstream, spark)
        assert [r["n"] for r in frame.select("n").toArrow().to_pylist()] == list(numbers)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_a_window_may_begin_and_end_inside_a_file_of_several_epochs(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, ONE, {"format": "change-feed", "epoch": "_commit_version"})
    for name, versions in (("1", [1, 2, 3, 3]), ("2", [4, 5, 6])):
        rows = {"id": versions, "v": [f"v{v}" for v in versions], "_commit_version": versions}
        pq.write_table(
            pa.table({**rows, "_change_type": ["insert"] * len(versions)}),
            tmp_path / "changes" / f"{name}.parquet",
        )
    pin = upstream.pin()
    pending = upstream.observe(pin.position, False).pending
    assert [(e.cursors, e.rows) for e in pending] == [((("epoch", v),), 2 if v == 3 else 1) for v in range(1, 7)]
    at = [Position.of(dict(e.cursors)) for e in pending]
    frame = upstream.changes(spark, "t", at[1], at[4], pin.schema["t"])
    assert sorted(r["id"] for r in frame.collect()) == [3, 3, 4, 5]


BROKEN = {
    "not JSON": ('{"op": "c", "after": {"id": 1, "v"', "", "1.json"),
    "unknown op": (event("x", None, {"id": 1, "v": "a"}), "", "unknown op"),
    "truncate": (event("t", None, None), "", "truncate is not supported"),
    "a delete without a before image": (event("d", None, None), "", "so no key"),
    "an update without after": (event("u", {"id": 1, "v": "a"}, None), "", "no 'after'"),
    "a NULL key": (event("c", None, {"id": None, "v": "a"}), "", "the key is NULL"),
    "a value not sent": (
        event("u", None, {"id": 7, "v": "__debezium_unavailable_value"}),
        "REPLICA IDENTITY",
        "key: 7",
    ),
    "a text for a number": (event("c", None, {"id": "seven", "v": "a"}), "", "columns"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_debezium_line_is_named(tmp_path: Path, spark: "SparkSession", case: str) -> None:
    line, hint, text = BROKEN[case]
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    good = event("c", None, {"id": 2, "v": "b"})
    last = [] if case == "not JSON" else [good]
    (tmp_path / "changes" / "1.json").write_text("\n".join([good, line, *last]))
    error = failure(upstream, spark)
    assert "1.json" in error.message
    assert text in error.message
    assert hint in error.hint


INEXACT: dict[str, tuple[pa.DataType, dict[str, Any], Any]] = {
    "a decimal with more digits": (pa.decimal128(10, 2), {"type": "string"}, "1.234"),
    "a decimal that is too large": (pa.decimal128(4, 2), {"type": "string"}, "123.45"),
    "a decimal of another scale": (
        pa.decimal128(10, 2),
        logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="3"),
        unscaled(Decimal("1.234"), 3),
    ),
    "nanoseconds": (pa.timestamp("us"), logical("int64", "io.debezium.time.NanoTimestamp"), 1001),
    "an infinite date": (pa.date32(), logical("int32", "io.debezium.time.Date"), 2147483647),
    "an infinite timestamp": (
        pa.timestamp("us"),
        logical("int64", "io.debezium.time.MicroTimestamp"),
        9223371331200000000,
    ),
    "a fraction below microseconds": (
        pa.timestamp("us", "UTC"),
        logical("string", "io.debezium.time.ZonedTimestamp"),
        "2026-01-01T00:00:00.1234567Z",
    ),
    "a number too large": (pa.int16(), {"type": "int16"}, 40000),
}


@pytest.mark.parametrize("case", INEXACT)
def test_what_debezium_sends_and_the_column_cannot_hold_is_named(
    tmp_path: Path, spark: "SparkSession", case: str
) -> None:
    kind, told, value = INEXACT[case]
    upstream = opened(tmp_path, {"id": pa.int64(), "v": kind}, {"format": "debezium"})
    line = event("c", None, {"id": 1, "v": value}, {"id": {"type": "int64"}, "v": told})
    (tmp_path / "changes" / "1.json").write_text(line)
    error = failure(upstream, spark)
    assert "1.json" in error.message
    assert "'v'" in error.message or '"v"' in error.message


def test_units_and_forms_of_schemaless_debezium_follow_the_options(tmp_path: Path, spark: "SparkSession") -> None:
    columns = {"id": pa.int64(), "at": pa.timestamp("us"), "price": pa.decimal128(15, 2)}
    upstream = opened(tmp_path, columns, {"format": "debezium", "timestamps": "ms", "decimals": "double"})
    lines = [
        event("c", None, {"id": 1, "at": -1, "price": -1234567890123.45}),
        event("u", None, {"id": 1, "at": 1, "price": 2}),
    ]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    assert read(upstream, spark, "at", "price") == [
        {"at": dt.datetime(1969, 12, 31, 23, 59, 59, 999000), "price": Decimal("-1234567890123.45")},
        {"at": dt.datetime(1970, 1, 1, 0, 0, 0, 1000), "price": Decimal("2.00")},
    ]


def test_a_timestamp_of_no_known_unit_is_an_error_that_names_the_option(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, {"id": pa.int64(), "at": pa.timestamp("us")}, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "at": 5}))
    error = failure(upstream, spark)
    assert "'at'" in error.message
    assert "upstream.changes.timestamps" in error.hint


def test_case_26_a_column_added_in_the_log_is_null_before_and_exact_after(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    old = {"id": {"type": "int64"}, "v": {"type": "string"}}
    new = old | {"n": logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="1")}
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "v": "a"}, old))
    lines = [
        event("c", None, {"id": 2, "v": "b"}, old),
        event("c", None, {"id": 3, "v": "c", "n": unscaled(Decimal("1.5"), 1)}, new),
    ]
    (tmp_path / "changes" / "2.json").write_text("\n".join(lines))
    assert read(upstream, spark, "id", "n") == [
        {"id": 1, "n": None},
        {"id": 2, "n": None},
        {"id": 3, "n": Decimal("1.5")},
    ]


def test_a_composite_key_with_odd_column_names_is_read(tmp_path: Path, spark: "SparkSession") -> None:
    columns = {"a.b": pa.int64(), "c`d": pa.string(), "Sum (€)": pa.float64()}
    upstream = opened(tmp_path, columns, {"format": "debezium"}, key="a.b")
    old, new = {"a.b": 1, "c`d": "x", "Sum (€)": 1.5}, {"a.b": 2, "c`d": "y", "Sum (€)": None}
    (tmp_path / "changes" / "1.json").write_text("\n".join([event("u", old, new), event("d", new, None)]))
    found = changes_of(upstream, spark).drop("_seq", "_ms").toArrow().to_pylist()
    gone = {"c`d": None, "Sum (€)": None}
    assert found == [{"_op": "D", "a.b": 1, **gone}, {"_op": "U", **new}, {"_op": "D", "a.b": 2, **gone}]


CSV_DDL = (
    "id BIGINT, s STRING, b BOOLEAN, n SMALLINT, f DOUBLE, p DECIMAL(20,3), d DATE, l TIMESTAMP_NTZ, i TIMESTAMP"
)
CSV_ROWS = """id,s,b,n,f,p,d,l,i
1,,,,,,,,
2,"",true,-5,1e300,-12345678901234567.125,1500-01-01,1500-01-01 00:00:00.000001,2026-06-01T12:00:00.5+02:00
3,null,false,0,-0.0,1.5000,9999-12-31,2026-06-01T12:00:00,2026-06-01T12:00:00Z
4,"a ""b"", c",1,7,NaN,+3,0001-01-01,2026-06-01 12:00:00.1230000000,2026-06-01
"""


def snapshot_of(root: Path, kind: str, ddl: str, content: str, **more: Any) -> Upstream:
    (root / f"data.{kind}").write_text(content)
    options = connector.options.model_validate(
        {"snapshot": {"path": str(root / f"data.{kind}"), "format": kind, "schema": ddl, **more}}
    )
    return connector.open(options, [TableSpec("t", ("id",))])


def scanned(upstream: Upstream, spark: "SparkSession") -> list[dict[str, Any]]:
    reads = [SnapshotRead("t", s.id, 0, None) for s in upstream.pin().splits]
    found: list[dict[str, Any]] = upstream.scan(spark, "t", reads).orderBy("id").toArrow().to_pylist()
    return found


def test_case_25_csv_keeps_null_and_empty_and_every_type_exactly(tmp_path: Path, spark: "SparkSession") -> None:
    rows = scanned(snapshot_of(tmp_path, "csv", CSV_DDL, CSV_ROWS), spark)
    assert [r["s"] for r in rows] == [None, "", "null", 'a "b", c']
    assert [r["b"] for r in rows] == [None, True, False, True]
    assert [r["n"] for r in rows] == [None, -5, 0, 7]
    assert [repr(r["f"]) for r in rows] == ["None", "1e+300", "-0.0", "nan"]
    assert [r["p"] for r in rows] == [None, Decimal("-12345678901234567.125"), Decimal("1.500"), Decimal("3.000")]
    assert [r["d"] for r in rows] == [None, dt.date(1500, 1, 1), dt.date(9999, 12, 31), dt.date(1, 1, 1)]
    assert [r["l"] for r in rows] == [
        None,
        dt.datetime(1500, 1, 1, 0, 0, 0, 1),
        dt.datetime(2026, 6, 1, 12),
        dt.datetime(2026, 6, 1, 12, 0, 0, 123000),
    ]
    assert [r["i"] and r["i"].astimezone(UTC) for r in rows] == [
        None,
        dt.datetime(2026, 6, 1, 10, 0, 0, 500000, UTC),
        dt.datetime(2026, 6, 1, 12, tzinfo=UTC),
        dt.datetime(2026, 6, 1, tzinfo=UTC),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1,2.5", "'n'"),
        ("1", "2 fields"),
        ("1,2,3", "2 fields"),
        ("x,2", "'id'"),
        ("1,99999", "'n'"),
    ],
)
def test_a_csv_line_that_does_not_fit_is_named(
    tmp_path: Path, spark: "SparkSession", line: str, text: str
) -> None:
    upstream = snapshot_of(tmp_path, "csv", "id BIGINT, n SMALLINT", f"id,n\n5,5\n{line}\n6,6\n")
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark)
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert "data.csv" in error.message
    assert text in error.message


JSON_ROWS = """{"id": 1, "p": 1.10, "s": "x", "t": "2026-01-01T00:00:00.000001", "r": "AP8=", "a": [{"q": 0.30}]}
{"id": 2, "p": 123456789012345678.99, "s": null, "t": null, "a": []}

{"id": 3}
"""


def test_json_keeps_every_digit(tmp_path: Path, spark: "SparkSession") -> None:
    ddl = "id BIGINT, p DECIMAL(20,2), s STRING, t TIMESTAMP_NTZ, r BINARY, a ARRAY<STRUCT<q: DECIMAL(4,2)>>"
    rows = scanned(snapshot_of(tmp_path, "json", ddl, JSON_ROWS), spark)
    assert [r["p"] for r in rows] == [Decimal("1.10"), Decimal("123456789012345678.99"), None]
    assert [r["t"] for r in rows] == [dt.datetime(2026, 1, 1, 0, 0, 0, 1), None, None]
    assert [r["r"] for r in rows] == [b"\x00\xff", None, None]
    assert [r["a"] for r in rows] == [[{"q": Decimal("0.30")}], [], None]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_case_25_bytes_that_are_no_text_are_named(tmp_path: Path, spark: "SparkSession", kind: str) -> None:
    upstream = snapshot_of(tmp_path, kind, "id BIGINT, s STRING", "")
    good = b"id,s\n1,a\xff\n" if kind == "csv" else b'{"id": 1, "s": "a\xff"}\n'
    (tmp_path / f"data.{kind}").write_bytes(good)
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark)
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert f"data.{kind}" in error.message


@pytest.mark.parametrize("line", ['{"id": 1, "p": 1.111}', '{"id": 1, "p": 1', '{"id": "x", "p": 1}', "[1]", "7"])
def test_a_json_line_that_does_not_fit_is_named(tmp_path: Path, spark: "SparkSession", line: str) -> None:
    upstream = snapshot_of(tmp_path, "json", "id BIGINT, p DECIMAL(4,2)", f'{{"id": 5, "p": 1}}\n{line}\n')
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark)
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert "data.json" in error.message


def test_odd_file_names_are_read_and_told_apart(tmp_path: Path, spark: "SparkSession") -> None:
    names = ["a b", "a+b", "a%20b", "x[1]", "x{1,2}", "q?", "s*", "ü", "h#h", "back\\slash", 'quote\'s "q"']
    (tmp_path / "data").mkdir()
    for index, name in enumerate(names):
        (tmp_path / "data" / f"{name}.json").write_text(f'{{"id": {index}}}\n')
        table = pa.table({"id": list(range(index * 10, index * 10 + 10))})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2)
    text = {"path": str(tmp_path / "data"), "format": "json", "schema": "id BIGINT"}
    upstream = connector.open(connector.options.model_validate({"snapshot": text}), [TableSpec("t", ("id",))])
    reads = [SnapshotRead("t", s.id, 0, None) for s in upstream.pin().splits]
    found = {r["_read"]: r["id"] for r in upstream.scan(spark, "t", reads).collect()}
    assert {reads[read].split: key for read, key in found.items()} == {f"{n}.json": i for i, n in enumerate(names)}
    glob = {"path": str(tmp_path / "*.parquet"), "format": "parquet"}
    upstream = connector.open(connector.options.model_validate({"snapshot": glob}), [TableSpec("t", ("id",))])
    upstream.pin()
    slices = [SnapshotRead("t", f"{n}.parquet", i % 4, i % 4 + (1 if i % 2 else 6)) for i, n in enumerate(names)]
    expected = [i * 10 + k for i in range(len(names)) for k in range(i % 4, i % 4 + (1 if i % 2 else 6))]
    assert sorted(r["id"] for r in upstream.scan(spark, "t", slices).collect()) == sorted(expected)


def test_case_10_columns_in_another_order_are_the_same_columns(tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "data").mkdir()
    one = pa.table({"b": [f"b{i}" for i in range(100)], "a": list(range(100))})
    other = pa.table({"a": list(range(100, 200)), "b": [f"b{i}" for i in range(100, 200)]})
    pq.write_table(one, tmp_path / "data" / "1.parquet", row_group_size=5)
    pq.write_table(other, tmp_path / "data" / "2.parquet", row_group_size=5)
    options = connector.options.model_validate({"snapshot": {"path": str(tmp_path / "data"), "format": "parquet"}})
    upstream = connector.open(options, [TableSpec("t", ("a", "b"))])
    upstream.pin()
    slices = [("1.parquet", 0, 10), ("2.parquet", 3, 7), ("1.parquet", 10, 100), ("2.parquet", 7, 90)]
    frame = upstream.scan(spark, "t", [SnapshotRead("t", *one) for one in slices])
    assert sorted((r["a"], r["b"]) for r in frame.collect()) == [
        (i, f"b{i}") for i in sorted([*range(100), *range(103, 190)])
    ]


def test_a_file_that_vanishes_before_it_is_read_is_named(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    path = tmp_path / "changes" / "1.json"
    path.write_text(event("c", None, {"id": 1, "v": "a"}))
    frame = changes_of(upstream, spark)
    path.unlink()
    with pytest.raises(FAILURES) as caught:
        frame.collect()
    error = from_spark(caught.value)
    assert isinstance(error, Fatal)
    assert "1.json" in error.message


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_unknown_op_of_dms_is_named(tmp_path: Path, spark: "SparkSession", kind: str) -> None:
    upstream = opened(tmp_path, ONE, {"format": "dms"})
    rows = pa.table({"Op": ["I", "Q", "U"], "id": [1, 2, 3], "v": ["a", "b", "c"]})
    if kind == "csv":
        (tmp_path / "changes" / "1.csv").write_text("I,1,a\nQ,2,b\nU,3,c\n")
    else:
        pq.write_table(rows, tmp_path / "changes" / "1.parquet")
    error = failure(upstream, spark)
    assert f"1.{kind}: unknown Op: Q" in error.message


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_time_column_that_the_load_has_too_stays_a_column(
    tmp_path: Path, spark: "SparkSession", kind: str
) -> None:
    columns = {"ts": pa.timestamp("us"), "id": pa.int64()}
    upstream = opened(tmp_path, columns, {"format": "dms", "time_column": "ts"})
    at = dt.datetime(2026, 1, 1, 0, 0, 0, 7000)
    if kind == "csv":
        (tmp_path / "changes" / "1.csv").write_text("I,2026-01-01 00:00:00.007000,1\n")
    else:
        table = pa.table({"Op": ["I"], "ts": pa.array([at], pa.timestamp("us")), "id": [1]})
        pq.write_table(table, tmp_path / "changes" / "1.parquet")
    pin = upstream.pin()
    assert [epoch.schema for epoch in upstream.observe(pin.position, False).pending] == [()]
    assert read(upstream, spark, "_op", "_ms", "ts", "id") == [
        {"_op": "U", "_ms": 1_767_225_600_007, "ts": at, "id": 1}
    ]


def test_a_change_feed_of_several_versions_keeps_the_newest_row_of_each(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, ONE, {"format": "change-feed"})
    rows = [
        ("insert", 2, 1, "v2"),
        ("update_postimage", 3, 1, "v3"),
        ("update_preimage", 3, 1, "v2"),
        ("delete", 4, 2, "x"),
        ("insert", 4, 2, "y"),
        ("update_preimage", 5, 3, "old key"),
        ("update_postimage", 5, 4, "new key"),
    ]
    names = ["_change_type", "_commit_version", "id", "v"]
    pq.write_table(
        pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), tmp_path / "changes" / "1.parquet"
    )
    table: dict[int, str] = {3: "old key"}
    for change in read(upstream, spark, "_op", "id", "v"):
        table.pop(change["id"], None)
        if change["_op"] == "U":
            table[change["id"]] = change["v"]
    assert table == {1: "v3", 2: "y", 4: "new key"}
