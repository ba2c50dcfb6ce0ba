"""Change files that were applied are known again by the next process: late, grown and replaced ones are named."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from files_builders import event, land, opened, parquet
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import BadData, Fatal, HistoryGone
from backfill_cli.formats.listing import File
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.files.changes.consumed import GROUP, Consumed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    parquet(tmp_path / "snapshot" / "a.parquet")
    (tmp_path / "changes").mkdir()
    return tmp_path


def at(name: str) -> Position:
    return Position.of({"t": name})


def applied(root: Path, *names: str) -> tuple[Any, str]:
    """A process that has applied these files: the pin, and what it remembers."""
    upstream = opened(root)
    pin = upstream.pin()
    for name in names:
        land(root / "changes", name, event(1), mtime_s=1_000_000)
    upstream.observe(START, False)
    return pin, upstream.remembered(at(names[-1]))


def next_process(root: Path, pin: Any, memory: str) -> Any:
    upstream = opened(root)
    upstream.restore(pin)
    upstream.recall(memory)
    return upstream


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
    command = caught.value.hint.split(": ", 1)[1]
    assert os.system(command) == 0
    assert next_process(root, pin, memory).observe(at("2.json"), False).pending == ()


def test_the_hint_for_a_file_that_grew_puts_it_back(root: Path) -> None:
    pin, memory = applied(root, "1.json", "3.json", "4.json")
    grows(root / "changes")
    with pytest.raises(Fatal, match="changed from") as caught:
        next_process(root, pin, memory).observe(at("4.json"), False)
    assert os.system(caught.value.hint.split(": ", 1)[1]) == 0
    assert next_process(root, pin, memory).observe(at("4.json"), False).pending == ()


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
    assert os.system(caught.value.hint.split(": ", 1)[1].split(";")[0]) == 0
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


def test_applied_files_may_go_and_what_comes_next_is_pending(root: Path) -> None:
    pin, memory = applied(root, "1.json", "2.json", "3.json")
    (root / "changes" / "1.json").unlink()
    (root / "changes" / "3.json").unlink()
    land(root / "changes", "4.json", event(1))
    upstream = next_process(root, pin, memory)
    assert [e.cursors for e in upstream.observe(at("3.json"), False).pending] == [(("t", "4.json"),)]


def test_verify_says_that_applied_files_are_gone(root: Path) -> None:
    pin, memory = applied(root, "1.json", "2.json")
    (root / "changes" / "1.json").unlink()
    upstream = next_process(root, pin, memory)
    with pytest.raises(HistoryGone, match="cannot verify: 1 of the 2 change files") as caught:
        upstream.changes(None, "t", pin.position, at("2.json"), pin.schema["t"])
    assert caught.value.exit_code == 7


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
    all_files, memory, begin = files(sum(parts)), Consumed(), 0
    for part in parts:
        memory = Consumed.of_text(memory.plus(all_files[begin : begin + part]).text())
        begin += part
    assert memory.count == len(all_files)
    assert list(memory.faults(all_files)) == []
    assert len(memory.recent) < 2 * GROUP


@given(st.integers(1, 2_600), st.data())
def test_one_file_that_is_not_as_it_was_is_found_among_all(count: int, data: st.DataObject) -> None:
    there = files(count)
    memory = Consumed().plus(there)
    index = data.draw(st.integers(0, count - 1))
    was = there[index]
    changed = data.draw(st.sampled_from(("size", "time", "late")))
    if changed == "late":
        there.insert(index, File(f"{index - 1:07}x", "/x", 1, 1) if index else File("!", "/!", 1, 1))
    else:
        size, ns = (was.size + 1, was.mtime_ns) if changed == "size" else (was.size, was.mtime_ns - 1)
        there[index] = File(was.name, was.path, size, ns)
    assert list(memory.faults(there))


@given(st.integers(1, 2_600), st.sets(st.integers(0, 2_599)))
def test_any_files_may_have_been_removed(count: int, gone: set[int]) -> None:
    memory = Consumed().plus(files(count))
    assert list(memory.faults([f for n, f in enumerate(files(count)) if n not in gone])) == []


def test_the_memory_of_a_hundred_thousand_files_is_small() -> None:
    assert len(Consumed().plus(files(100_000)).text()) < 50_000


# Epochs in a column


def test_an_epoch_that_was_applied_is_named_when_a_file_carries_it_again(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "x.parquet")
    upstream = opened(tmp_path, changes={"epoch": "source.tx"})
    upstream.pin()
    land(tmp_path / "changes", "1.json", event(1, tx=1), event(1, tx=2))
    position = Position.of(dict(upstream.observe(START, False).pending[-1].cursors))
    land(tmp_path / "changes", "2.json", event(2, tx=2), event(2, tx=3))
    with pytest.raises(
        BadData, match=r"2\.json holds epoch 2, but the job has already applied everything up to epoch 2"
    ):
        upstream.observe(position, False)


def test_a_second_tables_file_of_an_applied_epoch_is_named(tmp_path: Path) -> None:
    for table in ("a", "b"):
        parquet(tmp_path / "snapshot" / table / "x.parquet")
    upstream = opened(tmp_path, ("a", "b"), changes={"epoch": "source.tx"})
    pin = upstream.pin()
    land(tmp_path / "changes" / "a", "1.json", event(1, tx=1))
    land(tmp_path / "changes" / "a", "2.json", event(1, tx=2))
    first = upstream.observe(START, False).pending
    assert [e.cursors[0] for e in first] == [("epoch", 1)]
    position = Position.of(dict(first[0].cursors))
    memory = upstream.remembered(position)
    land(tmp_path / "changes" / "b", "1.json", event(1, tx=1))
    later = opened(tmp_path, ("a", "b"), changes={"epoch": "source.tx"})
    later.restore(pin)
    later.recall(memory)
    for one in (upstream, later):
        with pytest.raises(BadData, match=r"table 'b': .*1\.json holds epoch 1"):
            one.observe(position, False)


def test_a_file_applied_in_part_is_pending_with_the_rest(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "x.parquet")
    upstream = opened(tmp_path, changes={"epoch": "source.tx"})
    pin = upstream.pin()
    land(tmp_path / "changes", "1.json", event(1, tx=1), event(1, tx=2))
    position = Position.of(dict(upstream.observe(START, False).pending[0].cursors))
    later = opened(tmp_path, changes={"epoch": "source.tx"})
    later.restore(pin)
    later.recall(upstream.remembered(position))
    for one in (upstream, later):
        assert [e.cursors[0] for e in one.observe(position, False).pending] == [("epoch", 2)]


# Names


@pytest.mark.parametrize(
    "names",
    [
        ("9.json", "10.json"),
        ("c-9-x.json", "c-10-x.json"),
        ("a/9.json", "a/10.json"),
        ("2026-1-9T10.json", "2026-1-10T10.json"),
        ("batch9of20.json", "batch10of20.json"),
        ("9x.json", "10x.json"),
        ("T9h.json", "T10h.json"),
    ],
)
def test_numbers_without_zeros_in_front_are_named(root: Path, names: tuple[str, str]) -> None:
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


def test_what_is_remembered_is_json(root: Path) -> None:
    _, memory = applied(root, "1.json")
    assert set(json.loads(memory)) == {"t"}
