"""History from an archive of the topic: exact hand-over, gaps and holes named, duplicates delivered once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed
from kafka_archive import SCHEMA, archived, rows, store, topic
from kafka_topics import TABLE, Topic, history, offsets, scanned

from backfill_cli.errors import Fatal, HistoryGone
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["topic"]


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
    assert [r["_backfill_read"] for r in found] == [*[0] * 12, *[2] * 8, *[1] * 5]


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
    ) as refused:
        archived(topic, tmp_path / "a").pin()
    with typed(refused.value) as hint:
        hint.says("complete the archive")
        store(tmp_path / "a", "1.parquet", rows(0, [3, 4]))
        archived(topic, tmp_path / "a").pin()


def test_the_archive_of_another_topic_is_named(topic: Topic, tmp_path: Path) -> None:
    store(tmp_path / "a", "0.parquet", rows(2, [0, 1]))
    store(tmp_path / "b", "0.parquet", rows(1, [0, 1]))
    with pytest.raises(Fatal, match=r"holds partition 2, but topic .* has only 2") as refused:
        archived(topic, tmp_path / "a").pin()
    with typed(refused.value) as hint:
        hint.says("correct upstream.archive.path")
        archived(topic, tmp_path / "b").pin()


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
