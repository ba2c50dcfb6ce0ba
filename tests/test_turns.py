"""Of the tests of a kind one runs at a time, and each in its turn."""

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from turns import TURN, out_of_turn, turn


def item(name: str, *kind: str, marked: bool = True) -> Any:
    marker = SimpleNamespace(args=kind) if marked else None
    return SimpleNamespace(name=name, get_closest_marker=lambda _: marker)


ITEMS = [item("a1", "a"), item("plain", marked=False), item("b1", "b"), item("a2", "a"), item("b2", "b")]
ITEMS += [item("b3", "b"), *(item(name) for name in ("c", "d", "c", "d", "e", "f", "e", "f"))]


def running(turn: int) -> list[str]:
    left_out = list(map(id, out_of_turn(ITEMS, turn)))
    return [f"{one.name} {at}" for at, one in enumerate(ITEMS) if id(one) not in left_out]


def test_of_each_kind_one_runs_and_what_has_no_kind_always_does() -> None:
    for at in range(6):
        assert sorted(one[0] for one in running(at)) == ["a", "b", "c", "d", "e", "f", "p"]


def test_kinds_begin_at_different_ones_of_theirs() -> None:
    firsts = [one.split()[1] in ("6", "7", "10", "11") for one in running(0) if one[0] in "cdef"]
    assert len(set(firsts)) == 2


def test_as_many_turns_as_a_kind_has_tests_run_them_all() -> None:
    assert len({one for at in range(7, 7 + 3) for one in running(at)}) == len(ITEMS)


def test_a_test_that_is_alone_of_its_kind_has_every_turn() -> None:
    assert out_of_turn([item("a1", "a")], 3) == []


def test_the_turn_is_as_told_or_that_of_the_commit_or_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TURN, "41")
    assert turn() == 41
    monkeypatch.setenv(TURN, "forty")
    with pytest.raises(pytest.UsageError, match="'forty': not a number"):
        turn()
    monkeypatch.delenv(TURN)
    head = subprocess.run(("git", "rev-parse", "HEAD"), cwd=Path(__file__).parent, capture_output=True, text=True)
    assert not head.stdout or f"{turn():08x}" == head.stdout[:8]
    monkeypatch.setenv("PATH", "")
    assert turn() == int(time.time() // 86_400)
