"""An applied change file that has another name by now is known by its size, time and inode."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from files_builders import at, event, land, opened, root
from files_builders import restored as next_process
from hint_typed import typed

from backfill_cli.errors import Fatal
from backfill_cli.model.position import START

__all__ = ["root"]


def stamped(root: Path, names: str, time_ns: int) -> None:
    for name in names.split():
        os.utime(root / "changes" / name, ns=(time_ns, time_ns))


EXACT_NS, WHOLE_NS = 1_000_000_123_456_789, 1_000_000_000_000_000


def applied_at(root: Path, time_ns: int, *names: str) -> tuple[Any, str]:
    """As `applied`, each file a millisecond after the one before, or all of one time in whole seconds."""
    upstream = opened(root)
    pin = upstream.pin()
    for n, name in enumerate(names):
        land(root / "changes", name, event(1))
        stamped(root, name, time_ns + (0 if time_ns == WHOLE_NS else n * 1_000_000))
    upstream.observe(START, False)
    return pin, upstream.remembered(at(names[-1]))


def test_an_applied_file_that_is_renamed_to_a_later_name_is_refused_by_any_process(root: Path) -> None:
    pin, memory = applied_at(root, EXACT_NS, "1.json", "2.json")
    here = next_process(root, pin, memory)
    here.observe(at("2.json"), False)
    (root / "changes" / "1.json").rename(root / "changes" / "3.json")
    for upstream in (here, next_process(root, pin, memory)):
        with pytest.raises(Fatal, match=r"3\.json is '1\.json', which was already applied") as caught:
            upstream.observe(at("2.json"), False)
    with typed(caught.value) as hint:
        hint.run_in_shell("touch")
        assert len(next_process(root, pin, memory).observe(at("2.json"), False).pending) == 1


def test_a_file_renamed_back_is_known_again(root: Path) -> None:
    pin, memory = applied_at(root, EXACT_NS, "1.json", "2.json")
    (root / "changes" / "2.json").rename(root / "changes" / "3.json")
    with pytest.raises(Fatal, match="already"):
        next_process(root, pin, memory).observe(at("2.json"), False)
    (root / "changes" / "3.json").rename(root / "changes" / "2.json")
    assert next_process(root, pin, memory).observe(at("2.json"), False).pending == ()


def test_a_twin_in_size_and_time_does_not_hide_a_renamed_file(root: Path) -> None:
    """Files written one after the other may have one time: the kernel's clock ticks every few ms."""
    pin, memory = applied_at(root, EXACT_NS, "1.json", "2.json")
    stamp = (root / "changes" / "1.json").stat().st_mtime_ns
    stamped(root, "2.json", stamp)
    pin, memory = remembered_again(root)
    (root / "changes" / "1.json").rename(root / "changes" / "3.json")
    with pytest.raises(Fatal, match=r"3\.json is '1\.json'"):
        next_process(root, pin, memory).observe(at("2.json"), False)


def remembered_again(root: Path) -> tuple[Any, str]:
    """As a process that applies the files as they are now remembers them."""
    upstream = opened(root)
    pin = upstream.pin()
    upstream.observe(START, False)
    return pin, upstream.remembered(at("2.json"))


def test_times_in_whole_seconds_tell_no_file_from_another(root: Path) -> None:
    """As copies from object stores have them: one size, one time, and the inode of the file that went before."""
    pin, memory = applied_at(root, WHOLE_NS, "1.json", "2.json")
    (root / "changes" / "1.json").rename(root / "changes" / "3.json")
    assert len(next_process(root, pin, memory).observe(at("2.json"), False).pending) == 1


def test_a_new_file_of_the_size_and_time_of_one_that_is_gone_is_applied(root: Path) -> None:
    pin, memory = applied_at(root, EXACT_NS, "1.json", "2.json")
    for name in ("3.json", "4.json"):  # before 1.json goes: they cannot have its inode
        land(root / "changes", name, event(1))
        stamped(root, name, EXACT_NS)
    (root / "changes" / "1.json").unlink()
    assert len(next_process(root, pin, memory).observe(at("2.json"), False).pending) == 2


def test_what_an_older_process_remembered_knows_no_inodes(root: Path) -> None:
    pin, memory = applied_at(root, EXACT_NS, "1.json", "2.json")
    told = json.loads(json.loads(memory)["t"])
    del told["inodes"]
    (root / "changes" / "1.json").rename(root / "changes" / "3.json")
    older = next_process(root, pin, json.dumps({"t": json.dumps(told)}))
    assert len(older.observe(at("2.json"), False).pending) == 1


def test_an_empty_file_is_nobodys_later_name(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    empty = land(root / "changes", "1.json")
    stamped(root, "1.json", EXACT_NS)
    upstream.observe(START, False)
    memory = upstream.remembered(at("1.json"))
    empty.rename(root / "changes" / "2.json")
    assert len(next_process(root, pin, memory).observe(at("1.json"), False).pending) == 1
