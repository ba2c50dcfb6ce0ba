"""A number missing where the config says that names, or versions, count up by one."""

import json
from pathlib import Path
from typing import Any

import pytest
from files_builders import event, land, opened, parquet
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backfill_cli.errors import BadData, Transient
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.files import connector
from backfill_cli.upstreams.files.changes import order

NAMES = {"consecutive": "names"}
FEED = {"format": "change-feed", "file_format": "json", "consecutive": "versions"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    parquet(tmp_path / "snapshot" / "a.parquet")
    return tmp_path


def landed(root: Path, *names: str) -> None:
    for name in names:
        path = root / "changes" / name
        land(path.parent, path.name, event(1))


def seen(root: Path, after: str | None = None, **changes: Any) -> list[str]:
    upstream = opened(root, changes=changes or None)
    upstream.pin()
    position = Position.of({"t": after}) if after else START
    return [str(cursor) for e in upstream.observe(position, False).pending for _, cursor in e.cursors]


@pytest.mark.parametrize("shape", ["c-{:05}.json", "orders.{:04}.c000.json", "{:010}.json", "a1/{:03}-x.json"])
def test_a_missing_number_is_waited_for(root: Path, shape: str) -> None:
    landed(root, *(shape.format(number) for number in (1, 2, 4, 5, 7)))
    with pytest.raises(Transient, match=r"number 3 is missing between .*2.* and .*4"):
        seen(root, **NAMES)
    landed(root, shape.format(3))
    with pytest.raises(Transient, match=r"number 6 is missing"):
        seen(root, **NAMES)
    landed(root, shape.format(6))
    assert len(seen(root, **NAMES)) == 7


def test_without_the_option_numbers_may_be_missing(root: Path) -> None:
    landed(root, "c-001.json", "c-002.json", "c-005.json")
    assert len(seen(root)) == 3


def test_the_file_after_the_position_follows_it_though_what_was_applied_is_swept(root: Path) -> None:
    landed(root, "c-0001.json", "c-0002.json")
    upstream = opened(root, changes=NAMES)
    pin = upstream.pin()
    at = Position.of({"t": "c-0002.json"})
    assert len(upstream.observe(START, False).pending) == 2
    upstream.observe(at, False)
    memory = upstream.remembered(at)
    for name in ("c-0001.json", "c-0002.json"):
        (root / "changes" / name).unlink()
    landed(root, "c-0005.json")
    restarted = opened_at(root, pin, memory, NAMES)
    for one in (upstream, restarted):
        with pytest.raises(Transient, match="number 3 to 4 are missing"):
            one.observe(at, False)


def test_another_sequence_begins_with_any_number(root: Path) -> None:
    landed(root, "2026-01-31/0001.json", "2026-01-31/0002.json", "2026-02-01/0001.json", "2026-02-01/0002.json")
    assert len(seen(root, **NAMES)) == 4
    landed(root, "2026-02-01/0004.json")
    with pytest.raises(Transient, match="number 3 is missing"):
        seen(root, **NAMES)


def test_a_name_without_a_number_is_named(root: Path) -> None:
    landed(root, "c-1.json", "last.json")
    with pytest.raises(BadData, match=r"last\.json has no number"):
        seen(root, **NAMES)


def feed(version: int) -> str:
    return json.dumps({"id": 1, "name": "n", "_change_type": "insert", "_commit_version": version})


def test_a_missing_version_is_waited_for_by_the_next_process_too(root: Path) -> None:
    for place, version in enumerate([10, 11]):
        land(root / "changes", f"{place:05}.json", feed(version))
    land(root / "changes", "00002.json")
    upstream = opened(root, changes=FEED)
    pin = upstream.pin()
    at = Position.of({"t": "00002.json"})
    assert len(upstream.observe(START, False).pending) == 3
    upstream.observe(at, False)
    memory = upstream.remembered(at)
    land(root / "changes", "00003.json", feed(14))
    restarted = opened_at(root, pin, memory, FEED)
    for one in (upstream, restarted):
        with pytest.raises(Transient, match=r"version 12 to 13 are missing before 00003\.json"):
            one.observe(at, False)
    land(root / "changes", "00003.json", feed(12))
    assert len(opened_at(root, pin, memory, FEED).observe(at, False).pending) == 1


def opened_at(root: Path, pin: Any, memory: str, changes: dict[str, Any]) -> Any:
    upstream = opened(root, changes=changes)
    upstream.restore(pin)
    upstream.recall(memory)
    return upstream


@pytest.mark.parametrize("other", [{"format": "debezium"}, {"format": "change-feed", "epoch": "e"}])
def test_versions_are_a_change_feeds(root: Path, other: dict[str, Any]) -> None:
    changes = {"path": "c", "consecutive": "versions", **other}
    with pytest.raises(ValidationError, match="change-feed without an epoch"):
        connector.options.model_validate({"snapshot": {"path": "s", "format": "parquet"}, "changes": changes})


@given(st.integers(0, 10**6), st.integers(3, 40), st.data())
def test_a_hole_is_found_wherever_it_is(first: int, count: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(1, count - 2))
    names = [f"a/{n:09}.json" for n in range(first, first + count) if n != first + missing]
    with pytest.raises(Transient, match=f"number {first + missing} is missing"):
        order.refuse_in_names("t", names)
    order.refuse_in_names("t", names[:missing])
    order.refuse_in_names("t", names[missing:])
