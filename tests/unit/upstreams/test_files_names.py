"""Names of change files: numbers ordered as text, and the layout of another program."""

from pathlib import Path

import pytest
from files_builders import event, land, opened, root

from backfill_cli.errors import BadData
from backfill_cli.model.position import START

__all__ = ["root"]


@pytest.mark.parametrize(
    "names",
    [
        ("9.json", "10.json"),
        ("999.json", "1000.json"),
        ("c-9-x.json", "c-10-x.json"),
        ("a/9.json", "a/10.json"),
        ("2026-1-9T10.json", "2026-1-10T10.json"),
        ("batch9of20.json", "batch10of20.json"),
        ("9x.json", "10x.json"),
        ("T9h.json", "T10h.json"),
    ],
)
def test_case_81_numbers_without_zeros_in_front_are_named(root: Path, names: tuple[str, str]) -> None:
    upstream = opened(root)
    upstream.pin()
    for name in names:
        land((root / "changes" / name).parent, name.rpartition("/")[2], event(1))
    with pytest.raises(BadData, match="ordered as text"):
        upstream.observe(START, False)


@pytest.mark.parametrize(
    "names",
    [
        ("09.json", "10.json"),
        ("1.json", "2.json"),
        ("1700000000.5.json", "1700000001.25.json"),
        ("9.json", "a10.json"),
        ("s-1-2026-11-22-10-00-00-10ab34cd-5e6f.json", "s-1-2026-11-22-10-00-00-9cde12ff-5e6f.json"),
        ("part-00000-12345678-a.c000.json", "part-00000-1234567a-b.c000.json"),
        ("10abc.json", "9xyzzz.json"),
        ("x-10ab34cd.json", "x-9ab34cde.json"),
    ],
)
def test_names_whose_order_is_that_of_their_numbers_are_read(root: Path, names: tuple[str, ...]) -> None:
    upstream = opened(root)
    upstream.pin()
    for name in names:
        land(root / "changes", name, event(1))
    assert len(upstream.observe(START, False).pending) == len(names)


def test_kafka_connects_layout_is_named(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes" / "orders" / "partition=0", "orders+0+0000000000.json", event(1))
    with pytest.raises(BadData, match="Kafka Connect"):
        upstream.observe(START, False)
