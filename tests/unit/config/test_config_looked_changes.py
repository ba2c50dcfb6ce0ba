"""`init --from --changes` writes how the changes are written, and types that hold their values too."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from config_builders import Load, config_text, ready

from backfill_cli.config.template import FILL_IN
from backfill_cli.errors import BadData

DMS_LOAD, DMS_CDC = (
    "1,new,2.50\n2,paid,3.75\n",
    "U,2026-01-02 10:00:00.000001,1,paid,2.50\nD,2026-01-02 10:00:01,2,,\n",
)


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
def test_a_line_that_cannot_be_read_shows_nothing_and_stops_no_init(load_text: Load, written: Any) -> None:
    """`plan` names it."""
    bad = '{"broken\n[1]\n{"op": 1} {"op": 2}\n'
    text = written(changes=True, change__json=bad + envelope(1, False) + '{"op": "c", "af')
    assert 'decimals = "precise"' in text
    with pytest.raises(BadData, match=r"change\.json: line 1: cut short"):
        ready(load_text, text)


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
    told = ready(load_text, config_text("orders", changes="changes"))
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


def test_a_decimal_of_changes_that_are_doubles_has_the_digits_that_a_double_keeps(
    load_text: Load, written: Any
) -> None:
    after = {"id": 2, "amt": 2.5, "o": {"x": 0.5}}
    event = {"op": "c", "before": None, "after": after, "source": {"table": "orders"}}
    row = '{"id": 1, "amt": 1.25, "o": {"x": 0.125}}\n'
    text = written(changes=True, a__json=row, change1__json=json.dumps(event) + "\n")
    told = ready(load_text, text)
    assert told["changes"]["decimals"] == "double"
    assert told["snapshot"]["schema"] == "id BIGINT, amt DECIMAL(15,2), o STRUCT<x: DECIMAL(15,3)>"


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
    told = ready(load_text, config_text("orders", changes="changes"))
    assert told["changes"] == {"format": "change-feed"}


def test_changes_that_show_no_format_are_left_blank_with_what_they_have(
    load_text: Load, snapshot: None, tmp_path: Path
) -> None:
    (tmp_path / "changes").mkdir()
    pq.write_table(pa.table({"id": [1], "deleted": [True]}), tmp_path / "changes" / "1.parquet")
    text = config_text("orders", changes="changes")
    assert 'format = ""   # <- fill in' in text
    assert "the files have id, deleted" in " ".join(text.replace("#", "").split())
