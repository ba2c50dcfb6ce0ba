"""Which of several tests of a kind runs this time: one a run, another one after the next commit.

They are marked `in_turn(kind)`, or `in_turn` where those of one name are of a kind: the same story of another
system, another server, another place of a death. A run of all would take longer than people wait for. `--all` runs
each. BACKFILL_TURN is whose turn it is, a number; otherwise that of the commits.
"""

import os
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

TURN = "BACKFILL_TURN"


def turn() -> int:
    """The number of commits, 0 where git does not tell."""
    if told := os.environ.get(TURN):
        return int(told)
    count = ("git", "rev-list", "--count", "HEAD")
    try:
        return int(subprocess.run(count, cwd=Path(__file__).parent, capture_output=True, text=True).stdout or 0)
    except OSError:
        return 0


def out_of_turn(items: Iterable[pytest.Item], turn: int) -> list[pytest.Item]:
    """Those that another turn is for. Kinds begin at different ones of theirs: not all at the first system."""
    kinds: dict[str, list[pytest.Item]] = {}
    for item in items:
        if marker := item.get_closest_marker("in_turn"):
            kinds.setdefault(next(iter(marker.args), item.name), []).append(item)
    return [
        item
        for kind, members in kinds.items()
        for at, item in enumerate(members)
        if at != (turn + zlib.crc32(kind.encode())) % len(members)
    ]
