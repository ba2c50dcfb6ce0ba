"""Every type into PostgreSQL and back: as the database prints it as text, and as verify reads it."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres import Server
from postgres_database import Database, database
from postgres_sink import begun, sink_of, staging
from sink_contract import Epochs

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BadData
from backfill_cli.sinks.postgres.types import sink_columns
from backfill_cli.sinks.postgres.values import received, selected

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
JOBS: dict[SinkTable, Epochs] = {}
"""The job whose table is in the database now; a test's examples use it one after the other."""
FIRST_US, LAST_US = -210_866_803_200_000_000, 2**63 - 2


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


@pytest.fixture(scope="module")
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(f"ALTER DATABASE {made.name} SET timezone TO 'UTC'")
        yield made


def table_of(kind: Any, name: str = "orders", **metadata: str) -> SinkTable:
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "v", "type": kind, "nullable": True, "metadata": metadata},
    ]
    return SinkTable(name, name, ("id",), json.dumps({"type": "struct", "fields": fields}))


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
    changes = changed.add_column(0, "_op", pa.array(["U"] * changed.num_rows, pa.string()))
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
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_value_is_what_the_database_says_it_is(
    db: Database, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    arrow, made = SCALARS[kind]
    values = data.draw(st.lists(st.none() | made, min_size=1, max_size=20))
    found = put(db, tmp_path_factory.mktemp("v"), table_of(kind), values, arrow)
    exact = pa.array(values, arrow).to_pylist()
    assert [read for _, read in found] == exact
    for (text, _), value in zip(found, exact, strict=True):
        if kind in ("float", "double") and value is not None:
            assert pa.scalar(float(text), arrow).as_py() == value
        else:
            assert text == said(kind, value)


@pytest.mark.parametrize("kind", SCALARS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_array_is_what_was_staged(
    db: Database, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    arrow, made = SCALARS[kind]
    lists = st.lists(st.none() | made, max_size=4)
    values = data.draw(st.lists(st.none() | lists, min_size=1, max_size=8))
    array = {"type": "array", "elementType": kind, "containsNull": True}
    found = put(db, tmp_path_factory.mktemp("a"), table_of(array), values, pa.list_(arrow))
    assert [read for _, read in found] == pa.array(values, pa.list_(arrow)).to_pylist()
    # The database counts the elements and the NULLs among them itself.
    counted = db("SELECT cardinality(v), cardinality(array_remove(v, NULL)) FROM orders ORDER BY id")
    known = [None if one is None else (len(one), sum(item is not None for item in one)) for one in values]
    assert [None if n is None else (n, m) for n, m in counted] == known


def test_the_ends_of_each_type_arrive(db: Database, tmp_path: Path) -> None:
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


def test_uuid_and_json_have_the_databases_types_and_json_keeps_its_text(db: Database, tmp_path: Path) -> None:
    one = uuid.uuid4()
    told = pa.array([str(one), str(one).upper(), None])
    assert put_array(db, tmp_path / "u", table_of("string", logical="uuid"), told) == [str(one), str(one), None]
    texts = ['{"b": 1.10, "a":  1e400, "a": 2}', "null", None]
    assert put_array(db, tmp_path / "j", table_of("string", logical="json"), pa.array(texts)) == texts
    kinds = db("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'orders'::regclass "
               "AND attname = 'v'")  # fmt: skip
    assert kinds == [("json",)]


BAD: dict[str, tuple[SinkTable, pa.Array, str]] = {
    "NUL": (table_of("string"), pa.array(["a", "b\0c"]), "0x00"),
    "NUL in an array": (
        table_of({"type": "array", "elementType": "string", "containsNull": True}),
        pa.array([["a"], ["\0"]]),
        "0x00",
    ),
    "no UUID": (table_of("string", logical="uuid"), pa.array([str(uuid.uuid4()), "nonsense"]), "is not a UUID"),
    "no JSON": (table_of("string", logical="json"), pa.array(["1", "{"]), "json"),
    "too early a time": (
        table_of("timestamp_ntz"),
        pa.array([0, FIRST_US - 1], pa.int64()).cast(pa.timestamp("us")),
        "out of range",
    ),
    "a time that no subtraction reaches": (
        table_of("timestamp"),
        pa.array([0, -(2**63) + 2], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "before PostgreSQL's first",
    ),
    "too late a date": (
        table_of("date"),
        pa.array([0, 2_145_042_906], pa.int32()).cast(pa.date32()),
        "out of range",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("staged", ["inserts", "changes"])
def test_a_value_that_postgresql_cannot_hold_is_named_with_its_column_and_key(
    db: Database, tmp_path: Path, case: str, staged: str
) -> None:
    table, values, why = BAD[case]
    sink = sink_of(db.dsn)
    db("DROP TABLE IF EXISTS orders")
    sink.forget("orders")
    JOBS.clear()
    epochs = begun(sink, tmp_path, table)
    rows = pa.table({"id": pa.array([70, 71], pa.int64()), "v": values})
    if staged == "changes":
        rows = rows.add_column(0, "_op", pa.array(["U", "U"]))
    with pytest.raises(BadData, match=rf"'orders', column 'v': .*\(id\) = \(71\).*{why}"):
        sink.commit(staging(epochs, **{staged: rows}))
    assert db("SELECT * FROM orders") == []


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("bad", ["inserts", "changes"])
def test_of_an_insert_and_a_change_with_the_same_number_the_one_with_the_value_is_named(
    db: Database, tmp_path: Path, case: str, bad: str
) -> None:
    table, values, why = BAD[case]
    sink = sink_of(db.dsn)
    db("DROP TABLE IF EXISTS orders")
    sink.forget("orders")
    JOBS.clear()
    epochs = begun(sink, tmp_path, table)
    good = values.take(pa.array([0, 0]))
    inserts = pa.table({"id": pa.array([60, 61], pa.int64()), "v": values if bad == "inserts" else good})
    changes = pa.table({"_op": ["U", "U"], "id": [70, 71], "v": values if bad == "changes" else good})
    key = 61 if bad == "inserts" else 71
    with pytest.raises(BadData, match=rf"'orders', column 'v': .*\(id\) = \({key}\).*{why}"):
        sink.commit(staging(epochs, inserts=inserts, changes=changes))


NESTED = {
    "struct": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]},
    "map": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    "array of arrays": {
        "type": "array",
        "elementType": {"type": "array", "elementType": "long", "containsNull": True},
        "containsNull": True,
    },
}


@pytest.mark.parametrize("kind", [*NESTED, "variant", "interval"])
def test_a_type_without_an_exact_counterpart_is_refused_before_anything_is_made(db: Database, kind: str) -> None:
    with pytest.raises(BadData, match=r"'odd', column 'v'.*no exact counterpart") as told:
        sink_of(db.dsn).check("other", (table_of(NESTED.get(kind, kind), "odd"),), into_existing=False)
    assert ("to_json(v)" in told.value.hint) == (kind in NESTED)


@pytest.mark.parametrize("name", ["_op", "_unsent", "ctid", "x" * 64, "", "ID"])
def test_a_name_that_the_table_cannot_have_is_refused(db: Database, name: str) -> None:
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("id", name)]
    table = SinkTable("odd", "odd", ("id",), json.dumps({"type": "struct", "fields": fields}))
    with pytest.raises(BadData, match="'odd'"):
        sink_of(db.dsn).check("other", (table,), into_existing=False)


def test_names_with_quotes_dots_and_blanks_are_kept(db: Database, tmp_path: Path) -> None:
    names = ['a "b"', "c.d", "E f", "é", "select", "x" * 63]
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("id", *names)]
    table = SinkTable("odd", 'Odd "t"', ("id", 'a "b"'), json.dumps({"type": "struct", "fields": fields}))
    epochs = begun(sink_of(db.dsn), tmp_path, table)
    rows = {name: pa.array([1, 2], pa.int64()) for name in ("id", *names)}
    sink_of(db.dsn).commit(staging(epochs, inserts=pa.table(rows)))
    changed = {"_op": pa.array(["U", "D"]), **rows, "c.d": pa.array([7, None], pa.int64())}
    sink_of(db.dsn).commit(staging(epochs, changes=pa.table(changed)))
    assert db('SELECT * FROM "Odd ""t"""') == [(1, 1, 7, 1, 1, 1, 1)]
