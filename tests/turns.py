"""Which of several tests of a kind runs this time: one a run, another one after another commit.

They are marked `in_turn(kind)`, or `in_turn` where those of one name are of a kind: the same story of another
system, another server, another place of a death. A run of all would take longer than people wait for. `--all` runs
each. BACKFILL_TURN is whose turn it is, a number; otherwise the commit says, and where there is no git the day.
"""

import os
import subprocess
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

TURN = "BACKFILL_TURN"


def turn() -> int:
    """By the name of the commit: its number is that of a clone, and CI can take each second commit."""
    told = os.environ.get(TURN, "")
    if told and not told.isdecimal():
        raise pytest.UsageError(f"{TURN}={told!r}: not a number")
    if told:
        return int(told)
    head, commit = ("git", "rev-parse", "HEAD"), ""
    with suppress(OSError):
        commit = subprocess.run(head, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    return int(commit[:8], 16) if commit else int(time.time() // 86_400)


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
