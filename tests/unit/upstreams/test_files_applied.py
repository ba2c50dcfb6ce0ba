"""Change files that were applied are known again by the next process: late, grown and replaced ones are named."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from files_builders import at, event, land, opened, root
from files_builders import restored as next_process
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import Fatal, HistoryGone
from backfill_cli.formats.listing import File
from backfill_cli.model.names import in_order
from backfill_cli.model.position import START
from backfill_cli.upstreams.files.changes.applied_files import GROUP, AppliedFiles

__all__ = ["root"]


def applied(root: Path, *names: str) -> tuple[Any, str]:
    """A process that has applied these files: the pin, and what it remembers."""
    upstream = opened(root)
    pin = upstream.pin()
    for name in names:
        land(root / "changes", name, event(1), mtime_s=1_000_000)
    upstream.observe(START, False)
    return pin, upstream.remembered(at(names[-1]))


def arrives(folder: Path) -> None:
    land(folder, "2.json", event(9), mtime_s=10)


def is_renamed(folder: Path) -> None:
    (folder / "1.json").rename(folder / "2.json")


def grows(folder: Path) -> None:
    with (folder / "3.json").open("a") as file:
        file.write(event(5) + "\n")
    os.utime(folder / "3.json", (1_000_000, 1_000_000))


def is_replaced(folder: Path) -> None:
    land(folder, "3.json", event(2), mtime_s=10)


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (arrives, r"2\.json came late"),
        (is_renamed, r"2\.json came late"),
        (grows, r"3\.json changed from \d+ to \d+ bytes"),
        (is_replaced, r"3\.json was rewritten"),
    ],
)
def test_case_46_what_happened_to_applied_files_between_two_processes_is_named(
    root: Path, happens: Callable[[Path], None], said: str
) -> None:
    pin, memory = applied(root, "1.json", "3.json", "4.json")
    happens(root / "changes")
    with pytest.raises(Fatal, match=said):
        next_process(root, pin, memory).observe(at("4.json"), False)


def test_the_hint_for_a_file_that_was_only_touched_works(root: Path) -> None:
    pin, memory = applied(root, "1.json", "2.json")
    os.utime(root / "changes" / "1.json")
    with pytest.raises(Fatal, match="was rewritten") as caught:
        next_process(root, pin, memory).observe(at("2.json"), False)
    with typed(caught.value) as hint:
        hint.run_in_shell("touch")
        assert next_process(root, pin, memory).observe(at("2.json"), False).pending == ()


def test_the_hint_for_a_file_that_grew_puts_it_back(root: Path) -> None:
    pin, memory = applied(root, "1.json", "3.json", "4.json")
    grows(root / "changes")
    with pytest.raises(Fatal, match="changed from") as caught:
        next_process(root, pin, memory).observe(at("4.json"), False)
    with typed(caught.value) as hint:
        hint.run_in_shell("truncate")
        assert next_process(root, pin, memory).observe(at("4.json"), False).pending == ()


def test_applied_files_may_go_and_what_comes_next_is_pending(root: Path) -> None:
    pin, memory = applied(root, "1.json", "2.json", "3.json")
    (root / "changes" / "1.json").unlink()
    (root / "changes" / "3.json").unlink()
    land(root / "changes", "4.json", event(1))
    upstream = next_process(root, pin, memory)
    assert [e.cursors for e in upstream.observe(at("3.json"), False).pending] == [(("t", "4.json"),)]


def test_verify_says_that_applied_files_are_gone(root: Path) -> None:
    pin, memory = applied(root, "1.json", "2.json")
    file = root / "changes" / "1.json"
    kept, was = file.read_text(), file.stat()
    file.unlink()
    upstream = next_process(root, pin, memory)
    with pytest.raises(HistoryGone, match="cannot verify: 1 of the 2 change files") as caught:
        upstream.changes(None, "t", pin.position, at("2.json"), pin.schema["t"])
    assert caught.value.exit_code == 7
    with typed(caught.value) as hint:
        hint.says("the job itself does not need them")
        assert upstream.observe(at("2.json"), False).pending == ()
        hint.says("put them back, with the times that they had")
        file.write_text(kept)
        os.utime(file, ns=(was.st_mtime_ns, was.st_mtime_ns))
        log = next_process(root, pin, memory).log._folders["t"].whole
        assert [one.name for one in log.window(None, "2.json")] == ["1.json", "2.json"]


def test_case_46_an_older_applied_file_that_grows_is_seen_within_a_few_barriers(root: Path) -> None:
    names = [f"{n:03}.json" for n in range(200)]
    pin, memory = applied(root, *names)
    upstream = next_process(root, pin, memory)
    position = at(names[-1])
    for _ in range(6):
        upstream.observe(position, False)
    grown = root / "changes" / "077.json"
    with grown.open("a") as file:
        file.write(event(2) + "\n")

    def barriers() -> None:
        for _ in range(6):
            upstream.observe(position, False)

    with pytest.raises(Fatal, match=r"077\.json changed from"):
        barriers()


def test_a_job_of_an_older_version_remembers_from_here_on(root: Path) -> None:
    pin, _ = applied(root, "1.json", "2.json")
    upstream = opened(root)
    upstream.restore(pin)
    assert upstream.observe(at("2.json"), False).pending == ()
    memory = upstream.remembered(at("2.json"))
    arrives(root / "changes")
    with pytest.raises(Fatal, match=r"2\.json was rewritten"):
        next_process(root, pin, memory).observe(at("2.json"), False)


# The memory itself


def files(count: int) -> list[File]:
    return [File(f"{n:07}", f"/{n:07}", n % 7, 1_000 + n) for n in range(count)]


@given(st.lists(st.integers(1, 700), max_size=8))
def test_memory_is_the_same_however_the_files_were_folded_in(parts: list[int]) -> None:
    all_files, memory, begin = files(sum(parts)), AppliedFiles(), 0
    for part in parts:
        memory = AppliedFiles.of_text(memory.plus(all_files[begin : begin + part]).text())
        begin += part
    assert memory.count == len(all_files)
    assert list(memory.faults(all_files)) == []
    assert len(memory.recent) < 2 * GROUP


@given(st.integers(1, 2_600), st.data())
def test_one_file_that_is_not_as_it_was_is_found_among_all(count: int, data: st.DataObject) -> None:
    there = files(count)
    memory = AppliedFiles().plus(there)
    index = data.draw(st.integers(0, count - 1))
    was = there[index]
    changed = data.draw(st.sampled_from(("size", "time", "late")))
    if changed == "late":
        there.insert(index, File(f"{index - 1:07}-x", "/x", 1, 1) if index else File("!", "/!", 1, 1))
    else:
        size, ns = (was.size + 1, was.mtime_ns) if changed == "size" else (was.size, was.mtime_ns - 1)
        there[index] = File(was.name, was.path, size, ns)
    assert [file.name for file in there] == in_order(file.name for file in there)
    assert list(memory.faults(there))


@given(st.integers(1, 2_600), st.sets(st.integers(0, 2_599)))
def test_any_files_may_have_been_removed(count: int, gone: set[int]) -> None:
    memory = AppliedFiles().plus(files(count))
    assert list(memory.faults([f for n, f in enumerate(files(count)) if n not in gone])) == []


def test_the_memory_of_a_hundred_thousand_files_is_small() -> None:
    assert len(AppliedFiles().plus(files(100_000)).text()) < 50_000


def test_what_is_remembered_is_json(root: Path) -> None:
    _, memory = applied(root, "1.json")
    assert set(json.loads(memory)) == {"t"}
