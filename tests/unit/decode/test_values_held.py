"""Values that a sink's types do not hold are refused where they are read, and no others are.

What DuckDB holds, DuckDB itself says here: each value goes into a column of the sink's type.
"""

import datetime as dt
import json
import uuid
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_cli.contracts.decoder import Decoded
from backfill_cli.contracts.domain import Domain
from backfill_cli.decode.held import held, refused
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import Columns, field
from backfill_cli.sinks import duckdb as in_duckdb
from backfill_cli.sinks import kafka as in_kafka
from backfill_cli.sinks import postgres as in_postgres
from backfill_cli.sinks.duckdb.dialect import DUCKDB, sink_columns
from backfill_cli.sinks.postgres.dialect import POSTGRES

UUID: Columns = {"u": field("u", "string", {"logical": "uuid"})}
JSON: Columns = {"j": field("j", "string", {"logical": "json"})}
DUCK, PG = in_duckdb.connector.domain(None), in_postgres.connector.domain(None)


def of_rows(columns: Columns, values: list[Any], domain: Domain = DUCK) -> dict[int, str]:
    ((name, _),) = columns.items()
    return refused(columns, {name: pa.array(values, pa.string())}, domain)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with duckdb.connect() as con:
        yield con, tmp_path_factory.mktemp("values") / "a.parquet"


def into_duckdb(database: Any, columns: Columns, text: str) -> str | None:
    """What the sink's column holds of a staged text, as text; None if it refuses it."""
    con, path = database
    schema = json.dumps({"type": "struct", "fields": list(columns.values())})
    (column,) = sink_columns("t", schema)
    pq.write_table(pa.table({column.name: pa.array([text], pa.string())}), path)
    con.execute(f"CREATE OR REPLACE TABLE t ({column.name} {column.type})")
    try:
        con.execute(f"INSERT INTO t SELECT * FROM read_parquet('{path}')")
    except duckdb.Error:
        return None
    ((found,),) = con.execute(f"SELECT {column.name}::VARCHAR FROM t").fetchall()
    return str(found)


near_uuids = st.one_of(
    st.uuids().map(str),
    st.uuids().map(lambda one: str(one).upper()),
    st.uuids().map(lambda one: one.hex),
    st.uuids().map(lambda one: f"{{{one}}}"),
    st.uuids().map(lambda one: f"{{{one.hex}"),
    st.builds(
        lambda u, at, c: str(u)[:at] + c + str(u)[at + 1 :], st.uuids(), st.integers(0, 36), st.text(max_size=2)
    ),
    st.text(max_size=40),
)


@given(near_uuids)
@example("not a uuid")
@example("")
@example("01234567-89ab-cdef-0123-456789abcdef\n")
@example("0123456789abcdef0123456789abcdef")
@example("{01234567-89ab-cdef-0123-456789abcdef}")
@example("٠1234567-89ab-cdef-0123-456789abcdef")
def test_every_uuid_that_is_let_through_is_one_in_duckdb(database: Any, text: str) -> None:
    if not of_rows(UUID, [text]):
        assert into_duckdb(database, UUID, text) == str(uuid.UUID(text))
        assert kept_as(UUID, [text]) == [str(uuid.UUID(text))]


def kept_as(columns: Columns, texts: list[str | None], domain: Domain = DUCK) -> list[str | None]:
    """What becomes of texts that are let through."""
    found = held(columns, Decoded({"u": pa.array(texts, pa.string())}), domain)
    assert found.error is None
    return found.columns["u"].to_pylist()


def test_a_uuid_is_let_through_in_each_form_and_has_one_text() -> None:
    one = uuid.uuid4()
    forms = [str(one), str(one).upper(), one.hex, f"{{{one}}}", f"{{{one.hex}}}"]
    for domain in (DUCK, PG):
        assert of_rows(UUID, [*forms, None], domain) == {}
        assert kept_as(UUID, [*forms, None], domain) == [str(one)] * len(forms) + [None]
    assert kept_as(UUID, list(forms), Domain("a lake")) == forms, "text stays text"


def test_what_is_no_uuid_is_named_beside_those_that_are() -> None:
    one = uuid.uuid4()
    found = held(UUID, Decoded({"u": pa.array([one.hex, f"{{{one}", None, "x"])}), DUCK)
    assert found.error is not None
    assert [text is None for text in found.error.to_pylist()] == [True, False, True, False]
    assert found.columns["u"][0].as_py() == str(one)


documents = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)
near_json = st.one_of(
    st.builds(lambda one, plain: json.dumps(one, ensure_ascii=plain), documents, st.booleans()),
    st.builds(
        lambda one, at, c: json.dumps(one)[: at % 40] + c + json.dumps(one)[at % 40 + 1 :],
        documents,
        st.integers(0, 39),
        st.text(alphabet='{}[]",:\\u0dD8eE+-.N ', max_size=3),
    ),
)


@given(near_json)
@example('{"a":"\\ud800"}')
@example('"\\uDE00\\uD83D"')
@example('"\\\\ud800"')
@example("NaN")
@example("[1,]")
@example("1E400")
@example("1" * 5000)
@example("[" * 5000 + "]" * 5000)
@example('"\\u0000"')
@example("")
def test_all_json_that_is_let_through_is_json_in_duckdb(database: Any, text: str) -> None:
    if not of_rows(JSON, [text]):
        assert into_duckdb(database, JSON, text) == text


@given(st.builds(lambda one, plain: json.dumps(one, ensure_ascii=plain), documents, st.booleans()))
def test_json_as_it_is_written_is_let_through(text: str) -> None:
    assert of_rows(JSON, [text, None]) == {}


