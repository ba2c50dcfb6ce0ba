"""`init --path` writes a config that fits the files, and leaves to be filled in what they do not tell."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.config import JobConfig
from backfill_cli.config.looked import look
from backfill_cli.config.template import FILL_IN, template
from backfill_cli.errors import UsageError

Load = Callable[[str], JobConfig]

PANDAS = ",id,status,amount,day,made\n0,1,new,2.5,2026-01-01,2026-01-01 10:00:00\n1,2,,13.25,2026-02-28,\n"
SPARK = '1,"say ""\n'.replace('""', '\\"hi\\""') + '2,""\n'
DMS_LOAD, DMS_CDC = (
    "1,new,2.50\n2,paid,3.75\n",
    "U,2026-01-02 10:00:00.000001,1,paid,2.50\nD,2026-01-02 10:00:01,2,,\n",
)


@pytest.fixture
def written(load_text: Load, tmp_path: Path) -> Callable[..., str]:
    """What `init` writes for files with these texts, by their names."""

    def write(changes: bool = False, **files: str) -> str:
        for name, text in files.items():
            file = tmp_path / ("changes" if name.startswith("change") else "orders") / name.replace("__", ".")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return template("files", "duckdb", look("files", "orders", "changes" if changes else None))

    return write


def ready(load_text: Load, text: str) -> Any:
    """The `[upstream]` of a config that can be planned as it is: what there is fits what it says."""
    assert FILL_IN not in text.replace(f"immutable_key = false   {FILL_IN}", "")
    text = text.replace("immutable_key = false", "immutable_key = true")
    told = load_text(text)
    upstream = told.open_upstream()
    upstream.observe(upstream.pin().position, snapshot_open=True)
    sides = {
        side: {k: v for k, v in options.items() if k != "path"} for side, options in upstream_of(told).items()
    }
    return {**sides, "key": list(told.tables[0].key)}


def upstream_of(told: JobConfig) -> dict[str, Any]:
    return {side: options for side, options in told.tree["upstream"].items() if side != "type"}


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
    assert re.search(r"^key = \[\]   # <- fill in$", text, re.MULTILINE)


def test_json_lines_keep_text_that_holds_digits(load_text: Load, written: Any) -> None:
    rows = [
        {"id": i, "zip": "12345", "price": 2.25, "big": 12345678901234567.25, "day": "2026-01-01"} for i in (1, 2)
    ]
    told = ready(load_text, written(a__jsonl="\n".join(map(json.dumps, rows))))
    assert told["snapshot"]["schema"] == ("id BIGINT, zip STRING, price DECIMAL(18,2), big STRING, day DATE")


def test_nested_json_has_its_structure(load_text: Load, written: Any) -> None:
    told = ready(load_text, written(a__json='{"id":1,"tags":["x"],"at":{"n":1,"the x":"y"}}\n'))
    assert told["snapshot"]["schema"] == "id BIGINT, tags ARRAY<STRING>, at STRUCT<n: BIGINT, `the x`: STRING>"


def test_a_json_array_says_how_to_write_lines(written: Any) -> None:
    with pytest.raises(UsageError, match="a JSON array, not one object per line") as raised:
        written(a__json='[{"id":1}]')
    assert "lines=True" in raised.value.hint


def test_what_duckdb_writes_by_default_is_read(load_text: Load, tmp_path: Path) -> None:
    rows = "SELECT range AS id, 'a \"b\", c' AS note, 1.25::DECIMAL(9,4) AS d, true AS b FROM range(10)"
    for name in ("a.csv", "b.parquet", "c.json"):
        (tmp_path / name[0] / "orders").mkdir(parents=True)
        duckdb.sql(f"COPY ({rows}) TO '{tmp_path / name[0] / 'orders' / name}'")
        told = ready(load_text, template("files", "duckdb", look("files", f"{name[0]}/orders/", None)))
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
    found = look("files", "orders", None)
    assert found is not None
    assert found.key.value == key
    if key is None:
        assert re.search(r"^key = \[\]   # <- fill in$", template("files", "duckdb", found), re.MULTILINE)
        unique = [name for name, held in columns.items() if len(set(held) - {None}) == len(held)]
        assert all(name in found.key.why for name in unique)


def envelope(id: int, block: bool, table: str = "orders") -> str:
    price = base64.b64encode((250).to_bytes(2, "big")).decode()
    row = {"id": id, "price": price, "made": 1_767_261_600_000_000, "note": "x"}
    told = {"op": "u", "before": None, "after": row, "source": {"ts_ms": 5, "schema": "public", "table": table}}
    kinds = {
        "id": {"type": "int64"},
        "price": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        "made": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        "note": {"type": "string"},
    }
    after = {"field": "after", "type": "struct", "fields": [{"field": n, **kind} for n, kind in kinds.items()]}
    schema = {"type": "struct", "fields": [after, {"field": "op", "type": "string"}]}
    return json.dumps({"schema": schema, "payload": told} if block else told) + "\n"


@pytest.fixture
def snapshot(load_text: Load, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    price, made = pa.array([None], pa.decimal128(9, 2)), pa.array([None], pa.timestamp("us"))
    pq.write_table(pa.table({"id": [1], "price": price, "made": made}), tmp_path / "orders" / "a.parquet")


@pytest.mark.usefixtures("snapshot")
@pytest.mark.parametrize("block", [False, True])
def test_debezium_is_decoded_as_its_values_are_written(load_text: Load, written: Any, block: bool) -> None:
    told = ready(
        load_text, written(changes=True, change1__json=envelope(1, block), change2__json=envelope(2, block))
    )
    decode = {} if block else {"timestamps": "us", "decimals": "precise", "columns": "note STRING"}
    assert told["changes"] == {"format": "debezium", **decode}


@pytest.mark.usefixtures("snapshot")
def test_changes_of_several_tables_are_told_apart(load_text: Load, written: Any) -> None:
    both = envelope(1, True) + envelope(2, True, "items")
    assert ready(load_text, written(changes=True, change__json=both))["changes"]["tables"] == ["public.orders"]
    other = envelope(1, True, "this") + envelope(2, True, "that")
    text = written(changes=True, change__json=other)
    assert re.search(r"# -> there are changes of public.that, public.this\ntables = \[\]   # <- fill in", text)


def test_times_of_tables_that_are_not_chosen_yet_decide_no_type(written: Any) -> None:
    events = [
        {
            "op": "c",
            "before": None,
            "after": {"id": 1, "made": made},
            "source": {"schema": "public", "table": table},
        }
        for table, made in (("this", "2026-01-02 10:00:00"), ("that", "2026-01-02T10:00:00Z"))
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    text = written(changes=True, a__csv="id,made\n1,2026-01-01 10:00:00\n", change1__json=lines)
    assert 'schema = "id BIGINT, made TIMESTAMP_NTZ"' in text


def test_dms_in_parquet_has_its_op_and_its_time(load_text: Load, snapshot: None, tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    held = pq.read_table(tmp_path / "orders" / "a.parquet")
    time = pa.array([None], pa.timestamp("us"))
    pq.write_table(
        held.add_column(0, "commit_ts", time).add_column(0, "Op", pa.array(["U"])),
        tmp_path / "changes" / "1.parquet",
    )
    told = ready(load_text, template("files", "duckdb", look("files", "orders", "changes")))
    assert told["changes"] == {"format": "dms", "time_column": "commit_ts"}


def test_a_promise_is_for_people_to_give(load_text: Load, written: Any) -> None:
    """DMS sends no old key: where keys change, rows would stay in the sink for ever."""
    text = written(changes=True, LOAD1__csv="id,status,amount\n" + DMS_LOAD, change1__csv=DMS_CDC)
    assert f"\nimmutable_key = false   {FILL_IN}\n" in text
    assert f"immutable_key = false   {FILL_IN}" not in written(LOAD1__csv="id,status\n1,a\n")


def test_dms_in_csv_without_names_takes_them_from_the_snapshot(load_text: Load, written: Any) -> None:
    text = written(changes=True, LOAD1__csv="id,status,amount\n" + DMS_LOAD, change1__csv=DMS_CDC)
    told = ready(load_text, text)
    assert told["changes"] == {"format": "dms", "time_column": "commit_time"}


def test_types_hold_the_values_of_changes_too(load_text: Load, written: Any) -> None:
    text = written(changes=True, LOAD1__csv="id,status,amount\n" + DMS_LOAD, change1__csv="U,1,paid,2.505\n")
    assert ready(load_text, text)["snapshot"]["schema"] == "id BIGINT, status STRING, amount DECIMAL(18,3)"


CDC = {
    "csv": 'U,1,"2026-01-02T10:00:00ZONE"\n',
    "debezium": '{"op": "u", "before": null, "after": {"id": 1, "made": "2026-01-02T10:00:00ZONE"}}\n',
    "feed": '{"_change_type": "insert", "_commit_version": 1, "id": 1, "made": "2026-01-02T10:00:00ZONE"}\n',
}


@pytest.mark.parametrize("form", ["csv", "debezium", "feed"])
@pytest.mark.parametrize("first", ["snapshot", "changes"])
def test_a_type_holds_times_that_have_a_zone_on_one_side_only(
    load_text: Load, written: Any, form: str, first: str
) -> None:
    """TIMESTAMP_NTZ would refuse the first change, hours later."""
    zones = ("Z", "") if first == "snapshot" else ("", "Z")
    load = f"id,made\n1,2026-01-01 10:00:00{zones[0]}\n"
    change = CDC[form].replace("ZONE", zones[1])
    text = written(changes=True, a__csv=load, **{f"change1__{'csv' if form == 'csv' else 'json'}": change})
    assert ready(load_text, text)["snapshot"]["schema"] == "id BIGINT, made TIMESTAMP"
    other = "changes" if first == "snapshot" else "snapshot"
    said = " ".join(re.sub(r"\n# *(->)?", " ", text).split())
    assert f"'made' has a time zone in the {first} only" in said
    assert f"reads the times of the {other} as UTC" in said


@pytest.mark.parametrize("form", ["csv", "debezium", "feed"])
def test_times_without_a_zone_on_both_sides_stay_without(load_text: Load, written: Any, form: str) -> None:
    kind = "csv" if form == "csv" else "json"
    changes = {f"change1__{kind}": CDC[form].replace("ZONE", "")}
    text = written(changes=True, a__csv="id,made\n1,2026-01-01 10:00:00\n", **changes)
    assert ready(load_text, text)["snapshot"]["schema"] == "id BIGINT, made TIMESTAMP_NTZ"


def test_types_of_parquet_are_those_of_its_footer_whatever_the_changes_show(
    load_text: Load, snapshot: None, written: Any
) -> None:
    told = ready(load_text, written(changes=True, change1__csv="Op,id,price,made\nU,1,2.5,2026-01-02T10:00:00\n"))
    assert told["snapshot"] == {"format": "parquet"}


def test_a_change_feed_is_known_by_its_column(load_text: Load, snapshot: None, tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    held = pq.read_table(tmp_path / "orders" / "a.parquet")
    marks = {"_change_type": ["insert"], "_commit_version": [1]}
    for name, values in marks.items():
        held = held.append_column(name, pa.array(values))
    pq.write_table(held, tmp_path / "changes" / "1.parquet")
    told = ready(load_text, template("files", "duckdb", look("files", "orders", "changes")))
    assert told["changes"] == {"format": "change-feed"}


def test_changes_that_show_no_format_are_left_blank_with_what_they_have(
    load_text: Load, snapshot: None, tmp_path: Path
) -> None:
    (tmp_path / "changes").mkdir()
    pq.write_table(pa.table({"id": [1], "deleted": [True]}), tmp_path / "changes" / "1.parquet")
    text = template("files", "duckdb", look("files", "orders", "changes"))
    assert 'format = ""   # <- fill in' in text
    assert "the files have id, deleted" in " ".join(text.replace("#", "").split())


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
    from backfill_cli.upstreams.files.looking.look import table_of

    assert table_of(path) == table


def test_where_nobody_can_look_it_says_so(load_text: Load) -> None:
    with pytest.raises(UsageError, match="no files found"):
        look("files", "nowhere", None)
    with pytest.raises(UsageError, match="with files only, not with kafka"):
        look("kafka", "x", None)
    with pytest.raises(UsageError, match="needs the path of a snapshot"):
        look("files", None, "changes")
