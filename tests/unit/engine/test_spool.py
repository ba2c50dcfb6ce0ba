"""The spool on disk: what is sealed is found again, in order and unchanged; anything missing is named."""

import json
from functools import partial
from pathlib import Path

import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st
from spool_entries import at, entry, sealed

from backfill_cli.contracts import SpoolEntry
from backfill_cli.engine.spool.folder import Spool, in_order, owned
from backfill_cli.errors import StateConflict, Transient


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(str(tmp_path), "orders", "me")
    made.open()
    return made


def test_entries_come_back_in_order_with_all_that_they_say(spool: Spool) -> None:
    made = [sealed(spool, entry(1, 0, 3)), sealed(spool, entry(2, 3, 4)), sealed(spool, entry(3, 4, 9))]
    assert spool.entries(at(0), made) == tuple(made)
    assert spool.entries(at(3), made) == tuple(made[1:])


def test_a_catalog_that_was_lost_gets_all_of_it_from_the_entries(spool: Spool) -> None:
    made = [sealed(spool, entry(n, 2 * n, 2 * n + 2)) for n in range(12)]
    assert spool.entries(at(4), []) == tuple(made[2:])


def test_an_entry_that_the_catalog_did_not_come_to_know_is_taken_up(spool: Spool) -> None:
    known = sealed(spool, entry(1, 0, 3))
    newest = sealed(spool, entry(2, 3, 8))
    assert spool.entries(at(0), [known]) == (known, newest)


def test_a_taking_that_was_cut_off_is_none(spool: Spool) -> None:
    spool.place(entry(1, 0, 3).name).mkdir()
    assert spool.entries(at(0), []) == ()
    spool.sweep([])
    assert not spool.place(entry(1, 0, 3).name).exists()


@given(st.integers(0, 6), st.permutations(range(4)), st.sampled_from(("000000000000", "ffffffffffff")))
def test_of_two_entries_from_one_place_the_one_that_others_follow_counts(
    cut: int, order: list[int], attempt: str
) -> None:
    chain = [entry(n, 2 * n, 2 * n + 2) for n in range(4)]
    stray = entry(cut, 2 * (cut % 4), 2 * (cut % 4) + 1, attempt=attempt)
    there = [*(chain[n] for n in order), stray]
    found = in_order(at(0), [], there)
    assert found[:3] == tuple(chain[:3])


def test_what_the_catalog_knows_and_the_folder_lacks_stops_the_job_naming_it(spool: Spool) -> None:
    gone = sealed(spool, entry(1, 0, 3))
    (spool.place(gone.name) / "t.parquet").unlink()
    with pytest.raises(
        StateConflict, match=r"is gone; it holds the changes from the beginning to log: 3"
    ) as refused:
        spool.entries(at(0), [gone])
    with typed(refused.value) as hint:
        hint.says("restore it")
        (spool.place(gone.name) / "t.parquet").write_bytes(b"xxxxx")
        assert spool.entries(at(0), [gone]) == (gone,)


def test_positions_are_named_as_the_upstream_writes_them(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "orders", "me", lambda position: f"LSN 0/{position.get('log')}")
    spool.open()
    gone = sealed(spool, entry(1, 2, 3))
    (spool.place(gone.name) / "t.parquet").unlink()
    with pytest.raises(StateConflict, match="holds the changes from LSN 0/2 to LSN 0/3, which"):
        spool.entries(at(2), [gone])
    with pytest.raises(StateConflict, match=r"read up to LSN 0/7, but its spool .* ends at LSN 0/3:"):
        spool.require_reach(at(7), at(2), [gone])


def test_a_file_that_was_cut_off_or_changed_is_not_applied(spool: Spool) -> None:
    made = sealed(spool, entry(1, 0, 3))
    path = spool.place(made.name) / "t.parquet"
    spool.require_unchanged(made)
    path.write_bytes(b"xxyxx")
    with pytest.raises(StateConflict, match="is damaged"):
        spool.require_unchanged(made)
    path.write_bytes(b"xx")
    with pytest.raises(StateConflict, match="has the wrong size"):
        spool.require_unchanged(made)


