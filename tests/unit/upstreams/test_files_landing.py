"""The landing folder, looked at again: what is new and what is gone, whatever order its names come in."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.formats.listing import place
from backfill_cli.upstreams.files.changes import landing
from backfill_cli.upstreams.files.changes.landing import Landing

NAMES = [f"{number:03d}" for number in range(40)]


class Rereading:
    """The rule in plain words: of each listing every name is looked up among those of the one before."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def take(self, there: list[str]) -> tuple[set[str], set[str]]:
        new, lost = set(there) - self.known, self.known - set(there)
        self.known = set(there)
        return new, lost


@st.composite
def listings(draw: st.DrawFn) -> list[list[str]]:
    """Listings one after the other: names come and go anywhere, move, or all come in another order."""
    there = draw(st.lists(st.sampled_from(NAMES), unique=True))
    found = [list(there)]
    for _ in range(draw(st.integers(1, 6))):
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4)):
            if name in there:
                there.remove(name)
            if draw(st.booleans()):
                there.insert(draw(st.integers(0, len(there))), name)
        if draw(st.integers(0, 9)) == 0:
            there = draw(st.permutations(there))
        found.append(list(there))
    return found


@given(listings(), st.integers(1, 5))
def test_names_that_stand_where_they_stood_hide_none_that_came_or_went(all_of: list[list[str]], step: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(landing, "_STEP", step)
        folder, plain = landing._Folder(), Rereading()
        for there in all_of:
            new, lost = folder.take(list(there))
            assert (set(new), lost) == plain.take(there)
            assert len(new) == len(set(new))


@given(st.data(), listings(), st.integers(1, 5))
def test_a_name_that_was_forgotten_is_new_in_its_old_place(
    data: st.DataObject, all_of: list[list[str]], step: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(landing, "_STEP", step)
        folder = landing._Folder()
        for there in all_of:
            folder.take(list(there))
            gone = data.draw(st.sampled_from(there)) if there else None
            if gone is not None:
                folder.forget(gone)
            assert folder.take(list(there)) == ([] if gone is None else [gone], set())


def test_a_file_that_went_between_listing_and_look_is_noticed_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "_STEP", 1)
    folder = tmp_path / "changes"
    folder.mkdir()
    for name in ("1.json", "2.json", "3.json"):
        (folder / name).write_text("{}")
    found, real = Landing(place(str(folder), "t")), os.stat

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path).endswith("2.json"):
            raise FileNotFoundError(path)
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        assert sorted(file.name for file in found.refresh()[0]) == ["1.json", "3.json"]
    assert [file.name for file in found.refresh()[0]] == ["2.json"]
    assert list(found.names) == ["1.json", "2.json", "3.json"]
