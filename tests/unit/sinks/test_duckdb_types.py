"""Every type that the sink accepts comes back exactly as it was staged; every other is refused by name."""

import datetime as dt
import json
import math
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import START
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb.dialect import sink_columns
from backfill_cli.sinks.duckdb.sink import DuckDBSink

UTC = dt.timezone.utc  # noqa: UP017 (hypothesis and pyarrow compare it with their own)
SpecialText = st.sampled_from(["", "null", "NULL", "\\N", "a[/b]", "'; --", "\x1b[0m", " "])


@dataclass(frozen=True)
class Kind:
    """One type in Spark's JSON and in Arrow, with the values it can hold."""

    spark: Any
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    metadata: Mapping[str, str] | None = None


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale, PRECISE))


PRECISE = Context(prec=60)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | SpecialText
DATES = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))

KINDS = {
    "boolean": Kind("boolean", pa.bool_(), st.booleans()),
    "byte": Kind("byte", pa.int8(), integers(8)),
    "short": Kind("short", pa.int16(), integers(16)),
    "integer": Kind("integer", pa.int32(), integers(32)),
    "long": Kind("long", pa.int64(), integers(64)),
    "float": Kind("float", pa.float32(), st.floats(width=32)),
    "double": Kind("double", pa.float64(), st.floats()),
    "decimal_5_2": Kind("decimal(5,2)", pa.decimal128(5, 2), decimals(5, 2)),
    "decimal_18_0": Kind("decimal(18,0)", pa.decimal128(18, 0), decimals(18, 0)),
    "decimal_38_10": Kind("decimal(38,10)", pa.decimal128(38, 10), decimals(38, 10)),
    "decimal_38_38": Kind("decimal(38,38)", pa.decimal128(38, 38), decimals(38, 38)),
    "string": Kind("string", pa.string(), TEXT),
    "varchar": Kind("varchar(9)", pa.string(), TEXT),
    "binary": Kind("binary", pa.binary(), st.binary()),
    "date": Kind("date", pa.date32(), DATES),
    "timestamp": Kind("timestamp", pa.timestamp("us", "UTC"), TIMES.map(lambda t: t.replace(tzinfo=UTC))),
    "timestamp_ntz": Kind("timestamp_ntz", pa.timestamp("us"), TIMES),
    "array": Kind(
        {"type": "array", "elementType": "integer", "containsNull": True},
        pa.list_(pa.int32()),
        st.lists(st.none() | integers(32), max_size=4),
    ),
    "map": Kind(
        {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
        pa.map_(pa.string(), pa.float64()),
        st.dictionaries(TEXT, st.none() | st.floats(), max_size=3).map(lambda d: list(d.items())),
    ),
    "struct": Kind(
        {
            "type": "struct",
            "fields": [
                {"name": 'a "b"', "type": "long", "nullable": True, "metadata": {}},
                {
                    "name": "c",
                    "type": {"type": "array", "elementType": "string", "containsNull": True},
                    "nullable": True,
                    "metadata": {},
                },
            ],
        },
        pa.struct([('a "b"', pa.int64()), ("c", pa.list_(pa.string()))]),
        st.fixed_dictionaries({'a "b"': st.none() | integers(64), "c": st.none() | st.lists(TEXT, max_size=3)}),
    ),
    "uuid": Kind("string", pa.string(), st.uuids().map(str), {"logical": "uuid"}),
    "json": Kind(
        "string",
        pa.string(),
        st.recursive(st.none() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3)).map(json.dumps),
        {"logical": "json"},
    ),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | kind.values for name, kind in KINDS.items()}), max_size=6)
AWKWARD: dict[str, Any] = {
    **dict.fromkeys(KINDS),
    "double": -0.0,
    "float": math.nan,
    "string": "",
    "binary": b"",
    "date": dt.date(1582, 10, 9),
    "timestamp": dt.datetime(1, 1, 1, 0, 0, 0, 1, UTC),
    "timestamp_ntz": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "decimal_38_10": Decimal("-9999999999999999999999999999.9999999999"),
    "array": [],
    "map": [],
    "json": '{"b": 1,  "a": [1.0, 1e2]}',
    "uuid": str(uuid.UUID(int=0)),
}


