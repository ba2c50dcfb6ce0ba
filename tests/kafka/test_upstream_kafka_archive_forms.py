"""Forms of an archive of a topic: JSON lines, raw records, columns, layouts, and those that are refused."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from kafka_archive import SCHEMA, archived, rows, store, topic
from kafka_topics import TABLE, Topic, history, offsets, scanned

from backfill_cli.errors import BadData, Fatal, UsageError
from backfill_cli.formats.listing import Listing, place
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.schema import field
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.kafka.archive import frames
from backfill_cli.upstreams.kafka.options import ArchiveOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["topic"]


def test_an_archive_of_json_lines(topic: Topic, tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "a").mkdir()
    lines = [
        {
            "p": r["kafka_partition"],
            "o": r["kafka_offset"],
            "ts": 1_700_000_000_000,
            "id": r["id"],
            "name": r["name"],
        }
        for r in [*rows(0, range(6)), *rows(1, range(3))]
    ]
    (tmp_path / "a" / "0.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    upstream = archived(
        topic,
        tmp_path / "a",
        archive={"format": "json", "partition": "p", "offset": "o", "timestamp": "ts"},
        value={"format": "rows", "schema": "id BIGINT, name STRING"},
    )
    found = scanned(upstream, spark, [*history(upstream), SnapshotRead(TABLE, "0", 6, 8)])
    assert offsets(found, 0) == list(range(8))
    assert [r["name"] for r in found][5:7] == ["file 5", "log 6"]
    assert found[0]["kafka_timestamp"].year == 2023


LINES = [
    (b'{"o": 1, "id": 2} {"o": 2, "id": 3}', "text after the JSON object"),
    (b'{"o": 1, "small": 200}', "column 'small': out of range for a tinyint"),
    (b'{"o": 1, "f": 1e400}', ""),
    (b'{"o": 1, "f": 1.7976931348623159e308}', "column 'f': out of range for a double"),
    (b'{"o": 1, "g": 1e39}', "column 'g': out of range for a float"),
    (b'{"o": 1, "name": "\\ud800"}', ""),
    (b'{"o": 1, "d": 1.005}', "column 'd': not exactly a decimal(10,2)"),
    (b'{"o": 1, "name": "\xff"}', ""),
    (b"null", ""),
    (b"[1]", ""),
    (b'{"o": 1', ""),
]


@pytest.mark.parametrize(("line", "told"), LINES)
def test_a_line_of_an_archive_is_exact_or_refused_by_name(
    topic: Topic, tmp_path: Path, spark: "SparkSession", line: bytes, told: str
) -> None:
    """The guards of the log's records hold for an archive's lines too."""
    (tmp_path / "a").mkdir()
    lines = [b'{"p": 0, "o": 0, "id": 1}', line.replace(b'{"o"', b'{"p": 0, "o"'), b""]
    (tmp_path / "a" / "0.json").write_bytes(b"\n".join(lines))
    ddl = "id BIGINT, name STRING, small TINYINT, f DOUBLE, g FLOAT, d DECIMAL(10,2)"
    upstream = archived(
        topic,
        tmp_path / "a",
        archive={"format": "json", "partition": "p", "offset": "o"},
        value={"format": "rows", "schema": ddl},
    )
    with pytest.raises(Exception, match=r"0\.json") as caught:
        scanned(upstream, spark, history(upstream))
    found = caught.value if isinstance(caught.value, BadData) else upstream.failure(caught.value)
    assert isinstance(found, BadData)
    assert told in found.message


@pytest.mark.parametrize("line", [b'{"p": 1, "o": 1, "id": "x"}', b'{"o": 1', b"\xff"], ids=repr)
def test_a_broken_line_among_several_partitions_is_named(
    tmp_path: Path, spark: "SparkSession", line: bytes
) -> None:
    """Whatever the optimizer makes of ranges that share an end, and wherever the line would be."""
    whole = [b'{"p": %d, "o": 0, "id": 1}' % partition for partition in range(3)]
    where, ranges = place(str(tmp_path), TABLE), [Range(0, partition, 0, 1) for partition in range(3)]
    options = ArchiveOptions(path=str(tmp_path), format="json", partition="p", offset="o")
    places, columns = {"p": field("p", "long"), "o": field("o", "long")}, {"id": field("id", "long")}

    def read(*lines: bytes) -> int:
        (tmp_path / "0.json").write_bytes(b"\n".join(lines))
        files = list(Listing(where).files().values())
        rows = frames.of_files(spark, where, files, options, places, columns)
        return len(frames.lines_of_ranges(rows, ranges).collect())

    assert read(*whole, b'{"p": 5, "o": 0}', b"") == 3
    with pytest.raises(Exception, match=r"0\.json") as caught:
        read(*whole, line)
    assert isinstance(from_spark(caught.value), BadData)


def test_lines_of_an_archive_that_are_fine(topic: Topic, tmp_path: Path, spark: "SparkSession") -> None:
    """Line ends of Windows, blank lines, a line longer than a parser's block, no end of the last line."""
    (tmp_path / "a").mkdir()
    name = "x" * 3_000_000
    lines = [
        b'{"p":0,"o":0,"id":1,"name":"a"}',
        b"",
        b'{"p":0,"o":1,"name":"%s"}' % name.encode(),
        b'{"p":0,"o":2}',
    ]
    (tmp_path / "a" / "0.json").write_bytes(b"\r\n".join(lines))
    upstream = archived(
        topic,
        tmp_path / "a",
        archive={"format": "json", "partition": "p", "offset": "o"},
        value={"format": "rows", "schema": "id BIGINT, name STRING"},
    )
    found = scanned(upstream, spark, history(upstream)[:1])
    assert [(r["kafka_offset"], r["id"], r["name"]) for r in found] == [
        (0, 1, "a"),
        (1, None, name),
        (2, None, None),
    ]


