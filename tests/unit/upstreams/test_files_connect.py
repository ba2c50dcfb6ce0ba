"""Change files as Kafka Connect lays them out: partitions of a topic, in folders of their own or of a time."""

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from files_builders import event, land, opened, parquet, pending, restored, root
from hint_typed import typed
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.errors import BackfillError, BadData, ConfigError, Fatal, HistoryGone
from backfill_cli.formats.listing import Place
from backfill_cli.model.position import START, Position
from backfill_cli.model.schema import columns_of, names_of
from backfill_cli.upstreams.files.changes.landing import Landing
from backfill_cli.upstreams.files.reading import lines

__all__ = ["root"]


def name(partition: int, offset: int, ending: str = ".json") -> str:
    return f"orders+{partition}+{offset:010d}{ending}"


def put(root: Path, partition: int, offset: int, *lines: str, folder: str | None = None) -> Path:
    """A file of a partition, complete at once."""
    into = root / "changes" / (f"partition={partition}" if folder is None else folder)
    return land(into, name(partition, offset), *(lines or (event(1),)))


def changed(upstream: Any, after: Position, up_to: Position, schema: str) -> list[dict[str, Any]]:
    """The changes of a window as workers read them, in this process."""
    tasks = upstream.change_batches("t", after, up_to, schema, 2)
    return [row for part in tasks.parts for one in part for b in tasks.make(one.what) for row in b.to_pylist()]


def logs(position: Position) -> dict[str, Any]:
    return dict(position)


def test_each_partition_is_a_log_in_the_order_of_its_offsets(root: Path) -> None:
    put(root, 0, 100, event(1, ms=3))
    put(root, 0, 0, event(1, ms=1))
    put(root, 1, 9_999_999_999, event(2, ms=2))
    put(root, 1, 10_000_000_000, event(2, ms=4))
    upstream = opened(root)
    pin = upstream.pin()
    view = upstream.observe(pin.position, False)
    assert [epoch.cursors for epoch in view.pending] == [
        (("t/partition=0", name(0, 0)),),
        (("t/partition=1", name(1, 9_999_999_999)),),
        (("t/partition=0", name(0, 100)),),
        (("t/partition=1", name(1, 10_000_000_000)),),
    ]
    assert pin.position == START
    assert view.latest == pin.complete_at
    said, of_names = upstream.extras.warnings()
    assert "in the order of the numbers" in of_names
    assert "2 partitions of a topic" in said
    assert "without an order between them" in said


def test_files_in_folders_of_a_time_are_in_the_order_of_their_offsets(root: Path) -> None:
    late, early = "year=2026/month=01/day=01/hour=01", "year=2025/month=12/day=31/hour=23"
    put(root, 0, 100, event(1, ms=1), folder=late)
    put(root, 0, 200, event(1, ms=2), folder=early)
    put(root, 0, 300, event(1, ms=3), folder=late)
    upstream = opened(root)
    pin = upstream.pin()
    assert pending(upstream, START) == [name(0, 100), name(0, 200), name(0, 300)]
    found = changed(upstream, START, upstream.observe(START, False).latest, pin.schema["t"])
    assert [row["_backfill_ms"] for row in found] == [1, 2, 3]


@pytest.mark.parametrize(
    "folder", ["2026/01/31/{:02d}", "2026/1/31/{}", "20260131{:02d}", "dt=2026-01-31/hr={}", "orders/y=20{:02d}"]
)
def test_folders_by_time_may_be_written_in_other_ways(root: Path, folder: str) -> None:
    for at, (partition, hour) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        put(root, partition, at, event(1, ms=at), folder=folder.format(hour))
    upstream = opened(root)
    pin = upstream.pin()
    first = upstream.observe(START, False).latest
    assert logs(first) == {"t/partition=0": name(0, 2), "t/partition=1": name(1, 3)}
    put(root, 0, 4, folder=folder.format(1))
    assert pending(upstream, first) == [name(0, 4)], "of an hour in which a file of partition 1 is applied"
    assert len(changed(upstream, START, first, pin.schema["t"])) == 4


