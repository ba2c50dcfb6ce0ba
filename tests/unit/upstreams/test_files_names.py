"""Names of change files: the order of their numbers, and the layout of another program."""

import json
from pathlib import Path

import pytest
from files_builders import at, event, land, opened, pending, restored, root
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import BadData, Fatal
from backfill_cli.formats.listing import File, place
from backfill_cli.model.names import in_order
from backfill_cli.model.position import START
from backfill_cli.upstreams.files.changes.applied_files import AppliedFiles
from backfill_cli.upstreams.files.changes.landing import Landing

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
def test_case_81_files_are_in_the_order_of_the_numbers_in_their_names(root: Path, names: tuple[str, str]) -> None:
    upstream = opened(root)
    for name in reversed(names):
        land((root / "changes" / name).parent, name.rpartition("/")[2], event(1))
    upstream.pin()
    assert pending(upstream, START) == list(names)
    (said,) = upstream.extras.warnings()
    assert f"'{names[0]}' before '{names[1]}', which comes first as text" in said


@pytest.mark.parametrize(
    "names",
    [
        ("998.json", "998b.json", "999.json", "1000.json", "1001.json"),
        ("1.json", "1a.json", "2.json", "10.json", "11.json"),
        ("20240101T103015.json", "20240101T1045.json"),
    ],
)
def test_letters_after_a_number_do_not_put_a_file_behind_all_others(root: Path, names: tuple[str, ...]) -> None:
    upstream = opened(root)
    for name in names:
        land(root / "changes", name, event(1))
    upstream.pin()
    with pytest.raises(BadData, match="by the numbers in their names, and after it as text"):
        pending(upstream, START)


def test_a_file_with_letters_after_its_number_does_not_follow_a_later_one(root: Path) -> None:
    upstream = opened(root)
    land(root / "changes", "20240102.json", event(1))
    upstream.pin()
    assert pending(upstream, START) == ["20240102.json"]
    land(root / "changes", "20240101b.json", event(2))
    with pytest.raises(BadData, match="by the numbers in their names, and after it as text"):
        pending(upstream, at("20240102.json"))


def test_nothing_is_said_of_names_whose_order_is_that_of_texts(root: Path) -> None:
    upstream = opened(root)
    for name in ("09.json", "10.json", "a-999.json"):
        land(root / "changes", name, event(1))
    upstream.pin()
    assert upstream.extras.warnings() == ()


def test_case_81_a_thousandth_file_follows_the_one_before_it(root: Path) -> None:
    upstream = opened(root)
    for number in (998, 999):
        land(root / "changes", f"c-{number}.json", event(1))
    pin = upstream.pin()
    assert pin.complete_at == at("c-999.json")
    assert pending(upstream, START) == ["c-998.json", "c-999.json"]
    memory = upstream.remembered(at("c-999.json"))
    land(root / "changes", "c-1000.json", event(1))
    assert pending(upstream, at("c-999.json")) == ["c-1000.json"]
    assert pending(restored(root, pin, memory), at("c-999.json")) == ["c-1000.json"]
    later = upstream.remembered(at("c-1000.json"))
    assert pending(restored(root, pin, later), at("c-1000.json")) == []
    land(root / "changes", "c-997.json", event(1))
    for process in (upstream, restored(root, pin, later)):
        with pytest.raises(Fatal, match="came late"):
            process.observe(at("c-1000.json"), False)


@given(st.lists(st.integers(0, 3000), unique=True, min_size=1), st.data())
def test_files_land_in_any_order_and_are_listed_in_that_of_their_numbers(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("landing")
    where = Landing(place(str(folder), "t"))
    left = list(numbers)
    while left:
        some = [left.pop() for _ in range(data.draw(st.integers(1, len(left))))]
        for number in some:
            (folder / f"c-{number}.json").write_text("{}")
        where.refresh()
        assert where.names == in_order(where.files)
    assert [int(name[2:-5]) for name in where.names] == sorted(numbers)
    after, up_to = data.draw(st.integers(0, 3000)), data.draw(st.integers(0, 3000))
    found = where.between(f"c-{after}.json", f"c-{up_to}.json")
    assert [int(name[2:-5]) for name in found] == [one for one in sorted(numbers) if after < one <= up_to]
    before = where.before(f"c-{after}.json")
    assert before == next((f"c-{one}.json" for one in sorted(numbers, reverse=True) if one < after), None)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("1.9.json", "1.10.json"), "though its number is greater"),
        (("1700000000.25.json", "1700000000.5.json"), "though its number is greater"),
        (("9of20.json", "10of9.json"), "though its number is greater"),
        (("20240101snapshot.json", "20240102delta.json"), "and after it as text"),
        (("20240102T030405123Z.json", "20240102T030406Z.json"), "and after it as text"),
    ],
)
def test_names_whose_order_nobody_can_tell_are_refused(root: Path, names: tuple[str, ...], said: str) -> None:
    upstream = opened(root)
    upstream.pin()
    for name in names:
        land(root / "changes", name, event(1))
    with pytest.raises(BadData, match=said):
        upstream.observe(START, False)


def of_before(memory: str) -> str:
    """What an earlier version remembered, for which names were texts."""
    told = json.loads(memory)
    return json.dumps(
        {t: json.dumps({k: v for k, v in json.loads(m).items() if k != "order"}) for t, m in told.items()}
    )


@pytest.mark.parametrize(
    ("applied", "waiting", "refuses"),
    [
        (("01.json", "02.json"), ("03.json",), False),
        (("8.json", "9.json"), (), False),
        (("1000.json", "1001.json", "999.json"), (), True),  # applied in another order
        (("10.json",), ("9.json",), True),  # the next one is before what was applied
    ],
)
def test_a_job_of_an_earlier_version_continues_if_its_order_is_the_same(
    root: Path, applied: tuple[str, ...], waiting: tuple[str, ...], refuses: bool
) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    last = AppliedFiles()
    for name in applied:
        file = land(root / "changes", name, event(1))
        told = file.stat()
        last = last.plus([File(name, str(file), told.st_size, told.st_mtime_ns, told.st_ino)])
    memory = of_before(json.dumps({"t": last.text()}))
    for name in waiting:
        land(root / "changes", name, event(1))
    process = restored(root, pin, memory)
    if not refuses:
        assert pending(process, at(applied[-1])) == list(waiting)
        land(root / "changes", "1000.json", event(1))
        assert pending(process, at(applied[-1])) == [*waiting, "1000.json"]
        return
    with pytest.raises(Fatal, match="ordered them as texts") as caught:
        process.observe(at(applied[-1]), False)
    with typed(caught.value) as hint:
        hint.says("continue with that version, or ")
        again = opened(root)
        again.pin()
        assert set(pending(again, START)) == {*applied, *waiting}


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
        ("9.json", "10.json"),
        ("batch9of20.json", "batch10of20.json"),
        ("x-10ab34cd.json", "x-9ab34cde.json"),
    ],
)
def test_names_whose_order_is_that_of_their_numbers_are_read(root: Path, names: tuple[str, ...]) -> None:
    upstream = opened(root)
    upstream.pin()
    for name in names:
        land(root / "changes", name, event(1))
    assert len(upstream.observe(START, False).pending) == len(names)
