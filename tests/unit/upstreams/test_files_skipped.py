"""Lines of Debezium's change files that change no row are counted, by kind, each once."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest
from files_builders import event, land, opened, root
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_cli.formats.skip_counts import skipped_in, told_in
from backfill_cli.upstreams.files.reading import lines

__all__ = ["root"]

NAMED = {"db": "shop", "schema": "public", "table": "t"}
OTHER = {"db": "shop", "schema": "public", "table": "others"}
KINDS: Mapping[str, Any] = {
    "heartbeats": {"ts_ms": 1},
    "transaction_marks": {"status": "BEGIN", "id": "5", "event_count": None, "data_collections": None},
    "schema_changes": {"source": NAMED, "ts_ms": 1, "databaseName": "shop", "ddl": "CREATE", "tableChanges": []},
    "log_messages": {"op": "m", "source": NAMED, "message": {"prefix": "p"}},
    "records_of_other_tables": json.loads(event(9, **OTHER)),
}
FIELDS = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}]
BLOCK = {"fields": [{"field": "after", "fields": FIELDS}]}


def line(kind: str, block: bool) -> str:
    if kind == "tombstones":
        return "null"
    told = json.loads(event(1, **NAMED)) if kind == "change" else KINDS[kind]
    return json.dumps({"schema": BLOCK if kind == "change" else {}, "payload": told} if block else told)


def counted(root: Path, told: Path) -> tuple[int, Mapping[str, int]]:
    """How many changes workers read of all files, in this process, and what they skip."""
    upstream = opened(root, changes={"tables": ["public.t"]})
    pin = upstream.pin()
    latest = upstream.observe(pin.position, False).latest
    told.mkdir(exist_ok=True)
    with told_in(told):
        tasks = upstream.change_batches("t", pin.position, latest, pin.schema["t"], 2)
    done = 0
    for part in tasks.parts:
        for _ in range(2):  # Spark can run a task twice
            read = sum(batch.num_rows for one in part for batch in tasks.make(one.what))
        done += read
    return done, skipped_in(told)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    files=st.lists(
        st.lists(st.sampled_from(["change", "tombstones", *KINDS]), max_size=6), min_size=1, max_size=4
    ),
    block=st.booleans(),
    cut=st.booleans(),
)
def test_each_line_of_a_file_is_a_change_or_counted(
    root: Path, monkeypatch: pytest.MonkeyPatch, files: list[list[str]], block: bool, cut: bool
) -> None:
    monkeypatch.setattr(lines, "PART_BYTES", 64 if cut else 1 << 20)
    folder = root / "changes"
    for file in folder.glob("*"):
        file.unlink()
    for number, kinds in enumerate(files):
        land(folder, f"{number}.json", *(line(kind, block) for kind in kinds))
    expected = Counter(kind for kinds in files for kind in kinds)
    told = root / "told"
    for old in told.glob("*"):
        old.unlink()
    done, skipped = counted(root, told)
    assert done == expected.pop("change", 0)
    assert skipped == dict(expected)


def test_a_file_of_avro_with_nothing_but_null_records_is_counted(root: Path, tmp_path: Path) -> None:
    value = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    after = {"name": "after", "type": ["null", value]}
    schema = ["null", {"type": "record", "name": "Envelope", "fields": [{"name": "op", "type": "string"}, after]}]
    with (root / "changes" / "1.avro").open("wb") as into:
        fastavro.writer(into, fastavro.parse_schema(schema), [None] * 5)
    assert counted(root, tmp_path / "told") == (0, {"tombstones": 5})


def test_what_is_read_to_compare_counts_nothing(root: Path) -> None:
    land(root / "changes", "1.json", line("heartbeats", False), "null")
    upstream = opened(root)
    pin = upstream.pin()
    latest = upstream.observe(pin.position, False).latest
    tasks = upstream.change_batches("t", pin.position, latest, pin.schema["t"], 2)
    assert not any(tasks.parts), "such a file is not even read"
