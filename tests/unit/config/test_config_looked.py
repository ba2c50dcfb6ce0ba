"""`init --from` writes a config that fits the files, and leaves to be filled in what they do not tell."""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from config_builders import Load, config_text, draft, ready
from hint_typed import typed

from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.errors import UsageError
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.schema import schema_text

PANDAS = ",id,status,amount,day,made\n0,1,new,2.5,2026-01-01,2026-01-01 10:00:00\n1,2,,13.25,2026-02-28,\n"
SPARK = '1,"say ""\n'.replace('""', '\\"hi\\""') + '2,""\n'


def test_csv_that_pandas_wrote_with_its_index_is_read_at_the_first_try(load_text: Load, written: Any) -> None:
    text = written(a__csv=PANDAS)
    told = ready(load_text, text)
    assert told["snapshot"]["schema"] == (
        "id BIGINT, status STRING, amount DECIMAL(18,2), day DATE, made TIMESTAMP_NTZ"
    )
    assert told["snapshot"]["ignore"] == [""]
    assert told["key"] == ["id"]
    assert "# -> guessed from 2 rows of a.csv: each type holds all their values exactly" in text
    assert "# -> a column without a name: the index that pandas writes" in text


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20"], "BIGINT"),
        (["007", "12"], "STRING"),
        (["1", "9" * 20], "DECIMAL(38,0)"),
        (["1", "9" * 39], "STRING"),
        (["1.5", "2"], "DECIMAL(18,1)"),
        (["123456789012345.5", "2"], "DECIMAL(38,1)"),
        (["0.30000000000000004", "1.5"], "STRING"),
        (["1e-5", "2.0"], "STRING"),
        (["1", "x"], "STRING"),
        (["True", "false"], "BOOLEAN"),
        (["0", "1"], "BIGINT"),
        (["2026-02-28", "2026-02-29"], "STRING"),
        (["2026-01-01 10:00:00.123456", "2026-01-01 10:00"], "TIMESTAMP_NTZ"),
        (["2026-01-01 10:00:00.1234567", "2026-01-01 10:00"], "STRING"),
        (["2026-01-01T10:00:00Z", "2026-01-01 10:00:00+02:00"], "TIMESTAMP"),
        (["2026-01-01T10:00:00Z", "2026-01-01 10:00:00"], "STRING"),
        (["", ""], "STRING"),
        (["5", "NULL"], "BIGINT"),
    ],
)
def test_a_type_holds_every_value_exactly_or_is_text(
    load_text: Load, written: Any, values: list[str], kind: str
) -> None:
    told = ready(load_text, written(a__csv="id,v\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values))))
    assert told["snapshot"]["schema"] == f"id BIGINT, v {kind}"
    assert told["snapshot"].get("csv", {}).get("null_value") == ("NULL" if "NULL" in values else None)


def test_a_wrong_value_far_behind_and_in_the_last_file_is_seen(load_text: Load, written: Any) -> None:
    many = "id,v\n" + "".join(f"{i},{i}\n" for i in range(30_000))
    assert "v STRING" in written(a__csv=many + "30000,x\n", b__csv="id,v\n1,2\n")
    assert "v DECIMAL(18,1)" in written(a__csv=many, b__csv="id,v\n1,2.5\n")


def test_the_last_json_file_is_sampled_however_long_the_first_is(written: Any) -> None:
    many = "".join(f'{{"id":{i},"v":{i}}}\n' for i in range(200_001))
    text = written(a__json=many, b__json='{"id":-1,"v":"x","w":true}\n')
    assert 'schema = "id BIGINT, v STRING, w BOOLEAN"' in text
    assert "2 of 2 files" in text


def test_a_dialect_is_written_down(load_text: Load, written: Any) -> None:
    told = ready(load_text, written(a__csv='id;note\n1;"two\nlines"\n2;"a ""b"""\n'))
    assert told["snapshot"]["csv"] == {"delimiter": ";", "multi_line": True}


def test_files_without_a_header_have_their_names_filled_in_by_people(load_text: Load, written: Any) -> None:
    """Spark's default, and that of DMS."""
    text = written(a__csv=SPARK)
    assert 'schema = "c1 BIGINT, c2 STRING"' in text
    assert "header = false" in text
    assert "# -> the files do not name their columns: name them here, in this order" in text
    assert re.search(r"^key = \[\]   # <- fill in: the columns that identify a row$", text, re.MULTILINE)


def test_json_lines_keep_text_that_holds_digits(load_text: Load, written: Any) -> None:
    rows = [
        {"id": i, "zip": "12345", "price": 2.25, "big": 12345678901234567.25, "day": "2026-01-01"} for i in (1, 2)
    ]
    told = ready(load_text, written(a__jsonl="\n".join(map(json.dumps, rows))))
    assert told["snapshot"]["schema"] == (
        "id BIGINT, zip STRING, price DECIMAL(18,2), big DECIMAL(38,0), day DATE"
    )


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (("1.5", "2", "1.10"), "DECIMAL(18,1)"),
        (("1e3", "0.25", "-0.0"), "DECIMAL(18,2)"),
        (("9007199254740993.5", "1.50"), "DECIMAL(38,2)"),
        (("0.30000000000000004", "1.0"), "DOUBLE"),
        (("1.5", "2", "1e300"), "DOUBLE"),
        (("1.5", "2", "1e400"), None),
        (("0.30000000000000004", "9007199254740993", "1.0"), None),
        (("0.1234567890123456789", "1.0"), None),
    ],
)
@pytest.mark.parametrize("within", ["%s", '{"x": %s, "s": "t"}', '[{"x": %s}]'], ids=["column", "struct", "array"])
def test_a_config_is_not_refuted_by_its_own_sample(
    load_text: Load, written: Any, numbers: tuple[str, ...], kind: str | None, within: str
) -> None:
    """Its decoder reads every sampled row, or the config says that it does not; no number is rounded."""
    records = [f'{{"id": {i}, "v": {within % number}}}' for i, number in enumerate(numbers)]
    text = written(a__json="\n".join(records) + "\n")
    schema = ready(load_text, text)["snapshot"]["schema"]
    decoded = JsonRows(schema_text(of_ddl(schema)), kept_apart=False)([one.encode() for one in records])
    assert (decoded.error is None) == (kind is not None)
    assert ("1 row cannot be read" in text) == (kind is None)
    if kind is not None:
        assert "each type holds all their values exactly" in text
        assert kind.partition("(")[0] in schema
        assert kind in schema or within != "%s"


