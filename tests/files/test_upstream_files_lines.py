"""An error about one value names the line that it stands in, and the row's key."""

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed

from backfill_cli.config import load
from backfill_cli.engine.job.checks import sink_tables
from backfill_cli.engine.staging import sample
from backfill_cli.engine.staging.sample import require_readable
from backfill_cli.errors import BadData
from backfill_cli.upstreams.files.reading import lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
[job]
name = "lines"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "HERE/data", format = "FORMAT", schema = "id BIGINT, v INT", ignore = ["n"], csv = { CSV } }
CHANGES
[[tables]]
name = "lines"
key = ["id"]
immutable_key = true
[sink]
type = "duckdb"
path = "w.duckdb"
"""


def failed(spark: "SparkSession", here: Path, kind: str, csv: str = "header = true", changes: str = "") -> BadData:
    told = {"HERE": str(here), "FORMAT": kind, "CHANGES": changes.replace("HERE", str(here)), "CSV": csv}
    text = JOB
    for name in ("FORMAT", "CHANGES", "CSV", "HERE"):
        text = text.replace(name, told[name])
    (here / "job.toml").write_text(
        text if kind == "csv" else text.replace(f', ignore = ["n"], csv = {{ {csv} }}', "")
    )
    with pytest.raises(BadData) as raised:
        read(spark, here)
    return raised.value


def read(spark: "SparkSession", here: Path) -> None:
    """A sample of the job's rows."""
    config = load(here / "job.toml")
    upstream = config.open_upstream()
    pin = upstream.pin()
    tables = sink_tables(config, lambda: spark, upstream, pin, plain=True)
    require_readable(lambda: spark, upstream, config, pin, tables)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, newline="")


def rows(bad: int, count: int = 40) -> str:
    return "".join(f"{i},{'2.5' if i == bad else i}\n" for i in range(count))


@pytest.mark.parametrize(
    ("text", "csv", "line"),
    [
        ("id,v\n" + rows(15), "header = true", "line 17 (of id 15)"),
        ("\ufeffid,v\n" + rows(0), "header = true", "line 2 (of id 0)"),
        (rows(15), "header = false", "line 16 (of id 15)"),
        ("id,v\n1,1\n\n\n15,2.5\n", "header = true", "line 5 (of id 15)"),
        ("id,v\r\n" + rows(15).replace("\n", "\r\n"), "header = true", "line 17 (of id 15)"),
        ('id,v\n"1",1\n"15",2.5\n', "header = true", "line 3 (of id 15)"),
        ('id,v,n\n1,1,"a\nb"\n15,2.5,c\n', "header = true, multi_line = true", "line 4 (of id 15)"),
    ],
)
def test_a_value_of_csv_names_its_line_and_key_at_plan(
    spark: "SparkSession", tmp_path: Path, text: str, csv: str, line: str
) -> None:
    write(tmp_path / "data" / "a.csv", text)
    error = failed(spark, tmp_path, "csv", csv)
    assert error.message == f"a.csv: {line}: column 'v': not exactly an int: 2.5"


def test_a_line_behind_many_blocks_and_parts_is_counted(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "PART_BYTES", 20_000)
    write(tmp_path / "data" / "a.csv", "id,v\n" + rows(9_000, 10_000))
    assert "a.csv: line 9002 (of id 9000): " in failed(spark, tmp_path, "csv").message


def test_a_line_of_json_is_named_and_the_option_that_has_the_type(spark: "SparkSession", tmp_path: Path) -> None:
    lines = [json.dumps({"id": i, "v": 2.5 if i == 15 else i}) for i in range(40)]
    write(tmp_path / "data" / "a.json", "\n" + "\n".join(lines) + "\n")
    error = failed(spark, tmp_path, "json")
    assert error.message.startswith("a.json: line 17 (of id 15): column 'v': ")
    with typed(error) as hint:
        hint.says("or correct the column's type in upstream.snapshot.schema, then drop the job and start over")
        text = (tmp_path / "job.toml").read_text()
        (tmp_path / "job.toml").write_text(text.replace("v INT", "v DECIMAL(9,1)"))
        read(spark, tmp_path)


