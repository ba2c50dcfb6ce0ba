"""Types survive exactly or are refused, by name."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from backfill_cli.errors import BadData
from backfill_cli.formats import row_groups, schemas
from backfill_cli.formats.group_slices import GroupSlice
from backfill_cli.formats.row_groups import FileSlice
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import columns_of, differing, field, schema_text, shown


def footer_of(folder: Path, table: pa.Table, **options: Any) -> tuple[str, Any]:
    path = folder / "f.parquet"
    pq.write_table(table, path, **options)
    return str(path), pq.read_metadata(path)


KEPT: list[tuple[pa.DataType, str]] = [
    (pa.int8(), "tinyint"),
    (pa.uint32(), "bigint"),
    (pa.float32(), "float"),
    (pa.large_string(), "string"),
    (pa.dictionary(pa.int32(), pa.string()), "string"),
    (pa.binary(4), "binary"),
    (pa.decimal128(38, 10), "decimal(38,10)"),
    (pa.date32(), "date"),
    (pa.timestamp("us"), "timestamp_ntz"),
    (pa.timestamp("ms", "Europe/Berlin"), "timestamp"),
    (pa.list_(pa.struct([("a b", pa.int64())])), "array<struct<a b:bigint>>"),
    (pa.map_(pa.string(), pa.list_(pa.decimal128(5, 0))), "map<string,array<decimal(5,0)>>"),
]


@pytest.mark.parametrize(("kind", "expected"), KEPT, ids=[str(kind) for kind, _ in KEPT])
def test_a_type_that_is_kept_has_its_spark_name(tmp_path: Path, kind: pa.DataType, expected: str) -> None:
    path, footer = footer_of(tmp_path, pa.table({"c": pa.array([], kind)}))
    assert shown(schemas.of_footer(path, footer)["c"]["type"]) == expected


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Spark's JSON of types that hold others."""
    true = st.booleans()
    fields = st.lists(st.builds(lambda kind, null: field("f", kind) | {"nullable": null}, inner, true), max_size=2)
    return st.one_of(
        st.builds(lambda kind, null: {"type": "array", "elementType": kind, "containsNull": null}, inner, true),
        st.builds(
            lambda key, kind, null: {"type": "map", "keyType": key, "valueType": kind, "valueContainsNull": null},
            inner,
            inner,
            true,
        ),
        st.builds(lambda of: {"type": "struct", "fields": of}, fields),
    )


PLAIN = "boolean byte short integer long float double string binary date timestamp timestamp_ntz decimal(38,10)"
TYPES = st.sampled_from([*PLAIN.split(), "char(3)", "interval day to second"])


@given(st.lists(st.tuples(st.recursive(TYPES, nested, max_leaves=4), st.booleans()), max_size=3))
def test_an_arrow_schema_is_that_of_pyspark(kinds: list[tuple[Any, bool]]) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = {f"c{at}": field(f"c{at}", kind) | {"nullable": null} for at, (kind, null) in enumerate(kinds)}
    try:
        theirs = to_arrow_schema(StructType.fromJson(json.loads(schema_text(columns))))
    except Exception as error:
        with pytest.raises(type(error)):
            schemas.arrow_schema(columns)
        return
    assert schemas.arrow_schema(columns).equals(theirs, check_metadata=True)


REFUSED: list[tuple[pa.DataType, dict[str, Any], str]] = [
    (pa.uint64(), {}, "uint64"),
    (pa.timestamp("ns"), {}, "cut to microseconds"),
    (pa.list_(pa.timestamp("ns", "UTC")), {}, "cut to microseconds"),
    (pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}, "INT96"),
    (pa.time64("us"), {}, "time64"),
    (pa.duration("us"), {}, "duration"),
    (pa.decimal256(50, 2), {}, "decimal256"),
    (pa.float16(), {}, "halffloat"),
    (pa.null(), {}, "null"),
]


@pytest.mark.parametrize(("kind", "options", "text"), REFUSED, ids=[f"{k} {o}" for k, o, _ in REFUSED])
def test_case_25_a_type_that_would_not_survive_is_named_with_its_column_and_file(
    tmp_path: Path, kind: pa.DataType, options: dict[str, Any], text: str
) -> None:
    path, footer = footer_of(
        tmp_path, pa.table({"fine": pa.array([], pa.int64()), "odd": pa.array([], kind)}), **options
    )
    with pytest.raises(BadData) as caught:
        schemas.of_footer(path, footer)
    assert path in caught.value.message
    assert "'odd" in caught.value.message
    assert text in caught.value.message
    with typed(caught.value) as hint:
        hint.says("write the column")
        kept = pa.timestamp("us") if "timestamp" in str(kind) else pa.string()
        (tmp_path / "kept").mkdir()
        assert "odd" in schemas.of_footer(*footer_of(tmp_path / "kept", pa.table({"odd": pa.array([], kept)})))