def test_a_spool_of_another_job_of_that_name_is_refused(spool: Spool, tmp_path: Path) -> None:
    other = Spool(str(tmp_path), "orders", "somebody else")
    with pytest.raises(StateConflict, match="belongs to another catalog's job 'orders'") as refused:
        other.open()
    spool.open()
    with typed(refused.value) as hint:
        hint.says("set another folder in spool.path")
        Spool(str(tmp_path / "other"), "orders", "somebody else").open()
    Spool(str(tmp_path), "lines", "somebody else").open()


def test_sweeping_leaves_what_counts(spool: Spool) -> None:
    made: list[SpoolEntry] = [sealed(spool, entry(1, 0, 3)), sealed(spool, entry(2, 3, 4))]
    spool.sweep(made[1:])
    assert not spool.place(made[0].name).exists()
    assert spool.entries(at(3), []) == (made[1],)
    assert json.loads((spool.place(made[1].name).parent / "owner.json").read_text())["job"] == "orders"


def test_a_spool_that_does_not_reach_to_where_the_log_was_taken_stops_the_job(spool: Spool) -> None:
    made = [sealed(spool, entry(1, 0, 3))]
    spool.require_reach(at(3), at(0), made)
    spool.require_reach(at(3), at(4), [])
    with pytest.raises(StateConflict, match=r"was read up to log: 5, but its spool .* ends at log: 3") as refused:
        spool.require_reach(at(5), at(0), made)
    with typed(refused.value) as hint:
        hint.says("restore that folder")
        spool.require_reach(at(5), at(0), [*made, sealed(spool, entry(2, 3, 5))])


def test_of_two_that_were_left_the_longer_one_counts() -> None:
    for attempt in ("000000000000", "ffffffffffff"):
        short, long = entry(1, 0, 2, attempt=attempt), entry(1, 0, 5)
        assert in_order(at(0), [], [short, long]) == (long,)


def test_a_disk_that_fails_is_waited_for(spool: Spool) -> None:
    made = entry(1, 0, 3)
    spool.place(made.name).mkdir()
    with pytest.raises(Transient, match="No such file"):
        spool.seal(made)


def test_an_entry_that_no_longer_says_what_it_holds_stops_the_job(spool: Spool) -> None:
    made = sealed(spool, entry(1, 0, 3))
    (spool.place(made.name) / "entry.json").write_text('{"number": 1')
    with pytest.raises(StateConflict, match=r"entry\.json is damaged"):
        spool.entries(at(0), [made])


def test_the_place_of_another_jobs_spool_is_known_before_anything_is_made(spool: Spool, tmp_path: Path) -> None:
    assert owned(str(tmp_path), "orders")
    assert not owned(str(tmp_path), "lines")
    assert not (tmp_path / "lines").exists()


@pytest.mark.parametrize("text", [b"", b'{"job": "ord', b"\xff"])
def test_an_owners_file_that_no_longer_says_whose_it_is_stops_the_job_naming_it(
    spool: Spool, tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "orders" / "owner.json").write_bytes(text)
    with pytest.raises(StateConflict, match=r"orders/owner\.json is damaged") as caught:
        spool.open()
    assert str(caught.value.hint) == "restore it, or drop the job and start over"
    assert "or backfill drop orders --with-rows" in str(caught.value.naming("orders", True).hint)


@pytest.mark.parametrize("name", ["owner.json", "00000001/entry.json"])
def test_a_file_that_cannot_be_read_is_waited_for(spool: Spool, tmp_path: Path, name: str) -> None:
    path = tmp_path / "orders" / name
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)
    read = spool.open if name == "owner.json" else partial(spool.entries, at(0), [])
    with pytest.raises(Transient, match="Is a directory") as caught:
        read()
    assert "spool.path" in str(caught.value.hint)


def test_a_spool_that_cannot_be_made_names_its_own_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Transient, match="Not a directory") as caught:
        Spool(str(tmp_path / "file"), "orders", "me").open()
    with typed(caught.value) as hint:
        hint.says("check spool.path and the disk")
        Spool(str(tmp_path / "folder"), "orders", "me").open()


def test_what_an_interrupted_write_left_is_swept(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "orders" / "owner.part").write_text("{")
    spool.sweep([])
    assert [path.name for path in (tmp_path / "orders").iterdir()] == ["owner.json"]