@pytest.mark.seconds
@settings(max_examples=25, deadline=None)
@given(ROWS)
@example([AWKWARD, {**AWKWARD, "double": math.inf, "float": -math.inf, "string": None}])
def test_case_25_every_value_comes_back_exactly(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert exact(through_the_sink(Path(folder), rows)) == exact(rows)


def through_the_sink(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        *(
            {"name": name, "type": kind.spark, "nullable": True, "metadata": kind.metadata or {}}
            for name, kind in KINDS.items()
        ),
    ]
    table = SinkTable("t", "t", ("id",), json.dumps({"type": "struct", "fields": fields}))
    staged = pa.schema([("id", pa.int64()), *((name, kind.arrow) for name, kind in KINDS.items())])
    data = [{"id": i, **row} for i, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(data, staged), folder / "0.parquet")
    sink = DuckDBSink(DuckDBOptions(path=str(folder / "w.duckdb")))
    sink.prepare("j", [table], into_existing=False)
    sink.commit(one_epoch(table, folder, len(rows)))
    with duckdb.connect(str(folder / "w.duckdb"), config={"threads": "1"}) as con:
        con.execute("SET TimeZone = 'UTC'")
        names = ", ".join(
            f'"{name}"::VARCHAR AS "{name}"' if kind.metadata else f'"{name}"' for name, kind in KINDS.items()
        )
        return con.sql(f"SELECT {names} FROM t ORDER BY id").to_arrow_table().to_pylist()


def one_epoch(table: SinkTable, folder: Path, rows: int) -> EpochCommit:
    staged = Staged("a", {table.name: StagedTable(inserts=(StagedFile("0.parquet", 1),), rows=rows)})
    checkpoint = Checkpoint(1, 0, 0, "a", "{}", Phase.SNAPSHOT, START)
    return EpochCommit("j", 1, 0, 0, "a", (table,), str(folder), staged, (), SavedJob("{}", checkpoint))


def exact(value: Any) -> Any:
    """A form that `==` compares exactly: floats by their bits (one NaN), everything else with its type."""
    match value:
        case float():
            return ("float", "nan" if math.isnan(value) else value.hex())
        case dict():
            return {key: exact(item) for key, item in value.items()}
        case list() | tuple():
            return [exact(item) for item in value]
        case dt.datetime():
            return ("time", value.replace(tzinfo=None), value.tzinfo is not None)
        case _:
            return (type(value).__name__, value)


def field(spark: Any, name: str = "v", **metadata: str) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": name, "type": spark, "metadata": metadata}]})


@pytest.mark.parametrize(
    "spark",
    [
        "variant",
        "void",
        "interval year to month",
        "interval day to second",
        "interval",
        "time(6)",
        {"type": "array", "elementType": "variant"},
        {"type": "map", "keyType": "string", "valueType": "interval"},
        {"type": "struct", "fields": []},
        {"type": "struct", "fields": [{"name": "deep", "type": "void"}]},
        {"type": "udt", "class": "x"},
    ],
)
def test_a_type_without_an_exact_counterpart_is_refused_naming_table_and_column(spark: Any) -> None:
    with pytest.raises(BadData, match=r"'t', column 'v.*'.*no exact counterpart"):
        sink_columns("t", field(spark))


def test_an_unknown_logical_type_is_refused() -> None:
    with pytest.raises(BadData, match="'wkt'"):
        sink_columns("t", field("string", logical="wkt"))
    with pytest.raises(BadData, match="'uuid'"):
        sink_columns("t", field("long", logical="uuid"))


@pytest.mark.parametrize("names", [("a", "A"), ("a", "a")])
def test_names_that_differ_by_case_alone_are_refused(names: tuple[str, str]) -> None:
    fields = [{"name": name, "type": "long"} for name in names]
    with pytest.raises(UsageError, match=r"two columns|in case only"):
        sink_columns("t", json.dumps({"fields": fields}))
    with pytest.raises(UsageError, match=r"column 'v': (two columns|.* in case only)"):
        sink_columns("t", field({"type": "struct", "fields": fields}))


def test_the_name_of_the_staged_op_is_refused() -> None:
    with pytest.raises(UsageError, match="'_BACKFILL_OP'"):
        sink_columns("t", field("long", name="_BACKFILL_OP"))