def test_postgresql_holds_half_a_surrogate_in_json_and_duckdb_does_not() -> None:
    assert of_rows(JSON, ['"\\ud800"'], PG) == {}
    assert of_rows(JSON, ['"\\ud800"'], DUCK) == {0: 'column \'j\': no JSON: "\\"\\\\ud800\\""'}


@pytest.mark.parametrize("columns", [UUID, JSON])
def test_where_the_sink_keeps_text_any_text_is_let_through(columns: Columns) -> None:
    assert of_rows(columns, ["not a uuid"], Domain("a lake")) == {}


def test_the_domains_name_the_types_that_the_sinks_have() -> None:
    assert set(DUCKDB.logical) == DUCK.logical
    assert set(POSTGRES.logical) == PG.logical


@given(st.lists(st.one_of(st.none(), st.text(alphabet="a\0b")), max_size=5))
def test_postgresql_gets_no_text_with_the_character_nul(texts: list[str | None]) -> None:
    columns: Columns = {"t": field("t", "string")}
    expected = {i for i, text in enumerate(texts) if text is not None and "\0" in text}
    assert set(of_rows(columns, texts, PG)) == expected
    assert of_rows(columns, texts, DUCK) == {}


def test_text_inside_arrays_is_looked_at() -> None:
    kind = {"type": "array", "elementType": "string", "containsNull": True}
    values = pa.array([["a"], None, [], [None, "b", "\0"]], pa.list_(pa.string()))
    told = refused({"t": field("t", kind)}, {"t": values.slice(1)}, PG)
    assert told == {2: "column 't': text with the character NUL, which PostgreSQL does not hold"}


@pytest.mark.parametrize(
    ("spark", "arrow", "plain", "first", "endless"),
    [
        ("date", pa.date32(), pa.int32(), -2_440_588, 2**31 - 1),
        ("timestamp", pa.timestamp("us", "UTC"), pa.int64(), -210_866_803_200_000_000, 2**63 - 1),
        ("timestamp_ntz", pa.timestamp("us"), pa.int64(), -210_866_803_200_000_000, 2**63 - 1),
    ],
)
def test_what_is_before_the_first_day_of_postgresql_is_refused(
    spark: str, arrow: pa.DataType, plain: pa.DataType, first: int, endless: int
) -> None:
    values = pa.array([first, first - 1, None, endless, -endless, -endless + 1], plain).cast(arrow)
    told = refused({"d": field("d", spark)}, {"d": values}, PG)
    assert set(told) == {1, 5}
    assert refused({"d": field("d", spark)}, {"d": values}, DUCK) == {}


@pytest.mark.parametrize("encoding", ["avro", "protobuf", "json", "json-schema"])
@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_a_record_of_avro_or_protobuf_has_the_years_1_to_9999_at_any_depth(encoding: str, kind: str) -> None:
    told = {"bootstrap_servers": "h:1", "encoding": encoding, "registry": {"url": "http://h"}}
    domain = in_kafka.connector.domain(in_kafka.KafkaSinkOptions.model_validate(told))
    size, plain = (1, pa.int32()) if kind == "date" else (86_400 * 10**6, pa.int64())
    first = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days * size
    last = ((dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days + 1) * size - 1
    endless = 2 ** (31 if kind == "date" else 63) - 1
    numbers = [first, first - 1, None, last, last + 1, endless, -endless]
    far = {1, 4, 5, 6} if encoding in ("avro", "protobuf") else set()
    values = pa.array([None, *numbers], plain).cast(arrow_type(kind)).slice(1)
    assert set(refused({"d": field("d", kind)}, {"d": values}, domain)) == far
    array = {"type": "array", "elementType": kind, "containsNull": True}
    by_name = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    deep: Any = {"type": "struct", "fields": [field("x", "long"), field("m", by_name)]}
    ends = pa.array(range(len(numbers) + 1), pa.int32())
    maps = pa.MapArray.from_arrays(ends, pa.array(["k"] * len(numbers)), pa.ListArray.from_arrays(ends, values))
    structs = pa.StructArray.from_arrays([pa.array(range(len(numbers))), maps], ["x", "m"])
    for at in range(len(numbers)):
        told = refused({"d": field("d", deep)}, {"d": structs.slice(at)}, domain)
        assert set(told) == {one - at for one in far if one >= at}


def test_a_record_of_two_rows_is_refused_as_a_whole() -> None:
    """A change of a key deletes one row and writes another."""
    columns = {"id": field("id", "long"), **UUID}
    found = Decoded(
        {"id": pa.array([1, 1, 2, 3]), "u": pa.array([str(uuid.UUID(int=1)), None, "not a uuid", None])},
        record=pa.array([0, 1, 1, 2], pa.int32()),
        op=pa.array(["U", "D", "U", "D"]),
        beside={"b": pa.array([1, 2, 3, 4])},
    )
    done = held(columns, found, DUCK)
    assert done.record.to_pylist() == [0, 1, 2]
    assert done.error.to_pylist() == [None, "column 'u': no UUID: \"not a uuid\"", None]
    assert done.columns["id"].to_pylist() == [1, None, 3]
    assert done.beside["b"].to_pylist() == [1, 2, 4]


def test_an_error_that_a_record_has_already_stays() -> None:
    found = Decoded({"u": pa.array([None, "x"], pa.string())}, error=pa.array(["cut off", None]))
    done = held(UUID, found, DUCK)
    assert done.error.to_pylist() == ["cut off", "column 'u': no UUID: \"x\""]
    assert held(UUID, found, Domain()) is found
