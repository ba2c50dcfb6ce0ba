"""Windows of a real slot's log: values that it does not carry, and what is held and written meanwhile."""

import psycopg
import pytest
from log_world import World, changes
from taken_world import BIG, shared, world

from backfill_cli.cdc import window
from backfill_cli.errors import BadData
from backfill_cli.upstreams.postgres import pgoutput

__all__ = ["shared", "world"]


def test_an_unsent_value_is_named_where_the_window_does_not_have_it(world: World) -> None:
    world.db(f"INSERT INTO part VALUES (1, 1, {BIG.format('b')}, 'sad', {BIG.format('m')})")
    world.db(f"INSERT INTO part VALUES (1, 2, {BIG.format('b')}, 'sad', 'short')")
    world.follow()
    world.db("UPDATE part SET v = 2", f"UPDATE part SET more = {BIG.format('n')} WHERE id = 1")
    taken = world.follow()
    assert taken.tables["part"].partial == ("big",)
    found = {
        row["id"]: (row["_backfill_unsent"], row["big"], row["more"])
        for row in changes(world.folder, taken, "part")
    }
    assert found == {1: (["big"], None, "n" * 3000), 2: (["big"], None, "short")}
    assert world.sink == world.state()


def test_an_unsent_value_is_that_of_the_same_window(world: World) -> None:
    world.db(f"INSERT INTO part VALUES (1, 1, {BIG.format('b')}, 'sad', NULL)", "UPDATE part SET v = 2, id = 7")
    taken = world.follow()
    assert taken.tables["part"].partial == ()
    assert world.sink == world.state()


def _lost(world: World) -> None:
    """A row whose big value the window does not have gets another key."""
    world.db(f"INSERT INTO part VALUES (1, 1, {BIG.format('b')}, 'sad', NULL)")
    world.follow()
    world.db("UPDATE part SET v = 2, id = 7")


def test_a_value_that_the_log_does_not_carry_is_refused(world: World) -> None:
    _lost(world)
    before = set(world.folder.iterdir())
    world.db("INSERT INTO two VALUES (1, 1, 'x')", "UPDATE part SET v = 3")
    with pytest.raises(BadData, match=r"table 'part': .* the new key id = 7,.* 'big'") as refused:
        world.take()
    assert set(world.folder.iterdir()) == before
    anew = str(refused.value.hint).partition("has it: ")[2].partition("; ")[0]
    assert anew == """UPDATE part SET "big" = "big" || '' WHERE "id" = '7'"""
    world.db(anew)
    world.follow(limit=1)
    assert world.sink == world.state()


@pytest.mark.parametrize("then", ["DELETE FROM part", f"UPDATE part SET big = {BIG.format('c')}", "TRUNCATE part"])
@pytest.mark.parametrize("held", [1, window.HELD_BYTES])
def test_a_value_that_is_not_needed_any_more_is_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch, held: int, then: str
) -> None:
    monkeypatch.setattr(window, "HELD_BYTES", held)
    monkeypatch.setattr(pgoutput, "BLOCK_ROWS", 1)
    _lost(world)
    world.db(then)
    world.follow()
    assert world.sink == world.state()


def test_a_value_of_a_row_beyond_the_position_is_not_missed(world: World) -> None:
    _lost(world)
    taken = world.take(covered={"part": "k0 <= 6"})
    assert [(row["_backfill_op"], row["id"]) for row in changes(world.folder, taken, "part")] == [("D", 1)]


@pytest.mark.parametrize("held", [1, window.HELD_BYTES])
def test_a_row_that_moves_takes_its_value_from_what_was_written_before(
    world: World, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(window, "HELD_BYTES", held)
    monkeypatch.setattr(pgoutput, "BLOCK_ROWS", 1)
    world.db(f"INSERT INTO part SELECT 1, g, {BIG.format('b')}, 'sad', NULL FROM generate_series(1, 3) g")
    world.db("UPDATE part SET v = 2, id = 7 WHERE id = 1")
    world.follow()
    assert world.sink == world.state()


def test_more_than_is_held_is_written_in_several_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "HELD_BYTES", 50_000)
    monkeypatch.setattr(pgoutput, "BLOCK_ROWS", 50)
    with psycopg.connect(world.db.dsn) as connection:
        for _ in range(2):
            connection.execute(
                "INSERT INTO two SELECT g, 1, 'x' FROM generate_series(1, 500) g "
                "ON CONFLICT (a, b) DO UPDATE SET v = two.v + 1"
            )
        connection.execute("INSERT INTO whole VALUES (1)")
    taken = world.follow()
    assert len(taken.tables["two"].files) > 3
    assert (taken.tables["two"].netted, taken.tables["whole"].netted) == (False, True)
    assert taken.tables["two"].changes == 1000
    assert world.sink == world.state()


def test_a_window_that_lacks_a_value_grows_by_parts(world: World) -> None:
    """A long log after the value is not one epoch."""
    _lost(world)
    world.db("UPDATE part SET big = big || '' WHERE id = 7")
    for number in range(40):
        world.db(f"INSERT INTO two VALUES ({number}, 1, 'x')")
    now = world.now()
    taken = world.follow(now, limit=1)
    assert taken.up_to < now
    while taken.up_to < now:
        taken = world.follow(now, limit=1)
    assert world.sink == world.state()