def test_a_line_of_changes_is_named_where_a_file_of_the_snapshot_has_its_name(
    spark: "SparkSession", tmp_path: Path
) -> None:
    write(tmp_path / "data" / "a.csv", "id,v\n" + rows(-1))
    write(tmp_path / "changes" / "a.csv", "Op,id,v\nU,1,1\nU,15,2.5\n")
    changes = 'changes = { path = "HERE/changes", format = "dms", csv = { header = true } }'
    error = failed(spark, tmp_path, "csv", changes=changes)
    assert error.message == "a.csv: line 3 (of id 15): column 'v': not exactly an int: 2.5"


def test_a_last_line_without_an_end_is_counted_in_a_file_that_is_read_whole(
    spark: "SparkSession", tmp_path: Path
) -> None:
    write(tmp_path / "data" / "a.csv", "id,v\n" + rows(-1))
    events = "".join(debezium("u", {"id": i, "v": i}) for i in range(2)) + debezium("x", {"id": 2, "v": 1}).strip()
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "1.json.gz").write_bytes(gzip.compress(events.encode()))
    assert failed(spark, tmp_path, "csv", changes=CHANGES).message == "1.json.gz: line 3 (of id 2): unknown op x"


def debezium(op: str, row: dict[str, object]) -> str:
    before, after = (row, None) if op == "d" else (None, row)
    return json.dumps({"op": op, "before": before, "after": after, "source": {"ts_ms": 1}}) + "\n"


CHANGES = 'changes = { path = "HERE/changes", format = "debezium" }'
AMOUNT = CHANGES.replace(" }", ', decimals = "string", columns = "amount DECIMAL(6,2)" }')


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "with a schema block"])
def test_a_value_of_debezium_names_its_line_and_key(spark: "SparkSession", tmp_path: Path, wrapped: bool) -> None:
    write(tmp_path / "data" / "a.csv", "id,v\n" + rows(-1))
    events = [debezium("u", {"id": i, "v": i, "amount": "1.234" if i == 15 else "1.23"}) for i in range(40)]
    if wrapped:
        fields = [{"field": "id", "type": "int64"}, {"field": "v", "type": "int32"}]
        told = {"fields": [{"field": "after", "fields": [*fields, {"field": "amount", "type": "string"}]}]}
        events = [json.dumps({"schema": told, "payload": json.loads(event)}) + "\n" for event in events]
    write(tmp_path / "changes" / "1.json", "\n" + debezium("d", {"id": 15}) * (not wrapped) + "".join(events))
    error = failed(spark, tmp_path, "csv", changes=AMOUNT)
    line = 17 if wrapped else 18
    assert error.message == f"1.json: line {line} (of id 15): column 'amount': not exactly a decimal(6,2): 1.234"
    assert error.exit_code == 1
    with typed(error) as hint:
        hint.says("correct the change file; it may be replaced as long as it is not applied")
        write(tmp_path / "changes" / "1.json", "".join(events).replace("1.234", "1.24"))
        read(spark, tmp_path)


def test_a_line_of_debezium_is_named_by_the_folder_that_has_it(spark: "SparkSession", tmp_path: Path) -> None:
    """The snapshot's file has the same name, and as many lines."""
    write(tmp_path / "data" / "1.json", "".join(json.dumps({"id": i, "v": i}) + "\n" for i in range(40)))
    write(tmp_path / "changes" / "1.json", debezium("d", {"id": 15}) + debezium("x :end", {"id": 16, "v": 1}))
    said = failed(spark, tmp_path, "json", changes=CHANGES).message
    assert said == "1.json: line 2 (of id 16): unknown op x :end"


def test_a_file_too_large_for_a_sample_is_passed_over(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data" / "a.csv", "id,v\n" + "0,0\n" * 40)
    write(tmp_path / "data" / "b.csv", "id,v\n15,2.5\n")
    monkeypatch.setattr(sample, "_BYTES", 100)
    assert failed(spark, tmp_path, "csv").message.startswith("b.csv: line 2 (of id 15): ")
