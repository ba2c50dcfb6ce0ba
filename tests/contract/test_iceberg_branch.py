"""An Iceberg sink that fills a branch of a table that people query, and what a cutover does with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from iceberg_branch import SWAPS, THEIRS, Place, place
from sink_contract import Epochs, a_table, rows
from sink_epochs import schema_json
from test_sink_iceberg import at_point, dies, refs

from backfill_cli.errors import Held, UsageError
from backfill_cli.lake.iceberg.places import Place as IcebergPlace
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.cutover import Found, Live
from backfill_cli.sinks.iceberg import live, writing

__all__ = ["place"]


def test_a_branch_is_filled_beside_is_the_tables_own_at_one_moment_and_is_put_back(place: Place) -> None:
    assert (place.live(), place.beside()) == (THEIRS, rows((1, "a"), (2, "b")))
    assert place.now() == Live(Found.TABLE)
    with place.opened().copied("orders", False, place.lake) as copy:
        assert copy.frame(place.spark, a_table(), ["id"], None).count() == 2, "verify reads the branch"
    place.cut_over()
    kept = f"backfill_before_{place.epochs.epoch}"
    assert place.live() == rows((1, "a"), (2, "b"))
    assert place.now() == Live(Found.OURS, kept, 1_000, 9_000, made="at the job's branch backfill")
    assert set(refs(place.lake, "orders")) == {"main", "backfill_branch_1", "backfill_tag_1", kept}

    place.cut_over()  # a second time nothing changes
    place.opened().fence("orders", 2)
    place.opened().commit(replace(place.epochs.next(upserts=rows((2, "B"))), token=2))
    assert place.live() == rows((1, "a"), (2, "B")), "the job goes on in the table itself"
    with pytest.raises(UsageError, match="was cut over") as refused:
        place.opened().drop(place.epochs.tables)

    place.opened().prepare("orders", place.epochs.tables, into_existing=True)
    place.reverse()
    assert (place.live(), place.beside()) == (THEIRS, rows((1, "a"), (2, "B")))
    assert place.now() == Live(Found.TABLE)
    place.opened().commit(replace(place.epochs.next(deletes=[1]), token=2))
    assert (place.live(), place.beside()) == (THEIRS, rows((2, "B")))
    place.cut_over()
    assert place.live() == rows((2, "B"))
    with typed(refused.value) as hint:
        assert hint.commands()[0] == ["cutover", "orders", "--reverse"]
        place.reverse()
        place.opened().drop(place.epochs.tables)
        assert place.live() == THEIRS


def test_a_death_at_any_step_leaves_the_old_rows_or_the_new_and_the_same_command_ends_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = rows((1, "a"), (2, "b"))
    steps = (
        ("sink-before-cutover", place.cut_over, THEIRS, ours),
        ("sink-after-cutover", place.cut_over, ours, ours),
        ("sink-before-reverse", place.reverse, ours, THEIRS),
        ("sink-after-reverse", place.reverse, THEIRS, THEIRS),
    )
    for point, act, seen, wanted in steps:
        if wanted == ours and place.now().found is Found.OURS:
            place.reverse()
        elif wanted == THEIRS and place.now().found is Found.TABLE:
            place.cut_over()
        with monkeypatch.context() as patch:
            patch.setattr(live, "hit", at_point(point, dies))
            with pytest.raises(KeyboardInterrupt):
                act()
        assert place.live() == seen, point
        assert (place.now().found is Found.OURS) == (seen == ours)
        told = Marker(place.epochs.epoch, 1, f"a{place.epochs.epoch}")
        assert place.opened().committed("orders") == {"orders": told}
        one = place.epochs.next(upserts=rows((1, "a")))  # a runner continues in between
        place.opened().commit(one)
        act()
        assert place.live() == wanted, point


def test_a_job_is_taken_up_again_before_its_cut_over_and_its_table_gets_a_column(place: Place) -> None:
    place.opened().check("orders", place.epochs.tables, into_existing=True)
    place.opened().prepare("orders", place.epochs.tables, into_existing=True)
    place.opened().fence("orders", 2)
    more = a_table(schema=schema_json(id="long", name="string", more="string"))
    wider = Epochs(place.epochs.folder, tables=(more,), epoch=place.epochs.epoch)
    place.opened().prepare("orders", wider.tables, into_existing=True)
    commit = replace(wider.next(upserts=rows((2, "b"))), token=2)
    staged = Path(commit.folder) / commit.staged.tables["orders"].changes[0].path
    pq.write_table(pq.read_table(staged).append_column("more", pa.array(["m"])), staged)
    place.opened().commit(commit)
    assert place.beside() == [{"id": 1, "name": "a", "more": None}, {"id": 2, "name": "b", "more": "m"}]
    assert [(row["id"], row["name"]) for row in place.live()] == [(7, "theirs"), (8, "theirs")]


def test_a_table_that_others_wrote_to_meanwhile_is_not_cut_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = refs(place.lake, "orders")["main"]
    race = at_point("sink-before-cutover", lambda: place.stranger("INSERT INTO {t} VALUES (9, 'theirs')"))
    monkeypatch.setattr(live, "hit", race)
    with pytest.raises(UsageError, match="another writer has just written to it") as late:
        place.cut_over()
    assert [row["id"] for row in place.live()] == [7, 8, 9]
    assert not [name for name in refs(place.lake, "orders") if name.startswith("backfill_before")]
    with pytest.raises(UsageError, match=r"others committed 1 snapshot to it since"):
        place.cut_over()
    with typed(late.value) as hint:
        assert hint.commands() == [["cutover", "orders", "--dry-run"]]
        moved = place.now().moved  # what it shows
    assert moved is not None
    assert f"rollback_to_snapshot(table => '`orders`', snapshot_id => {before})" in str(moved[1])
    place.stranger(f"CALL {{c}}.system.rollback_to_snapshot('orders', {before})")
    place.cut_over()
    assert place.live() == rows((1, "a"), (2, "b"))

    inserts, call = iter((9, 10)), live.Cutting._call

    def meanwhile(cutting: live.Cutting, where: Any, procedure: str, arguments: str) -> None:
        place.stranger(f"INSERT INTO {{t}} VALUES ({next(inserts)}, 'theirs')")
        call(cutting, where, procedure, arguments)

    monkeypatch.setattr(live.Cutting, "_call", meanwhile)
    with pytest.raises(UsageError, match="others wrote to it just before and after it was put back") as twice:
        place.reverse()
    assert [row["id"] for row in place.live()] == [7, 8, 10]
    with typed(twice.value) as hint:
        (query,) = hint.statements()
        where = IcebergPlace.of(f"{place.lake}/orders")
        where.register(place.spark)
        found = place.spark.sql(query.replace("`lake`.`orders`", where.sql)).toArrow().column("id").to_pylist()
        assert sorted(found) == [1, 2, 9]


def test_a_reverse_takes_nothing_of_others_off_the_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.cut_over()
    place.opened().commit(place.epochs.next(upserts=rows((2, "B"))))
    before, insert = refs(place.lake, "orders")["main"], "INSERT INTO {t} VALUES (9, 'theirs')"
    place.stranger(insert)
    moved = place.now().moved
    assert moved is not None
    assert "others committed 1 snapshot to it since it was cut over" in moved[0]
    with pytest.raises(UsageError, match="the table would lose them"):
        place.reverse()
    assert [row["id"] for row in place.live()] == [1, 2, 9]

    place.stranger(f"CALL {{c}}.system.rollback_to_snapshot('orders', {before})")
    call = live.Cutting._call

    def late(cutting: live.Cutting, where: Any, procedure: str, arguments: str) -> None:
        if procedure == "set_current_snapshot":
            place.stranger(insert)
        call(cutting, where, procedure, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(live.Cutting, "_call", late)
        with pytest.raises(UsageError, match="it stays cut over, with their rows") as stays:
            place.reverse()
    assert [row["id"] for row in place.live()] == [1, 2, 9]
    assert place.now().found is Found.OURS
    assert "backfill" not in refs(place.lake, "orders")
    with typed(stays.value) as hint:
        assert hint.commands() == [["cutover", "orders", "--reverse"]]
        with pytest.raises(UsageError, match="the table would lose them"):
            place.reverse()

    place.stranger(f"CALL {{c}}.system.rollback_to_snapshot('orders', {before})")
    (kept,) = [name for name in refs(place.lake, "orders") if name.startswith("backfill_before_")]
    place.stranger(f"ALTER TABLE {{t}} DROP TAG {kept}")
    with pytest.raises(UsageError, match="the cutover cannot be reversed") as gone:
        place.reverse()
    with typed(gone.value) as hint:
        hint.says("leave it as it is")
        place.opened().commit(place.epochs.next(deletes=[1]))
    assert place.live() == rows((2, "B"))


def test_a_stalled_runner_that_wakes_after_the_cut_over_writes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_over() -> None:
        place.opened().fence("orders", 2)
        place.opened().cut_over("orders", SWAPS, 10, 1_000, 9_000)

    late = place.epochs.next(upserts=rows((1, "late")))
    monkeypatch.setattr(writing, "hit", at_point("sink-before-commit", cut_over))
    with pytest.raises(Held, match="job 'orders' was taken over by another runner"):
        place.opened().commit(late)
    assert place.live() == rows((1, "a"), (2, "b"))
    assert "backfill" not in refs(place.lake, "orders")