@pytest.mark.parametrize(
    "folder",
    ["country=DE", "status=1", "created=2026-01-31", "hour=first", "DE", "42", "hour=1/DE", "partition=x"],
)
def test_folders_by_the_value_of_a_field_have_no_order_and_are_refused(root: Path, folder: str) -> None:
    """Offsets 0, 1 and 4 are in one folder, 3 in another, and 2 is a tombstone that was left out."""
    put(root, 0, 0, event(1), event(9), event(1, ms=4), folder=folder)
    put(root, 0, 3, event(1, ms=3), folder="country=FR")
    upstream = opened(root)
    with pytest.raises(BadData, match=r"is by neither partition nor time") as caught:
        upstream.pin()
    with typed(caught.value) as hint:
        hint.says("write the topic again with its DefaultPartitioner")
        hint.says("set upstream.changes.path to the topic's own folder")
        for file in [one for one in (root / "changes").rglob("*") if one.is_file()]:
            file.unlink()
        put(root, 0, 0, event(1), event(9), event(1, ms=3), event(1, ms=4))
        assert pending(_pinned(opened(root)), START) == [name(0, 0)]


def test_a_job_that_read_such_files_as_one_log_stops(root: Path) -> None:
    """As an earlier version did where the folders' names have no `=`: partitions would be read a second time."""
    upstream = opened(root)
    pin = upstream.pin()
    mine = put(root, 0, 0, folder="2026/01/31/00")
    position = Position.of({"t": f"2026/01/31/00/{name(0, 0)}"})
    for process in (upstream, restored(root, pin, "{}")):
        with pytest.raises(Fatal, match="of one log with all files in the order of their paths") as caught:
            process.observe(position, False)
    with typed(caught.value) as hint:
        hint.says("continue with that version, or ")
        mine.unlink()
        assert pending(restored(root, pin, "{}"), position) == []


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_files_that_hold_offsets_in_turn_have_no_order(root: Path, ending: str) -> None:
    """By the records' own times: offsets 100 and 102 are of one hour, 101 of the next."""
    lines = event(1), "null", event(1)
    one = put(root, 0, 100, *lines[:2], folder="hour=01")
    put(root, 0, 102, folder="hour=02")
    upstream = opened(root)
    upstream.pin()
    assert pending(upstream, START) == [name(0, 100), name(0, 102)]
    one.unlink()
    put(root, 0, 200, *lines, folder="hour=01")
    put(root, 0, 202, folder="hour=02")
    if ending.endswith("gz"):
        held = root / "changes" / "hour=01" / name(0, 200)
        held.with_suffix(".json.gz").write_bytes(gzip.compress(held.read_bytes()))
        held.unlink()
    again = opened(root)
    again.pin()
    for position in (START, Position.of({"t/partition=0": name(0, 200, f".{ending}")})):
        with pytest.raises(BadData, match=r"3 records from offset 200 on, .* come after offset 202") as caught:
            again.observe(position, False)
    with typed(caught.value) as hint:
        hint.says("or without folders by time")
        for file in list((root / "changes").glob("hour=*/*")):
            file.unlink()
        put(root, 0, 200, *lines)
        put(root, 0, 203)
        assert len(pending(_pinned(opened(root)), START)) == 2


def test_an_applied_file_that_was_removed_had_offsets_of_the_next_one_too(root: Path) -> None:
    one = put(root, 0, 100, event(1), event(2), event(3), folder="hour=01")
    upstream = opened(root)
    pin = upstream.pin()
    position = upstream.observe(START, False).latest
    pending(upstream, position)
    memory = upstream.remembered(position)
    one.unlink()
    fits = put(root, 0, 103, folder="hour=02")
    for process in (upstream, restored(root, pin, memory)):
        assert pending(process, position) == [name(0, 103)]
    fits.unlink()
    put(root, 0, 101, folder="hour=02")
    with pytest.raises(BadData, match="3 records from offset 100 on, so some of them come after offset 101"):
        restored(root, pin, memory).observe(position, False)