def test_nested_json_has_its_structure(load_text: Load, written: Any) -> None:
    told = ready(load_text, written(a__json='{"id":1,"tags":["x"],"at":{"n":1,"the x":"y"}}\n'))
    assert told["snapshot"]["schema"] == "id BIGINT, tags ARRAY<STRING>, at STRUCT<n: BIGINT, `the x`: STRING>"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["0.25", "1.0", "3"], "DECIMAL(38,2)"),
        (["0.1", "123456789012345678901"], "DECIMAL(38,1)"),
        (["0.30000000000000004"], "DOUBLE"),
        (["0.300000000000000040001"], "STRING"),
    ],
)
def test_numbers_with_a_point_inside_a_value_keep_their_places(
    load_text: Load, written: Any, values: list[str], kind: str
) -> None:
    lines = [f'{{"id":{at},"o":[{{"x":{value},"s":"v1.2"}}]}}\n' for at, value in enumerate(values)]
    told = ready(load_text, written(a__json="".join(lines)))
    assert told["snapshot"]["schema"] == f"id BIGINT, o ARRAY<STRUCT<x: {kind}, s: STRING>>"


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([{"a": "1.0", "b": "123456789012345678"}, {"a": "0.30000000000000004", "b": "-1"}], ("DOUBLE", "BIGINT")),
        ([{"a": "1e3", "b": "0.123456789"}, {"a": "0.30000000000000004", "b": "12345678901234567.5"}],
         ("DOUBLE", "DECIMAL(38,9)")),
        ([{"a": "1.175494351e-38", "b": "18446744073709551615"}], ("DOUBLE", "DECIMAL(38,0)")),
        ([{"a": "123456789012345678.5", "b": "0.5"}, {"a": "2", "b": "1e300"}], ("DECIMAL(38,1)", "DOUBLE")),
    ],
)  # fmt: skip
def test_each_number_inside_a_value_has_a_type_of_its_own(
    load_text: Load, written: Any, values: list[dict[str, str]], kinds: tuple[str, str]
) -> None:
    """With one type for all of them, only text was left, which reads no 1.0."""
    lines = [f'{{"id":{i},"o":{{"a":{one["a"]},"l":[{{"b":{one["b"]}}}]}}}}\n' for i, one in enumerate(values)]
    text = written(a__json="".join(lines))
    schema = ready(load_text, text)["snapshot"]["schema"]
    assert schema == f"id BIGINT, o STRUCT<a: {kinds[0]}, l: ARRAY<STRUCT<b: {kinds[1]}>>>"
    assert JsonRows(schema_text(of_ddl(schema)), kept_apart=False)([one.encode() for one in lines]).error is None
    assert "each type holds all their values exactly" in text


