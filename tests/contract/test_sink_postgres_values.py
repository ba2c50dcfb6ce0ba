"""Every type into PostgreSQL and back: as the database prints it as text, and as verify reads it."""

import json
import math
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_database import Database
from postgres_sink import begun, sink_of, staging
from postgres_values import FIRST_US, JOBS, LAST_US, db, table_of

from backfill_cli.contracts import SinkTable
from backfill_cli.model.schema import field
from backfill_cli.sinks.postgres.dialect import sink_columns
from backfill_cli.sinks.postgres.staged import received, selected

__all__ = ["db"]

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    return st.integers(-top, top).map(lambda n: Decimal(f"{n}E-{scale}"))


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def moments(zone: bool) -> st.SearchStrategy[datetime]:
    made = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
    return made.map(lambda at: at.replace(tzinfo=UTC)) if zone else made


SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), whole(8)),
    "short": (pa.int16(), whole(16)),
    "integer": (pa.int32(), whole(32)),
    "long": (pa.int64(), whole(64)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "string": (pa.string(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=12)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), moments(True)),
    "timestamp_ntz": (pa.timestamp("us"), moments(False)),
    "decimal(9,2)": (pa.decimal128(9, 2), decimals(9, 2)),
    "decimal(18,0)": (pa.decimal128(18, 0), decimals(18, 0)),
    "decimal(38,10)": (pa.decimal128(38, 10), decimals(38, 10)),
    "decimal(38,38)": (pa.decimal128(38, 38), decimals(38, 38)),
}


def said(kind: str, value: Any) -> str | None:
    """A value as PostgreSQL's output function writes it, computed here."""
    if value is None:
        return None
    match kind:
        case "boolean":
            return "true" if value else "false"
        case "float" | "double":
            return None  # compared as numbers, as one number can have several shortest texts
        case "binary":
            return "\\x" + value.hex()
        case "date":
            return str(value)
        case "timestamp" | "timestamp_ntz":
            text = value.replace(tzinfo=None).isoformat(" ")
            text = text.rstrip("0") if "." in text else text
            return text + ("+00" if kind == "timestamp" else "")
        case "string":
            return str(value)
        case _ if kind.startswith("decimal("):
            return f"{value:f}"
        case _:
            return str(value)


def put(
    db: Database, folder: Path, table: SinkTable, values: list[Any], arrow: pa.DataType
) -> list[tuple[Any, Any]]:
    """Writes the values, half as snapshot rows, half as changes. Returns (PostgreSQL's text, verify's value)."""
    sink = sink_of(db.dsn)
    if table not in JOBS:
        db("DROP TABLE IF EXISTS orders")
        sink.forget("orders")
        JOBS.clear()
        JOBS[table] = begun(sink, folder, table)
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, arrow)})
    half = len(values) // 2
    changed = rows.slice(half)
    changes = changed.add_column(0, "_backfill_op", pa.array(["U"] * changed.num_rows, pa.string()))
    made = staging(JOBS[table], inserts=rows.slice(0, half), changes=changes)
    emptied = {table.name: replace(made.staged.tables[table.name], truncated=True)}
    sink.commit(replace(made, staged=replace(made.staged, tables=emptied)))
    texts = [text for (text,) in db("SELECT v::text FROM orders ORDER BY id")]
    return list(zip(texts, read_back(db, table), strict=True))


def read_back(db: Database, table: SinkTable) -> list[Any]:
    import adbc_driver_postgresql.dbapi as adbc

    column = sink_columns(table.name, table.schema)[1]
    with adbc.connect(db.dsn) as con, con.cursor() as cursor:
        cursor.execute(f"SELECT {selected(column, 't.v')} AS v FROM orders t ORDER BY id")
        return [
            value
            for batch in cursor.fetch_record_batch()
            for value in received(column, batch.column(0)).to_pylist()
        ]