def test_a_last_offset_in_a_name_needs_no_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the sink for HDFS writes it; of an applied file that was removed, too."""
    monkeypatch.setattr(lines, "count", None)
    one = put(root, 0, 100, folder="hour=01")
    one.rename(one.with_name("orders+0+0000000100+0000000102.json"))
    put(root, 0, 102, folder="hour=02").rename(
        root / "changes" / "hour=02" / "orders+0+0000000102+0000000109.json"
    )
    upstream = opened(root)
    pin = upstream.pin()
    applied = Position.of({"t/partition=0": "orders+0+0000000100+0000000102.json"})
    with pytest.raises(BadData, match="has offset 102, so some of them come after offset 102"):
        upstream.observe(START, False)
    one.with_name("orders+0+0000000100+0000000102.json").unlink()
    with pytest.raises(BadData, match="has offset 102, so some of them come after offset 102"):
        restored(root, pin, "{}").observe(applied, False)


def test_records_are_counted_once_and_only_where_the_next_file_may_be_elsewhere(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, real = list[str](), lines.count
    monkeypatch.setattr(
        lines, "count", lambda where, file, what: counted.append(file.name) or real(where, file, what)
    )
    for at in range(6):
        put(root, 0, at, folder=f"hour={at // 3}")
        put(root, 1, at)
    upstream = opened(root)
    pin = upstream.pin()
    for _ in range(2):
        position = upstream.observe(START, False).latest
    assert sorted(counted) == [name(0, 2), name(0, 5)]
    assert pending(upstream, position) == []
    again = restored(root, pin, upstream.remembered(position))
    put(root, 0, 6, folder="hour=2")
    assert pending(again, position) == [name(0, 6)]
    assert sorted(counted) == [name(0, 2), name(0, 5), name(0, 6)]


def test_a_file_that_lands_behind_the_listing_is_seen_with_those_that_follow_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, 0, 0, folder="hour=07")
    upstream = opened(root)
    upstream.pin()
    position = upstream.observe(START, False).latest
    real, waiting = os.listdir, [True]

    def listdir(path: str) -> list[str]:
        if str(path).rstrip("/").endswith("changes") and waiting:
            waiting.clear()
            put(root, 0, 120, folder="hour=07")
            put(root, 0, 180, folder="hour=08")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert pending(upstream, position) == [name(0, 120), name(0, 180)]


def test_a_late_file_is_told_though_a_later_listing_failed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = opened(root)
    upstream.pin()
    for at in (0, 2):
        land(root / "changes", f"{at}.json", event(1))
    position = upstream.observe(START, False).latest
    land(root / "changes", "1.json", event(1))
    real, calls = os.listdir, list[str]()

    def listdir(path: str) -> list[str]:
        calls.append(path)
        if len(calls) == 2:
            raise PermissionError(13, "no", path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(BackfillError):
        upstream.observe(position, False)
    with pytest.raises(Fatal, match=r"1\.json came late"):
        upstream.observe(position, False)


def test_a_partition_that_comes_later_is_followed_if_it_is_below_the_highest(root: Path) -> None:
    put(root, 2, 0)
    upstream = opened(root)
    pin = upstream.pin()
    put(root, 0, 7, event(3))
    assert pending(upstream, START) == [name(0, 7), name(2, 0)]
    position = upstream.observe(START, False).latest
    memory = upstream.remembered(position)
    put(root, 0, 8)
    assert pending(restored(root, pin, memory), position) == [name(0, 8)]


def test_a_partition_that_was_added_to_the_topic_stops_the_job_unless_the_config_says_what_it_means(
    root: Path,
) -> None:
    put(root, 0, 0)
    upstream = opened(root)
    pin = upstream.pin()
    memory = upstream.remembered(upstream.observe(START, False).latest)
    put(root, 1, 0)
    for process in (upstream, restored(root, pin, memory), restored(root, pin, upstream.remembered(START))):
        with pytest.raises(Fatal, match="new partition 1 of the topic: the highest was 0") as caught:
            process.observe(START, False)
    with typed(caught.value) as hint:
        (value,) = hint.settings().values()
        again = restored(root, pin, memory, accept_growth=value)
        assert pending(again, START) == [name(0, 0), name(1, 0)]


def test_a_column_that_one_partition_shows_is_the_tables_and_others_have_it_later(root: Path) -> None:
    def wide(key: int, ms: int, **more: Any) -> str:
        line = json.loads(event(key, ms=ms))
        line["after"] |= more
        return json.dumps(line)

    put(root, 0, 0, event(1, ms=1))
    put(root, 0, 1, wide(1, 2, a=1))
    put(root, 1, 0, event(2, ms=3))
    put(root, 1, 1, wide(2, 4, a=2, b=3))
    put(root, 0, 2, wide(1, 5, a=4))
    put(root, 0, 3, wide(1, 6, a=5, b=6))
    upstream = opened(root, changes={"columns": "a INT, b INT"})
    pin = upstream.pin()
    view = upstream.observe(START, False)
    told = [names_of(dict(epoch.schema)["t"]) if epoch.schema else None for epoch in view.pending]
    assert told == [None, ["id", "name", "a"], None, ["id", "name", "a", "b"], None, None]
    schema = dict(view.pending[3].schema)["t"]
    found = changed(upstream, START, view.latest, schema)
    assert sorted((r["_backfill_ms"], r["a"], r["b"]) for r in found if r["_backfill_ms"] not in (1, 3)) == [
        (2, 1, None),
        (4, 2, 3),
        (5, 4, None),
        (6, 5, 6),
    ]
    # what each partition showed is known to a later process
    middle = Position.of({"t/partition=0": name(0, 1), "t/partition=1": name(1, 1)})
    process = restored(root, pin, upstream.remembered(middle), columns="a INT, b INT")
    assert [epoch.schema for epoch in process.observe(middle, False).pending] == [(), ()]
    assert list(columns_of(schema)) == ["id", "name", "a", "b"]


def test_a_column_that_is_gone_from_a_partition_stops_the_job_once_it_is_next(root: Path) -> None:
    put(root, 0, 0, event(1, ms=1))
    put(root, 1, 0, json.dumps({"op": "c", "after": {"id": 2}, "source": {"ts_ms": 2}}))
    upstream = opened(root)
    upstream.pin()
    assert pending(upstream, START) == [name(0, 0)]
    with pytest.raises(BadData, match="column 'name' is gone"):
        upstream.observe(Position.of({"t/partition=0": name(0, 0)}), False)


def test_what_was_applied_of_a_partition_is_remembered(root: Path) -> None:
    for partition in (0, 1):
        for offset in (0, 10):
            put(root, partition, offset)
    upstream = opened(root)
    pin = upstream.pin()
    position = Position.of({"t/partition=0": name(0, 10), "t/partition=1": name(1, 0)})
    pending(upstream, position)
    memory = upstream.remembered(position)
    late = put(root, 0, 5)
    for process in (upstream, restored(root, pin, memory)):
        with pytest.raises(Fatal, match="came late") as caught:
            process.observe(position, False)
        assert "rename" not in str(caught.value.hint), "it would undo newer changes"
        assert "newer records of its partition are applied: " in str(caught.value.hint)
    late.unlink()
    waiting = root / "changes" / "partition=1" / name(1, 10)
    waiting.unlink()
    with pytest.raises(HistoryGone, match="gone and were not read yet"):
        restored(root, pin, memory).observe(position, False)
    put(root, 1, 10)
    applied = root / "changes" / "partition=0"
    for file in applied.iterdir():
        file.unlink()
    assert pending(restored(root, pin, memory), position) == [name(1, 10)]


def test_a_pending_file_that_is_gone_or_an_applied_one_that_grew_is_named(root: Path) -> None:
    put(root, 0, 0)
    put(root, 1, 0)
    upstream = opened(root)
    upstream.pin()
    position = Position.of({"t/partition=0": name(0, 0)})
    assert pending(upstream, position) == [name(1, 0)]
    with (root / "changes" / "partition=0" / name(0, 0)).open("a") as file:
        file.write(event(9) + "\n")
    with pytest.raises(Fatal, match="bytes after it was read"):
        upstream.observe(position, False)
    (root / "changes" / "partition=1" / name(1, 0)).unlink()
    with pytest.raises(HistoryGone, match=r"partition=1/orders\+1\+0000000000.json is gone"):
        upstream.observe(START, False)


FIRST = "partition=0/orders+0+0000000000.json"
TWO_HOURS = ("hour=01/orders+0+0000000000.json", "hour=02/orders+0+0000000000.json")
REFUSED: Mapping[str, tuple[tuple[str, ...], str, str, str]] = {
    "another topic": (
        (FIRST, "partition=1/people+1+0000000000.json"),
        "changes of topic 'people', in a folder that has files of topic 'orders'",
        "set upstream.changes.path to the folder of one topic",
        "partition=1",
    ),
    "one file twice": (
        TWO_HOURS,
        "the same partition and first offset",
        "remove the one with fewer records",
        TWO_HOURS[1],
    ),
    "one offset twice": (
        (TWO_HOURS[0], f"{TWO_HOURS[1]}.gz"),
        "begin with the same offset of the same partition",
        "remove the one with fewer records",
        f"{TWO_HOURS[1]}.gz",
    ),
    "two partitions": (
        ("partition=1/orders+0+0000000000.json", FIRST.replace("0.json", "1.json")),
        "its name says partition 0, its folder partition=1",
        "move it to the folder of its partition",
        "partition=1",
    ),
    "beside": ((FIRST, "a.json"), "a.json is beside folders of a topic's", "move it elsewhere", "a.json"),
    "another name": (
        ("partition=0/a.json", "partition=1/orders+1+0000000000.json"),
        "does not say topic, partition and offset",
        "set upstream.changes.path to one such folder",
        "partition=0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_whose_place_nobody_can_tell_are_refused(root: Path, case: str) -> None:
    files, said, way, remove = REFUSED[case]
    upstream = opened(root)
    upstream.pin()
    for file in files:
        folder, _, last = f"changes/{file}".rpartition("/")
        land(root / folder, last, event(1))
    for _ in range(2):
        with pytest.raises(BadData, match=said) as caught:
            upstream.observe(START, False)
    with typed(caught.value) as hint:
        hint.says(way)
        wrong = root / "changes" / remove
        for gone in [wrong] if wrong.is_file() else list(wrong.iterdir()):
            gone.unlink()
        assert len(pending(_pinned(opened(root)), START)) == 1


@pytest.mark.parametrize("kind", ["keys", "headers"])
@pytest.mark.parametrize("folder", ["partition=0", "."])
def test_keys_and_headers_that_connect_writes_beside_values_are_named(root: Path, kind: str, folder: str) -> None:
    put(root, 0, 0, folder=folder)
    land(root / "changes" / folder, name(0, 0, f".{kind}.json"), "{}")
    with pytest.raises(BadData, match=f"{kind} of records, which Kafka Connect wrote beside") as caught:
        opened(root).pin()
    with typed(caught.value) as hint:
        (pattern,) = hint.settings().values()
        last = str(pattern).rpartition("/")[2]
        place = root / "changes" / ("*" if "=" in folder else folder)
        again = opened(root, changes={"path": str(place / last)})
        again.pin()
        assert pending(again, START) == [name(0, 0)]


def test_envelopes_in_parquet_are_refused_by_name(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    parquet(root / "changes" / "partition=0" / name(0, 0, ".snappy.parquet"))
    with pytest.raises(BadData, match="are read from JSON or Avro files, not from Parquet") as caught:
        upstream.observe(START, False)
    with typed(caught.value) as hint:
        hint.says("let Kafka Connect write JsonFormat or AvroFormat")
        (root / "changes" / "partition=0" / name(0, 0, ".snappy.parquet")).unlink()
        put(root, 0, 0)
        assert pending(_pinned(opened(root)), START) == [name(0, 0)]


def test_empty_files_and_members_of_gzip_are_what_connect_writes(root: Path) -> None:
    put(root, 0, 0).write_text("")
    both = b"".join(gzip.compress(f"{event(key)}\n".encode()) for key in (1, 2))
    put(root, 0, 1).rename(root / "changes" / "partition=0" / name(0, 1, ".json.gz"))
    (root / "changes" / "partition=0" / name(0, 1, ".json.gz")).write_bytes(both)
    upstream = opened(root)
    pin = upstream.pin()
    found = changed(upstream, START, upstream.observe(START, False).latest, pin.schema["t"])
    assert [row["id"] for row in found] == [1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "dms", "file_format": "csv"}, "dms is not read from files of a topic's partitions"),
        ({"epoch": "source.lsn"}, "no order of epochs across a topic's partitions"),
        ({"consecutive": "names"}, "offsets in names do not increase by one from file to file"),
    ],
)
def test_what_partitions_do_not_have_is_refused(root: Path, options: dict[str, Any], said: str) -> None:
    upstream = opened(root, changes=options)
    upstream.pin()
    put(root, 0, 0)
    with pytest.raises(BadData, match=said) as caught:
        upstream.observe(START, False)
    with typed(caught.value) as hint:
        hint.says("set upstream.changes.path to the folder of one partition")


def test_no_file_of_a_partition_is_the_end_of_a_load(root: Path) -> None:
    put(root, 0, 0)
    for option in ("as_of", "complete_at"):
        with pytest.raises(ConfigError, match="is of one partition of a topic") as caught:
            opened(root, **{option: name(0, 0)}).pin()
        with typed(caught.value) as hint:
            hint.says(f"leave {option} out")
            assert pending(_pinned(opened(root)), START) == [name(0, 0)]


def _pinned(upstream: Any) -> Any:
    upstream.pin()
    return upstream


def test_a_truncate_in_a_partition_is_a_line_that_cannot_be_read(root: Path) -> None:
    put(root, 0, 0, event(1), json.dumps({"op": "t", "source": {"ts_ms": 1}}), event(2))
    upstream = opened(root)
    pin = upstream.pin()
    with pytest.raises(BadData, match="a truncate, which has no order") as caught:
        changed(upstream, START, upstream.observe(START, False).latest, pin.schema["t"])
    with typed(caught.value) as hint:
        hint.says("if the topic has only one partition, set upstream.changes.path to its folder")
        alone = opened(root, changes={"path": str(root / "changes" / "partition=0")})
        pin = alone.pin()
        found = changed(alone, START, alone.observe(START, False).latest, pin.schema["t"])
        assert [row["_backfill_op"] for row in found] == ["U", "T", "U"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_file_of_every_partition_is_applied_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Files land while epochs are applied, processes die, and a later one knows what the last one remembered."""
    root = tmp_path_factory.mktemp("connect")
    parquet(root / "snapshot" / "a.parquet")
    folder = data.draw(st.sampled_from([None, "hour={}", "2026/01/31/{:02d}", "dt=2026-01-{:02d}"]))
    partitions = data.draw(st.integers(1, 3))
    left = {
        p: sorted(data.draw(st.lists(st.integers(0, 10**11), unique=True, min_size=1, max_size=4)))
        for p in range(partitions)
    }
    expected = {p: list(offsets) for p, offsets in left.items()}

    def land_one() -> None:
        waiting = [p for p, offsets in left.items() if offsets]
        if waiting:
            p = data.draw(st.sampled_from(waiting))
            hour = None if folder is None else folder.format(data.draw(st.integers(0, 2)))
            offset = left[p].pop(0)
            put(root, p, offset, event(p, ms=data.draw(st.integers(0, 3)), v=offset), folder=hour)

    land_one()
    upstream = opened(root, changes={"accept_growth": True})
    pin = upstream.pin()
    at, memory = pin.position, ""
    applied: dict[int, list[int]] = {p: [] for p in range(partitions)}
    while any(left.values()) or upstream.observe(at, False).pending:
        step = data.draw(st.sampled_from(["apply", "land", "die"]))
        found = upstream.observe(at, False).pending
        if step == "die":
            upstream = opened(root, changes={"accept_growth": True})
            upstream.restore(pin)
            if memory:
                upstream.recall(memory)
        if step == "land" or not found:
            land_one()
        elif step == "apply":
            up_to = at
            for epoch in found[: data.draw(st.integers(1, len(found)))]:
                up_to = up_to.join(Position.of(dict(epoch.cursors)))
            tasks = upstream.change_batches("t", at, up_to, pin.schema["t"], 2)
            for read in [one.what[2].name for part in tasks.parts for one in part]:
                _, partition, offset = read.removesuffix(".json").split("+")
                applied[int(partition)].append(int(offset))
            memory, at = upstream.remembered(up_to), up_to
            upstream.acknowledge(at)
    assert applied == expected


def test_a_store_of_objects_lists_partitions_as_a_folder_does(tmp_path: Path) -> None:
    where = Place(pafs.LocalFileSystem(), str(tmp_path / "changes"), (), "s3://b", "s3://b", False)
    found = Landing(where)
    one = put(tmp_path, 0, 0, folder="hour=01")
    assert found.refresh() == ([], [])
    partition = found.partitions[0]
    assert [file.name for file in partition.refresh()[0]] == [name(0, 0)]
    put(tmp_path, 0, 10, folder="hour=02")
    one.write_text("longer than before, as the object was replaced")
    found.refresh()
    assert [file.path for file in partition.refresh()[0]] == [str(tmp_path / "changes" / "hour=02" / name(0, 10))]
    before = partition.files[name(0, 0)]
    assert partition.again(name(0, 0)) != before
    assert partition.names == [name(0, 0), name(0, 10)]
    one.unlink()
    found.refresh()
    assert [file.name for file in partition.refresh()[1]] == [name(0, 0)]
