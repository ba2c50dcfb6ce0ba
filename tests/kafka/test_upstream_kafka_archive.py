"""History from an archive of the topic: exact hand-over, gaps and holes named, duplicates delivered once."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker import Broker
from kafka_topics import TABLE, Topic, history, new_topic, offsets, scanned

from backfill_cli.contracts import Upstream
from backfill_cli.errors import BadData, Fatal, HistoryGone
from backfill_cli.formats.listing import Listing, place
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position
from backfill_cli.model.schema import field
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.kafka.archive import frames
from backfill_cli.upstreams.kafka.options import ArchiveOptions
from backfill_cli.upstreams.kafka.tasks import Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("ms", "UTC")),
        ("id", pa.int64()),
        ("name", pa.string()),
    ]
)


@pytest.fixture
def topic(broker: Broker) -> Topic:
    """Two partitions of 20 records each."""
    made = new_topic(broker, 2)
    for partition in (0, 1):
        made.write_json([{"id": i, "name": f"log {i}"} for i in range(20)], partition)
    return made


def rows(partition: int, offsets: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"kafka_partition": partition, "kafka_offset": o, "kafka_timestamp": o, "id": o, "name": f"file {o}"}
        for o in offsets
    ]


def store(folder: Path, name: str, *parts: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist([r for part in parts for r in part], schema), folder / name, row_group_size=4
    )


def archived(topic: Topic, folder: Path, **options: Any) -> Upstream:
    archive = {"path": str(folder), **options.pop("archive", {})}
    options.setdefault("value", {"format": "json"})
    return topic.open(archive=archive, **options)


def test_history_comes_from_the_archive_and_goes_on_in_the_log(
    topic: Topic, tmp_path: Path, spark: "SparkSession"
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(7)), rows(1, range(5)))
    store(tmp_path / "a", "1.parquet", rows(0, range(7, 12)))
    for partition in (0, 1):
        topic.delete_before(5, partition)
    upstream = archived(topic, tmp_path / "a")
    pin = upstream.pin()
    assert [(s.id, s.first, s.rows) for s in pin.splits] == [("0", 0, 12), ("1", 0, 5)]
    assert [f["name"] for f in json.loads(pin.schema[TABLE])["fields"]] == [*SCHEMA.names]
    view = upstream.observe(START, True)
    assert view.archived == Position.of({"0": 12, "1": 5})
    assert view.oldest == Position.of({"0": 5, "1": 5})
    found = scanned(upstream, spark, [*history(upstream), SnapshotRead(TABLE, "0", 12, 20)])
    assert offsets(found, 0) == list(range(20))
    assert offsets(found, 1) == list(range(5))
    assert [r["name"] for r in found if r["kafka_partition"] == 0] == [
        *(f"file {o}" for o in range(12)),
        *(f"log {o}" for o in range(12, 20)),
    ]
    assert [r["_read"] for r in found] == [*[0] * 12, *[2] * 8, *[1] * 5]


def test_a_range_over_the_archives_end_is_read_from_both(
    topic: Topic, tmp_path: Path, spark: "SparkSession"
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(10)))
    upstream = archived(topic, tmp_path / "a")
    upstream.pin()
    found = scanned(upstream, spark, [SnapshotRead(TABLE, "0", 8, 13)])
    assert [r["name"] for r in found] == ["file 8", "file 9", "log 10", "log 11", "log 12"]


def test_a_restored_upstream_reads_on_without_looking_into_the_files_again(
    topic: Topic, tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(10)))
    pin = archived(topic, tmp_path / "a").pin()
    monkeypatch.setattr("backfill_cli.upstreams.kafka.archive.index.pieces", lambda *_: pytest.fail("looked"))
    later = archived(topic, tmp_path / "a")
    later.restore(pin)
    assert later.observe(START, True).archived == Position.of({"0": 10})
    assert offsets(scanned(later, spark, [SnapshotRead(TABLE, "0", 3, 6)])) == [3, 4, 5]


def test_records_that_are_in_two_files_are_delivered_once(
    topic: Topic, tmp_path: Path, spark: "SparkSession"
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(8)))
    store(tmp_path / "a", "1.parquet", rows(0, range(4, 12)), rows(0, [11]))
    upstream = archived(topic, tmp_path / "a")
    assert offsets(scanned(upstream, spark, history(upstream))) == list(range(12))


def test_case_42_a_gap_inside_the_archive_is_read_from_the_log(
    topic: Topic, tmp_path: Path, spark: "SparkSession"
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, [0, 1, 2, 5, 6]))
    store(tmp_path / "a", "1.parquet", rows(0, range(9, 12)))
    upstream = archived(topic, tmp_path / "a")
    found = scanned(upstream, spark, history(upstream)[:1])
    assert offsets(found) == list(range(12))
    assert [r["kafka_offset"] for r in found if r["name"].startswith("log")] == [3, 4, 7, 8]


def test_case_42_a_gap_that_the_log_no_longer_has_is_named(topic: Topic, tmp_path: Path) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, [0, 1, 2, 5, 6, 7]))
    topic.delete_before(4)
    with pytest.raises(
        HistoryGone, match="partition 0: the archive has no offsets 3 to 4, and the log begins at 4"
    ):
        archived(topic, tmp_path / "a").pin()


@pytest.mark.parametrize("declared", ["compacted", "transactional"])
def test_case_28_a_gap_in_the_archive_of_a_topic_that_has_gaps_is_no_loss(
    topic: Topic, tmp_path: Path, spark: "SparkSession", declared: str
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, [0, 1, 2, 5, 6, 7]))
    topic.delete_before(8)
    upstream = archived(topic, tmp_path / "a", **{declared: True})
    assert offsets(scanned(upstream, spark, history(upstream)[:1])) == [0, 1, 2, 5, 6, 7]


def test_a_file_that_comes_later_fills_what_the_log_has_lost_since(
    topic: Topic, tmp_path: Path, spark: "SparkSession"
) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(5)))
    upstream = archived(topic, tmp_path / "a")
    upstream.pin()
    store(tmp_path / "a", "1.parquet", rows(0, range(5, 15)))
    topic.delete_before(12)
    assert upstream.observe(START, True).archived == Position.of({"0": 15})
    assert offsets(scanned(upstream, spark, [SnapshotRead(TABLE, "0", 0, 20)])) == list(range(20))


def test_case_42_a_pinned_file_that_vanishes_or_changes_is_named(topic: Topic, tmp_path: Path) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(5)))
    upstream = archived(topic, tmp_path / "a")
    upstream.pin()
    (tmp_path / "a" / "0.parquet").rename(tmp_path / "away")
    with pytest.raises(Fatal, match=r"0\.parquet is gone"):
        upstream.observe(START, True)
    upstream.observe(START, False)


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
        value={"format": "json", "schema": "id BIGINT, name STRING"},
    )
    found = scanned(upstream, spark, [*history(upstream), SnapshotRead(TABLE, "0", 6, 8)])
    assert offsets(found, 0) == list(range(8))
    assert [r["name"] for r in found][5:7] == ["file 5", "log 6"]
    assert found[0]["kafka_timestamp"].year == 2023


LINES = [
    (b'{"o": 1, "id": 2} {"o": 2, "id": 3}', "not one whole JSON object"),
    (b'{"o": 1, "small": 200}', "column 'small': not exactly a tinyint"),
    (b'{"o": 1, "f": 1e400}', ""),
    (b'{"o": 1, "f": 1.7976931348623159e308}', "column 'f': not exactly a double"),
    (b'{"o": 1, "g": 1e39}', "column 'g': not exactly a float"),
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
        value={"format": "json", "schema": ddl},
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
        value={"format": "json", "schema": "id BIGINT, name STRING"},
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
    assert "InsertField" in caught.value.hint


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
    value = {"format": "json", "schema": "id BIGINT, name STRING"}
    upstream = archived(topic, tmp_path / "a", archive=told, value=value)
    found = scanned(upstream, spark, history(upstream)[:1])
    assert [(r["id"], r["_error"] is None) for r in found] == [
        (0, True),
        (1, True),
        (2, True),
        (None, True),
        (None, False),
    ]
    keyed = archived(topic, tmp_path / "a", archive=told, value=value, key=["id"])
    pin = keyed.pin()
    frame = keyed.changes(spark, TABLE, pin.position, Position.of({"0": 7}), pin.schema[TABLE])
    changes = frame.orderBy("_seq").select("_op", "id", "_error").toArrow().to_pylist()
    assert [(c["_op"], c["id"]) for c in changes] == [
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
        archived(topic, tmp_path / "a", value={"format": "json", "schema": "id INT, name STRING"}).pin()


@pytest.mark.parametrize(("name", "option"), [("kafka_partition", "partition"), ("kafka_offset", "offset")])
def test_an_archive_without_its_columns_is_told(topic: Topic, tmp_path: Path, name: str, option: str) -> None:
    store(tmp_path / "a", "0.parquet", rows(0, range(3)), schema=SCHEMA.remove(SCHEMA.names.index(name)))
    with pytest.raises(BadData, match=f"no column '{name}'") as caught:
        archived(topic, tmp_path / "a").pin()
    assert f"upstream.archive.{option}" in caught.value.hint


def test_an_empty_archive_is_told(topic: Topic, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(Fatal, match="no parquet files"):
        archived(topic, tmp_path / "a").pin()


def test_the_archive_of_another_topic_is_told(topic: Topic, tmp_path: Path) -> None:
    store(tmp_path / "a", "0.parquet", rows(7, range(3)))
    with pytest.raises(Fatal, match="archive of another topic"):
        archived(topic, tmp_path / "a").pin()