@pytest.mark.parametrize("kind", SCALARS)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_value_is_what_the_database_says_it_is(
    db: Database, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    arrow, made = SCALARS[kind]
    values = data.draw(st.lists(st.none() | made, min_size=15, max_size=50))
    found = put(db, tmp_path_factory.mktemp("v"), table_of(kind), values, arrow)
    exact = pa.array(values, arrow).to_pylist()
    assert [read for _, read in found] == exact
    for (text, _), value in zip(found, exact, strict=True):
        if kind in ("float", "double") and value is not None:
            assert pa.scalar(float(text), arrow).as_py() == value
        else:
            assert text == said(kind, value)


@pytest.mark.parametrize("kind", SCALARS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_case_49_an_array_is_what_was_staged(
    db: Database, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    arrow, made = SCALARS[kind]
    lists = st.lists(st.none() | made, max_size=4)
    values = data.draw(st.lists(st.none() | lists, min_size=6, max_size=16))
    array = {"type": "array", "elementType": kind, "containsNull": True}
    found = put(db, tmp_path_factory.mktemp("a"), table_of(array), values, pa.list_(arrow))
    assert [read for _, read in found] == pa.array(values, pa.list_(arrow)).to_pylist()
    # The database counts the elements and the NULLs among them itself.
    counted = db("SELECT cardinality(v), cardinality(array_remove(v, NULL)) FROM orders ORDER BY id")
    known = [None if one is None else (len(one), sum(item is not None for item in one)) for one in values]
    assert [None if n is None else (n, m) for n, m in counted] == known


def test_case_49_a_numeric_of_every_magnitude_and_lists_of_a_slice_arrive(db: Database, tmp_path: Path) -> None:
    """Drivers before 1.12 store 10000.5 as 15000, before 1.13 a NULL in a list as 0."""
    powers = [10**digits for digits in range(36)]
    numbers = [Decimal(f"{sign}{n}.{cents}") for n in powers for sign in ("", "-") for cents in ("50", "01", "00")]
    found = put(db, tmp_path / "n", table_of("decimal(38,2)"), numbers, pa.decimal128(38, 2))
    assert found == [(f"{number:f}", number) for number in numbers]
    array = {"type": "array", "elementType": "long", "containsNull": True}
    lists = [[n, None, -n] if n % 3 else [None] * (n % 7) for n in range(5000)]
    column = pa.array([[9], None, *lists, [8]], pa.list_(pa.int64())).slice(2, len(lists))
    assert put_array(db, tmp_path / "l", table_of(array), column) == [
        "{" + ",".join("NULL" if item is None else str(item) for item in one) + "}" for one in lists
    ]


def test_case_57_times_before_1970_and_the_ends_of_each_type_arrive(db: Database, tmp_path: Path) -> None:
    micros = pa.timestamp("us")
    ends = {
        "timestamp_ntz": ([2**63 - 1, -(2**63) + 1, FIRST_US, LAST_US, 0, None], micros),
        "timestamp": ([2**63 - 1, -(2**63) + 1, FIRST_US, LAST_US, -1, None], pa.timestamp("us", "UTC")),
        "date": ([2**31 - 1, -(2**31) + 1, -2_440_588, 2_145_042_905, 0, None], pa.date32()),
    }
    texts = {
        "timestamp_ntz": [
            "infinity",
            "-infinity",
            "4714-11-24 00:00:00 BC",
            "294247-01-10 04:00:54.775806",
            "1970-01-01 00:00:00",
            None,
        ],
        "timestamp": [
            "infinity",
            "-infinity",
            "4714-11-24 00:00:00+00 BC",
            "294247-01-10 04:00:54.775806+00",
            "1969-12-31 23:59:59.999999+00",
            None,
        ],
        "date": ["infinity", "-infinity", "4714-11-24 BC", "5874897-12-31", "1970-01-01", None],
    }
    for kind, (numbers, arrow) in ends.items():
        raw = pa.int32() if kind == "date" else pa.int64()
        values = pa.array(numbers, raw).cast(arrow)
        found = put_array(db, tmp_path / kind, table_of(kind), values)
        assert found == texts[kind]
        assert read_numbers(db, table_of(kind), raw) == numbers


def put_array(db: Database, folder: Path, table: SinkTable, values: pa.Array) -> list[Any]:
    sink = sink_of(db.dsn)
    db("DROP TABLE IF EXISTS orders")
    sink.forget("orders")
    JOBS.clear()
    epochs = begun(sink, folder, table)
    sink.commit(staging(epochs, inserts=pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": values})))
    return [text for (text,) in db("SELECT v::text FROM orders ORDER BY id")]


def read_numbers(db: Database, table: SinkTable, raw: pa.DataType) -> list[Any]:
    import adbc_driver_postgresql.dbapi as adbc

    column = sink_columns(table.name, table.schema)[1]
    with adbc.connect(db.dsn) as con, con.cursor() as cursor:
        cursor.execute(f"SELECT {selected(column, 't.v')} AS v FROM orders t ORDER BY id")
        batches = list(cursor.fetch_record_batch())
    return [value for batch in batches for value in received(column, batch.column(0)).cast(raw).to_pylist()]


def test_floats_keep_zeros_sign_infinities_and_nan(db: Database, tmp_path: Path) -> None:
    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324]
    assert put_array(db, tmp_path, table_of("double"), pa.array(values)) == [
        "0",
        "-0",
        "Infinity",
        "-Infinity",
        "NaN",
        "5e-324",
    ]


@pytest.mark.parametrize("more", ["", ", extra int DEFAULT 7"])
def test_zero_and_minus_zero_are_one_key_and_the_row_has_the_sign_of_its_last_change(
    db: Database, tmp_path: Path, more: str
) -> None:
    """With a column that the job does not write, rows are updated in place."""
    fields = [field("k", "double"), field("v", "string")]
    table = SinkTable("zeros", "zeros", ("k",), json.dumps({"type": "struct", "fields": fields}))
    sink = sink_of(db.dsn)
    sink.forget("orders")
    db("DROP TABLE IF EXISTS zeros", f"CREATE TABLE zeros (k double precision PRIMARY KEY, v text{more})")
    epochs = begun(sink, tmp_path, table)
    sink.commit(staging(epochs, inserts=pa.table({"k": [0.0, math.nan, 1.0], "v": ["a", "b", "c"]})))
    told = pa.table({"_backfill_op": ["U", "D", "U"], "k": [-0.0, math.nan, 1.0], "v": ["d", None, "e"]})
    sink.commit(staging(epochs, changes=told))
    assert db("SELECT k::text, v FROM zeros ORDER BY k") == [("-0", "d"), ("1", "e")]


def test_uuid_and_json_have_the_databases_types_and_json_keeps_its_text(db: Database, tmp_path: Path) -> None:
    one = uuid.uuid4()
    told = pa.array([str(one), str(one).upper(), None])
    assert put_array(db, tmp_path / "u", table_of("string", logical="uuid"), told) == [str(one), str(one), None]
    texts = ['{"b": 1.10, "a":  1e400, "a": 2}', "null", None]
    assert put_array(db, tmp_path / "j", table_of("string", logical="json"), pa.array(texts)) == texts
    kinds = db("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'orders'::regclass "
               "AND attname = 'v'")  # fmt: skip
    assert kinds == [("json",)]
