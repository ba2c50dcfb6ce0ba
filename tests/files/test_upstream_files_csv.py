"""CSV snapshot files of other people: exact, or refused naming file and column."""

import struct
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from files_values import FAILURES, scanned, snapshot_of
from hint_typed import typed

from backfill_cli.errors import BadData
from backfill_cli.spark.failures import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id BIGINT, s STRING, f FLOAT, d DOUBLE, p DECIMAL(6,2)"


def f32(value: float) -> float:
    (found,) = struct.unpack("f", struct.pack("f", value))
    return float(found)


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a line end inside quotes, without multi_line": ('1,"a\n2,b",,,\n', "multi_line", {}),
    "a line end inside quotes, both halves of which fit": ('1,"a,,,\n2,b",,,\n', "multi_line", {}),
    "a quote that is never closed": ('1,a,,,\n2,"b,,,\n3,c,,,\n', "not closed", {"multi_line": True}),
    "a double of 1e400": ("1,a,,1e400,\n", "'d'", {}),
    "a float of 1e39": ("1,a,1e39,,\n", "'f'", {}),
    "a decimal with one digit too many": ("1,a,,,1.115\n", "'p'", {}),
    "a row with one field less": ("1,a,,\n", "expected 5 fields", {}),
    "a row with one field more": ("1,a,,,,\n", "expected 5 fields", {}),
    "text after a closing quote": ('1,"a"b,,,\n', "after its closing quote", {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_csv_of_these_columns_is_refused(tmp_path: Path, spark: "SparkSession", name: str) -> None:
    rows, said, csv = REFUSED[name]
    upstream = snapshot_of(tmp_path, "csv", DDL, "id,s,f,d,p\n" + rows, csv={"header": True, **csv})
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark)
    error = from_spark(caught.value)
    assert isinstance(error, BadData), caught.value
    assert "data.csv: " in error.message
    assert said in error.message + str(error.hint)
    if name == "a decimal with one digit too many":
        with typed(error) as hint:
            hint.says("fix the file, then drop the job and start over")
            again = snapshot_of(tmp_path, "csv", DDL, "id,s,f,d,p\n" + rows.replace("1.115", "1.12"))
            assert [row["p"] for row in scanned(again, spark)] == [Decimal("1.12")]


def test_line_ends_in_quotes_stay_as_they_are(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = snapshot_of(tmp_path, "csv", DDL, "", csv={"header": True, "multi_line": True})
    content = b'id,s,f,d,p\r\n1,"a\r\nb",0.1,-0.0,1.50\r\n2,"c\nd",inf,-Infinity,\r\n3,"e\rf",,,\r\n'
    (tmp_path / "data.csv").write_bytes(content)
    rows = scanned(upstream, spark)
    assert [row["s"] for row in rows] == ["a\r\nb", "c\nd", "e\rf"]
    assert [row["f"] for row in rows] == [f32(0.1), float("inf"), None]
    assert [str(row["d"]) for row in rows] == ["-0.0", "-inf", "None"]
    assert rows[0]["p"] == Decimal("1.50")


def test_lines_of_old_macs_and_texts_that_were_once_private(tmp_path: Path, spark: "SparkSession") -> None:
    text = "\ue000backfill-empty\ue000"
    upstream = snapshot_of(tmp_path, "csv", "id BIGINT, s STRING", f'id,s\r1,{text}\r2,""\r3,\ufffd\r')
    assert [row["s"] for row in scanned(upstream, spark)] == [text, "", "\ufffd"]


def test_a_column_that_is_left_out_on_purpose(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = snapshot_of(tmp_path, "csv", "id BIGINT", "other,id\nx,1\n", ignore=["other"])
    assert scanned(upstream, spark) == [{"id": 1, "_backfill_read": 0}]


def test_a_misspelt_column_of_json_is_refused_at_the_pin(tmp_path: Path, spark: "SparkSession") -> None:
    content = '{"id": 1, "note": "x"}\n{"id": 2}\n'
    with pytest.raises(BadData, match="column 'noet'") as caught:
        snapshot_of(tmp_path, "json", "id BIGINT, noet STRING", content).pin()
    assert caught.value.message.endswith("; did you mean note?")
    with typed(caught.value) as hint:
        snapshot_of(tmp_path, "json", "id BIGINT, note STRING", content).pin()
        sparse = hint.settings()["upstream.snapshot.sparse"]
        upstream = snapshot_of(tmp_path, "json", "id BIGINT, noet STRING", content, sparse=sparse)
        assert [row["noet"] for row in scanned(upstream, spark)] == [None, None]