def test_the_layout_of_kafka_connects_sinks_is_named(topic: Topic, tmp_path: Path) -> None:
    store(tmp_path / "a", "x.parquet", rows(0, range(3)))
    (tmp_path / "a" / "partition=0").mkdir()
    (tmp_path / "a" / "x.parquet").rename(tmp_path / "a" / "partition=0" / "orders+0+0000000000.parquet")
    with pytest.raises(BadData, match="as Kafka Connect's sinks write them") as caught:
        archived(topic, tmp_path / "a").pin()
    assert "InsertField" in str(caught.value.hint)


def test_an_archive_of_raw_records_is_decoded_as_the_log_is(
    topic: Topic, tmp_path: Path, spark: "SparkSession"
) -> None:
    raw = pa.schema([("partition", pa.int64()), ("offset", pa.int64()), ("k", pa.binary()), ("v", pa.string())])
    stored = [
        {"partition": 0, "offset": o, "k": b"%d" % o, "v": json.dumps({"id": o, "name": "x"})} for o in range(5)
    ]
    stored[3]["v"] = None
    stored[4]["v"] = "broken"
    store(tmp_path / "a", "0.parquet", stored, schema=raw)
    told = {"partition": "partition", "offset": "offset", "value": "v", "key": "k"}
    value = {"format": "rows", "schema": "id BIGINT, name STRING"}
    upstream = archived(topic, tmp_path / "a", archive=told, value=value)
    found = scanned(upstream, spark, history(upstream)[:1])
    assert [(r["id"], r["_backfill_error"] is None) for r in found] == [
        (0, True),
        (1, True),
        (2, True),
        (None, True),
        (None, False),
    ]
    keyed = archived(topic, tmp_path / "a", archive=told, value=value, key=["id"])
    pin = keyed.pin()
    frame = keyed.changes(spark, TABLE, pin.position, Position.of({"0": 7}), pin.schema[TABLE])
    changes = frame.orderBy("_backfill_seq").select("_backfill_op", "id", "_backfill_error").toArrow().to_pylist()
    assert [(c["_backfill_op"], c["id"]) for c in changes] == [
        *(("U", 0), ("U", 1), ("U", 2), ("D", 3)),
        *(("U", None), ("U", 5), ("U", 6)),
    ]


def test_columns_that_come_later_in_the_archive_are_null_before(
    topic: Topic, tmp_path: Path, spark: "SparkSession"
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(3)), schema=SCHEMA.remove(4))
    store(tmp_path / "a", "1.parquet", rows(0, range(3, 6)))
    upstream = archived(topic, tmp_path / "a")
    found = scanned(upstream, spark, history(upstream)[:1])
    assert [r["name"] for r in found] == [None, None, None, "file 3", "file 4", "file 5"]


def test_case_25_an_archive_whose_type_would_lose_values_is_refused(topic: Topic, tmp_path: Path) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(3)))
    with pytest.raises(BadData, match=r"column 'id' is bigint, but upstream\.value\.schema says int"):
        archived(topic, tmp_path / "a", value={"format": "rows", "schema": "id INT, name STRING"}).pin()


@pytest.mark.parametrize(("name", "option"), [("kafka_partition", "partition"), ("kafka_offset", "offset")])
def test_an_archive_without_its_columns_is_told(topic: Topic, tmp_path: Path, name: str, option: str) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(3)), schema=SCHEMA.remove(SCHEMA.names.index(name)))
    with pytest.raises(BadData, match=f"no column '{name}'") as caught:
        archived(topic, tmp_path / "a").pin()
    assert f"upstream.archive.{option}" in str(caught.value.hint)


def test_an_empty_archive_is_told(topic: Topic, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match="no parquet files"):
        archived(topic, tmp_path / "a").pin()


def test_the_archive_of_another_topic_is_told(topic: Topic, tmp_path: Path) -> None:
    store(tmp_path / "a", "0.parquet", rows(7, range(3)))
    with pytest.raises(Fatal, match="archive of another topic"):
        archived(topic, tmp_path / "a").pin()