def test_a_value_that_its_type_cannot_hold_is_written_otherwise_and_pinned_again(tmp_path: Path) -> None:
    """A footer's type can hold more than Spark's: the value is found when the pinned file is read."""
    wanted = pa.schema([("at", pa.timestamp("us"))])

    def read(kind: pa.DataType) -> list[Any]:
        path, _ = footer_of(
            tmp_path, pa.table({"at": pa.array([2**62], pa.timestamp("ns")).cast(kind, safe=False)})
        )
        slices = row_groups.batches(LocalFileSystem(), path, GroupSlice(0, 0, 0, 0, 1), wanted)
        return [value for batch in slices for value in batch["at"].to_pylist()]

    with pytest.raises(BadData, match=r"column 'at': a value is not a timestamp\[us\]") as refused:
        read(pa.timestamp("ns"))
    with typed(refused.value) as hint:
        hint.says("write the column with a type that holds all its values, then drop the job and start over")
        assert read(pa.timestamp("us")) == [dt.datetime(2116, 2, 20, 23, 53, 38, 427387)]


def test_a_file_that_is_damaged_after_the_pin_is_restored(tmp_path: Path) -> None:
    path, _ = footer_of(tmp_path, pa.table({"id": list(range(1000))}), compression="none")
    schema = {"id": field("id", "long")}
    one = FileSlice(LocalFileSystem(), path, GroupSlice(0, 0, 0, 0, 1000))
    ((piece,),) = row_groups.tasks([(0, one)], 1, schema).parts
    make, whole = row_groups.tasks([(0, one)], 1, schema).make, Path(path).read_bytes()
    Path(path).write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(BadData, match="not a complete parquet file") as refused:
        list(make(piece.what))
    with typed(refused.value) as hint:
        hint.says("restore it, or drop the job and start over")
        Path(path).write_bytes(whole)
        assert sum(batch.num_rows for batch in make(piece.what)) == 1000


def test_a_column_twice_gets_another_name(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    path, footer = footer_of(tmp_path, twice)
    with pytest.raises(BadData, match="duplicate column 'a'") as caught:
        schemas.of_footer(path, footer)
    with typed(caught.value) as hint:
        hint.says("give one of them another name")
        path, footer = footer_of(tmp_path, twice.rename_columns(["a", "b"]))
        assert list(schemas.of_footer(path, footer)) == ["a", "b"]


def test_timestamps_that_spark_wrote_as_int96_are_kept(tmp_path: Path) -> None:
    table = pa.table({"t": [dt.datetime(2026, 1, 1)]}).replace_schema_metadata(
        {"org.apache.spark.version": "4.1.4"}
    )
    path, footer = footer_of(tmp_path, table, use_deprecated_int96_timestamps=True)
    assert schemas.of_footer(path, footer)["t"]["type"] == "timestamp"


@pytest.mark.parametrize(
    ("keys", "plain"),
    [
        ({}, True),
        ({"org.apache.spark.version": "4.1.4", "org.apache.spark.sql.parquet.row.metadata": "{}"}, True),
        ({"org.apache.spark.version": "3.0.0", "org.apache.spark.legacyDateTime": ""}, False),
        ({"org.apache.spark.sql.parquet.row.metadata": "{}"}, False),
    ],
)
def test_case_25_files_with_the_old_calendar_are_known(tmp_path: Path, keys: dict[str, str], plain: bool) -> None:
    _, footer = footer_of(tmp_path, pa.table({"d": [dt.date(1500, 1, 1)]}).replace_schema_metadata(keys))
    assert schemas.calendar_is_plain(footer) is plain


def test_a_schema_is_the_same_after_json() -> None:
    columns = schemas.of_ddl(
        "id BIGINT, s STRUCT<a: ARRAY<DECIMAL(10,2)>, m: MAP<STRING, DATE>>, `x``y` TIMESTAMP_NTZ"
    )
    assert columns_of(schema_text(columns)) == columns
    assert [shown(c["type"]) for c in columns.values()] == [
        "bigint",
        "struct<a:array<decimal(10,2)>,m:map<string,date>>",
        "timestamp_ntz",
    ]


@pytest.mark.parametrize("ddl", ["", "id", "id NOTATYPE", "id INT, id INT", "d DECIMAL(39,0)", "SELECT 1"])
def test_ddl_that_means_nothing_is_refused(ddl: str) -> None:
    with pytest.raises(Unsupported):
        schemas.of_ddl(ddl)


def test_what_differs_between_two_schemas_is_named() -> None:
    old = {"a": field("a", "long"), "b": field("b", "string"), "c": field("c", "date")}
    new = {"b": field("b", "string", {"logical": "json"}), "c": field("c", "string"), "d": field("d", "long")}
    assert differing(old, new) == ["d", "a", "c"]
    assert differing(old, dict(reversed(old.items()))) == []


def test_decimals_are_kept_with_their_digits(tmp_path: Path) -> None:
    path, footer = footer_of(tmp_path, pa.table({"p": [Decimal("1.20")]}))
    assert schemas.of_footer(path, footer)["p"]["type"] == "decimal(3,2)"


@pytest.mark.parametrize(
    ("version", "int96", "plain"),
    [("2.4.8", False, False), ("3.0.1", False, True), ("3.0.1", True, False), ("3.1.0", True, True)],
)
def test_dates_of_an_old_spark_are_of_its_calendar(tmp_path: Path, version: str, int96: bool, plain: bool) -> None:
    rows = pa.table({"at": pa.array([0], pa.timestamp("us"))})
    rows = rows.replace_schema_metadata({"org.apache.spark.version": version})
    pq.write_table(rows, tmp_path / "f", use_deprecated_int96_timestamps=int96)
    assert schemas.calendar_is_plain(pq.read_metadata(tmp_path / "f")) == plain