def test_a_json_array_says_how_to_write_lines(written: Any) -> None:
    with pytest.raises(UsageError, match="a JSON array, not one object per line") as raised:
        written(a__json='[{"id":1}]')
    with typed(raised.value) as hint:
        hint.says("to_json(path, orient='records', lines=True)")
        assert "id BIGINT" in written(a__json='{"id":1}\n')
    with pytest.raises(UsageError, match="its lines are not JSON objects") as raised:
        written(a__json="7\n")
    with typed(raised.value) as hint:
        hint.says("write one object per line")
        assert "id BIGINT" in written(a__json='{"id":1}\n')


@pytest.mark.parametrize(
    ("path", "why"), [("orders", "init cannot read files with"), ("mock:///orders", "reads only local files")]
)
def test_a_path_that_is_a_pattern_or_elsewhere_is_left_to_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders").mkdir()
    Path("orders/a[1].json").write_text('{"id":1}\n')
    with pytest.raises(UsageError, match=why) as raised:
        config_text(path)
    with typed(raised.value) as hint:
        assert hint.commands() == [["init"]]
        assert "path" in config_text()


def test_what_duckdb_writes_by_default_is_read(load_text: Load, tmp_path: Path) -> None:
    rows = "SELECT range AS id, 'a \"b\", c' AS note, 1.25::DECIMAL(9,4) AS d, true AS b FROM range(10)"
    for name in ("a.csv", "b.parquet", "c.json"):
        (tmp_path / name[0] / "orders").mkdir(parents=True)
        duckdb.sql(f"COPY ({rows}) TO '{tmp_path / name[0] / 'orders' / name}'")
        told = ready(load_text, config_text(f"{name[0]}/orders/"))
        assert told["key"] == ["id"]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"id": [1, 2], "order_id": [3, 3]}, ["id"]),
        ({"order_id": [1, 2], "customer_id": [7, 8]}, ["order_id"]),
        ({"line_key": [1, 2], "n": [1, 1]}, ["line_key"]),
        ({"a_id": [1, 2], "b_id": [3, 4]}, None),
        ({"id": [1, 1]}, None),
        ({"id": [1, None]}, None),
        ({"n": [1, 2]}, None),
    ],
)
def test_a_key_is_unique_and_named_like_one(
    load_text: Load, tmp_path: Path, columns: dict[str, list[int | None]], key: list[str] | None
) -> None:
    (tmp_path / "orders").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "orders" / "a.parquet")
    found = draft("orders").looked
    assert found is not None
    assert found.tables[0].key.value == key
    if key is None:
        assert re.search(
            r"^key = \[\]   # <- fill in: the columns that identify a row$", config_text("orders"), re.MULTILINE
        )
        unique = [name for name, held in columns.items() if len(set(held) - {None}) == len(held)]
        assert all(name in found.tables[0].key.why for name in unique)


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("data/orders/", "orders"),
        ("data/orders/snapshot", "orders"),
        ("data/Order Lines/*.csv", "order_lines"),
        ("orders-2026-01.csv", "orders"),
        ("exports/orders.csv.gz", "orders"),
        ("/2026/", "rows"),
    ],
)
def test_the_table_is_named_after_its_folder_or_file(path: str, table: str) -> None:
    from backfill_cli.upstreams.files.inference.infer import table_of

    assert table_of(path) == table


def test_where_nobody_can_look_it_says_so(load_text: Load) -> None:
    with pytest.raises(UsageError, match="there are no files") as raised:
        config_text("nowhere")
    with typed(raised.value) as hint:
        hint.says("give a folder or a glob with files")
        Path("nowhere").mkdir()
        Path("nowhere/a.json").write_text('{"id":1}\n')
        config_text("nowhere")
    with pytest.raises(UsageError, match="--changes needs the place of the data"):
        config_text(None, changes="changes")
