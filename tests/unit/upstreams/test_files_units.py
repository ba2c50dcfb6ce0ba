"""What a number counts is part of its column's meaning: a change file where that changes is refused."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from files_builders import at, land, opened, parquet, pending, restored
from hint_typed import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_cli.errors import BadData

DEBEZIUM = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."
NUMBERS = pa.schema([("id", pa.int64()), ("n", pa.int64())])
KINDS: dict[str, tuple[str, str | None]] = {
    "int32 ms": ("int32", DEBEZIUM + "Time"),
    "int32 ms, Connect": ("int32", CONNECT + "Time"),
    "us": ("int64", DEBEZIUM + "MicroTime"),
    "ns": ("int64", DEBEZIUM + "NanoTime"),
    "duration us": ("int64", DEBEZIUM + "MicroDuration"),
    "duration ns": ("int64", DEBEZIUM + "NanoDuration"),
    "year": ("int32", DEBEZIUM + "Year"),
    "plain": ("int64", None),
    "plain int16": ("int16", None),
}
"""Each of a BIGINT column."""
UNIT = {"int32 ms, Connect": "int32 ms", "year": "plain", "plain int16": "plain"}
"""Those that count the same."""


def line(kind: str, key: int, value: int | None = 5) -> str:
    made, name = KINDS[kind]
    n: dict[str, Any] = {"field": "n", "type": made, **({"name": name} if name else {})}
    fields = [{"field": "id", "type": "int64"}, n]
    payload = {"op": "c", "after": {"id": key, "n": value}, "source": {"ts_ms": key}}
    return json.dumps({"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": payload})


def read(upstream: Any, pin: Any) -> list[int]:
    latest = upstream.observe(pin.position, False).latest
    tasks = upstream.change_batches("t", pin.position, latest, pin.schema["t"], 1)
    return [
        row["n"] for part in tasks.parts for one in part for b in tasks.make(one.what) for row in b.to_pylist()
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(kinds=st.lists(st.sampled_from(list(KINDS)), min_size=2, max_size=4), resume=st.integers(1, 3))
def test_a_file_whose_numbers_count_something_else_is_refused_once_it_is_next(
    tmp_path: Path, kinds: list[str], resume: int
) -> None:
    folder = tmp_path / "changes"
    for file in folder.glob("*"):
        file.unlink()
    parquet(tmp_path / "snapshot" / "a.parquet", schema=NUMBERS)
    upstream = opened(tmp_path)
    pin = upstream.pin()
    for number, kind in enumerate(kinds):
        land(folder, f"{number}.json", line(kind, number))
    units = [UNIT.get(kind, kind) for kind in kinds]
    same = next((index for index, unit in enumerate(units) if unit != units[0]), len(units))
    names = [f"{number}.json" for number in range(len(kinds))]
    assert pending(upstream, pin.position) == names[:same]
    assert read(upstream, pin) == [5] * same
    after = min(resume, same)
    position = at(names[after - 1])
    with suppress(BadData):
        pending(upstream, position)
    later = restored(tmp_path, pin, upstream.log.remembered(position))
    (folder / names[0]).unlink()  # applied files may go: what they said is remembered
    for one in (upstream, later):
        if after < same or same == len(names):
            assert pending(one, position) == names[after:same]
            continue
        with pytest.raises(BadData, match="the numbers of column 'n' were ") as refused:
            pending(one, position)
        with typed(refused.value) as hint:
            hint.says("it may be replaced as long as it is not applied")
            land(folder, names[after], line(kinds[0], after))
            assert pending(one, position)[0] == names[after]
            land(folder, names[after], line(kinds[after], after))


def test_a_line_between_others_that_counts_something_else_is_refused(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet", schema=NUMBERS)
    lines = [line("int32 ms", 1), line("us", 2, 5_000), line("int32 ms", 3)]
    land(tmp_path / "changes", "1.json", *lines)
    upstream = opened(tmp_path)
    with pytest.raises(BadData, match=r"line 2 \(of id 2\): column 'n': its schema block says int64 .*MicroTime"):
        read(upstream, upstream.pin())


def test_partitions_of_a_topic_share_what_a_column_counts(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet", schema=NUMBERS)
    upstream = opened(tmp_path)
    for partition, kind in enumerate(("int32 ms", "us")):
        folder = tmp_path / "changes" / f"partition={partition}"
        land(folder, f"t+{partition}+0000000000.json", line(kind, partition))
    pin = upstream.pin()
    (first,) = upstream.observe(pin.position, False).pending
    assert dict(first.cursors).keys() == {"t/partition=0"}


def avro(path: Path, name: str) -> None:
    n = {"name": "n", "type": {"type": "long", "connect.name": name} if name else "long"}
    schema = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, n]}
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as into:
        fastavro.writer(into, fastavro.parse_schema(schema), [{"id": 1, "n": 5}])


@pytest.mark.parametrize("names", [("", DEBEZIUM + "MicroTime"), (DEBEZIUM + "MicroTime", "")])
def test_plain_numbers_of_avro_files_are_not_kept_beside_those_that_count_something(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    for file, name in zip("ab", names, strict=True):
        avro(tmp_path / "snapshot" / f"{file}.avro", name)
    with pytest.raises(BadData, match=r"b\.avro: the numbers of column 'n' were "):
        opened(tmp_path, format="avro").pin()


def test_numbers_count_the_same_in_all_files_of_a_snapshot_and_in_the_changes_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    avro(folder / "a.avro", DEBEZIUM + "MicroTime")
    avro(folder / "b.avro", DEBEZIUM + "NanoTime")
    match = r"b\.avro: the numbers of column 'n' were time in us, and are "
    with pytest.raises(BadData, match=match) as refused:
        opened(tmp_path, format="avro").pin()
    with typed(refused.value) as hint:
        hint.says("numbers of a column must count the same in all files")
        avro(folder / "b.avro", DEBEZIUM + "MicroTime")
        upstream = opened(tmp_path, format="avro")
        pin = upstream.pin()
    for name, kind in (("1.json", "us"), ("2.json", "ns")):
        land(tmp_path / "changes", name, line(kind, 1))
    assert pending(upstream, pin.position) == ["1.json"]
    (tmp_path / "changes" / "1.json").unlink()
    again = opened(tmp_path, format="avro")
    again.restore(pin)
    with pytest.raises(BadData, match="the numbers of column 'n' were time in us, and are "):
        pending(again, pin.position)
