"""A number missing among change files whose names, or versions, count up by one."""

import json
from pathlib import Path
from typing import Any

import pytest
from files_builders import event, land, opened, parquet
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import Transient
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.files import holes
from backfill_cli.upstreams.files.holes import Numbered


@pytest.fixture
def root(tmp_path: Path) -> Path:
    parquet(tmp_path / "snapshot" / "a.parquet")
    return tmp_path


def landed(root: Path, numbers: list[int], shape: str = "c-{:05}.json") -> None:
    for number in numbers:
        land(root / "changes", shape.format(number), event(1))


def seen(root: Path, after: str | None = None, **changes: Any) -> list[str]:
    upstream = opened(root, changes=changes or None)
    upstream.pin()
    position = Position.of({"t": after}) if after else START
    return [str(cursor) for e in upstream.observe(position, False).pending for _, cursor in e.cursors]


@pytest.mark.parametrize("shape", ["c-{:05}.json", "orders.{:04}.c000.json", "{:010}.json", "a1/{:03}-x.json"])
def test_a_missing_number_is_waited_for(root: Path, shape: str) -> None:
    (root / "changes" / shape).parent.mkdir(parents=True, exist_ok=True)
    for number in [1, 2, 3, 4, 5, 6, 8]:
        path = root / "changes" / shape.format(number)
        land(path.parent, path.name, event(1))
    with pytest.raises(Transient, match=r"number 7 is missing between .*6.* and .*8") as raised:
        seen(root)
    assert "holes" in str(raised.value.hint)
    path = root / "changes" / shape.format(7)
    land(path.parent, path.name, event(1))
    assert len(seen(root)) == 8


def test_holes_may_be_normal(root: Path) -> None:
    landed(root, [1, 2, 3, 4, 5, 6, 9])
    assert len(seen(root, holes="allowed")) == 7


def test_a_hole_behind_the_position_is_seen_by_what_was_applied(root: Path) -> None:
    landed(root, [1, 2, 3, 4, 5, 6, 8])
    with pytest.raises(Transient, match="number 7 is missing"):
        seen(root, "c-00006.json")


@pytest.mark.parametrize("swept", [[6], [3, 4], [1, 2, 3, 4, 5, 6], [4, 5, 6]])
def test_applied_files_that_were_swept_are_no_hole(root: Path, swept: list[int]) -> None:
    landed(root, [1, 2, 3, 4, 5, 6])
    upstream = opened(root)
    upstream.pin()
    upstream.observe(START, False)
    at = Position.of({"t": "c-00006.json"})
    upstream.observe(at, False)
    upstream.acknowledge(at)
    for number in swept:
        (root / "changes" / f"c-{number:05}.json").unlink()
    landed(root, [7, 8])
    assert len(upstream.observe(at, False).pending) == 2


@pytest.mark.parametrize(
    "names",
    [
        [f"2026-01-{day:02}.json" for day in (5, 6, 7, 8, 9, 12, 13, 14)],
        [f"2026-01-31T10-{minute:02}.json" for minute in (1, 2, 3, 4, 5, 6, 9)],
        [f"{1767225600 + second}.json" for second in (0, 1, 2, 3, 4, 5, 6, 9)],
        [f"{day}.json" for day in (20260105, 20260106, 20260107, 20260108, 20260109, 20260110, 20260113)],
        [f"t+0+{offset:010}.json" for offset in (10, 20, 30, 40, 50, 60, 70, 80)],
        [f"t+0+{offset:010}.json" for offset in (1, 2, 3, 4, 5, 6, 9, 12, 15)],
        [f"x-{n:03}.json" for n in (1, 2, 4)],
        [f"b{n % 2}-{n:03}.json" for n in (1, 2, 3, 4, 5, 6, 7, 9)],
    ],
)  # fmt: skip
def test_numbers_that_do_not_count_up_by_one_have_no_holes(root: Path, names: list[str]) -> None:
    for name in names:
        land(root / "changes", name, event(1))
    assert sorted(seen(root)) == sorted(names)


def feed(version: int) -> str:
    return json.dumps({"id": 1, "name": "n", "_change_type": "insert", "_commit_version": version})


def test_a_missing_version_is_waited_for(root: Path) -> None:
    for place, version in enumerate([10, 11, 12, 13, 14, 15, 17]):
        land(root / "changes", f"{place:05}.json", feed(version))
    told = {"format": "change-feed", "file_format": "json"}
    with pytest.raises(Transient, match=r"version 16 is missing between 00005\.json and 00006\.json"):
        seen(root, **told)
    assert len(seen(root, **told, holes="allowed")) == 7


def test_a_missing_version_is_seen_when_files_come_one_by_one(root: Path) -> None:
    upstream = opened(root, changes={"format": "change-feed", "file_format": "json"})
    upstream.pin()
    position = START
    for place, version in enumerate([10, 11, 12, 13, 14, 15]):
        land(root / "changes", f"{place:05}.json", feed(version))
        assert len(upstream.observe(position, False).pending) == 1
        position = Position.of({"t": f"{place:05}.json"})
    land(root / "changes", "00006.json", feed(18))
    with pytest.raises(Transient, match="version 16 to 17 are missing"):
        upstream.observe(position, False)


@given(st.integers(0, 10**6), st.integers(12, 40), st.data())
def test_a_hole_is_found_wherever_it_is(first: int, count: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(1, count - 2))
    numbers = [Numbered(f"{n:09}", n, n) for n in range(first, first + count) if n != first + missing]
    with pytest.raises(Transient, match=f"number {first + missing} is missing"):
        holes.refuse("t", "number", numbers, None)
    holes.refuse("t", "number", numbers[: missing + 1], numbers[missing].file)
