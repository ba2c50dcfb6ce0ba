"""Commands beside a table that is set aside or being put back: done, or refused with nothing changed."""

import shlex
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from half_done import told
from hint_scene import Scene, scene, settled
from hint_typed import typed
from sink_contract import a_table, schema_json
from test_command_aside import (
    REFUNDS,
    SHOP,
    Killed,
    agreed,
    aside,
    gone_meanwhile,
    kills,
    live,
    out,
    put_back,
    s,
    stop,
    taken,
    two,
)

from backfill_cli.api import refilling
from backfill_cli.catalog import Catalog
from backfill_cli.config import from_stored
from backfill_cli.contracts import JobDefinition, Partitions, SinkTable
from backfill_cli.engine.loop import redefine
from backfill_cli.engine.loop.aside import of_one_table
from backfill_cli.engine.loop.redefine import aside_of
from backfill_cli.engine.refill.compare import difference
from backfill_cli.errors import BadData, HistoryGone, StateConflict, UsageError
from backfill_cli.model.aside import Standing, standing
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Barrier, Verb
from backfill_cli.model.position import Position
from backfill_cli.model.refill import Extent, RefillState
from backfill_cli.model.upstream import UpstreamView

__all__ = ["out", "s", "scene", "two"]

pytestmark = pytest.mark.seconds

REMOVE = ("remove", "orders", "--table")
REFILL = ("refill", "orders", "--table", "refunds")
DROP = ("drop", "orders", "--with-rows", "--confirm", "orders")


@pytest.fixture
def back(out: Scene) -> Scene:
    """The second table is being put back."""

    def refilled() -> None:
        assert out.run(*REFILL).exit_code == 0
        put_back(out)

    return settled(out, "back", refilled)


def by_a_run(s: Scene) -> str:
    """What a run tells of the command that it takes."""
    with live(s) as claim:
        (said,) = taken(s, claim)
    stop(s)
    return said


def refusal(s: Scene, verb: Verb) -> str:
    """What the barrier says to type."""
    *_, one = [one for one in s.catalog.close_look("orders", 1, 9)[3] if one.command.verb is verb]
    found = s.catalog.refusal("orders", one.command.id)
    assert found is not None
    return str(found.hint)


def standing_of(s: Scene) -> dict[str, Standing | None]:
    job = s.catalog.definition("orders")
    return {name: job.standing(name) for name in ("orders", "refunds")}


def test_a_table_is_in_its_job_aside_or_being_put_back(two: Scene) -> None:
    assert standing_of(two) == {"orders": Standing.IN, "refunds": Standing.IN}
    with live(two) as claim:
        (one,) = aside(two, claim).aside
    stop(two)
    assert standing_of(two) == {"orders": Standing.IN, "refunds": Standing.ASIDE}
    assert two.run(*REFILL).exit_code == 0
    put_back(two)
    assert standing_of(two) == {"orders": Standing.IN, "refunds": Standing.BACK}
    assert two.catalog.definition("orders").others_in("orders") == []
    assert standing("other", ["orders"], [one]) is None


def test_a_table_that_another_job_has_taken_since_is_not_dropped(out: Scene) -> None:
    mine = a_table("refunds", schema=schema_json(id="long", name="string"))
    out.config.open_sink().prepare("fresh", (mine,), True)
    done = out.run(*DROP)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "job orders: dropped; its tables and their rows are gone: orders",
        "refunds stays as it is: it was set aside, and another job has it by now",
    ]
    out.sql(out.sink, "SELECT error(name) FROM refunds WHERE name <> 'kept'")
    assert not [name for name in told(out.sink) if name.endswith(".orders")]


def test_nor_where_the_catalog_is_lost(out: Scene) -> None:
    mine = a_table("refunds", schema=schema_json(id="long", name="string"))
    out.config.open_sink().prepare("fresh", (mine,), True)
    out.catalog.path.unlink()
    done = out.run(*DROP, "--sink", "job.toml")
    assert done.exit_code == 0, done.output
    assert "refunds stays as it is" in done.output
    out.sql(out.sink, "SELECT error(name) FROM refunds WHERE name <> 'kept'")


def test_a_table_whose_columns_others_have_changed_is_dropped_with_its_job(out: Scene) -> None:
    out.sql(out.sink, "ALTER TABLE refunds ALTER name TYPE BLOB")
    done = out.run(*DROP)
    assert done.exit_code == 0, done.output
    assert not [name for name in told(out.sink) if name.endswith((".orders", ".refunds"))]


def test_a_table_that_is_being_put_back_can_be_removed_which_ends_its_refill(back: Scene) -> None:
    assert back.run(*REMOVE, "refunds").exit_code == 0
    assert "goes on with the tables" in by_a_run(back)
    job = back.catalog.definition("orders")
    assert ([one.name for one in job.tables], job.aside) == (["orders"], ())
    assert back.catalog.refills.pending("orders") == ()
    (refill,) = back.catalog.job("orders").refills
    assert (refill.state, refill.why.text) == (RefillState.CANCELLED, "the table left the job")
    assert "refunds is being put back" not in back.run("status", "orders").stdout
    assert agreed(back) == {"orders"}
    back.sql(back.sink, "SELECT error(name) FROM refunds WHERE name <> 'kept'")


def test_and_with_its_rows(back: Scene) -> None:
    assert back.run(*REMOVE, "refunds", "--with-rows", "--confirm", "orders").exit_code == 0
    by_a_run(back)
    assert back.catalog.definition("orders").aside == ()
    assert back.catalog.refills.pending("orders") == ()
    assert not [name for name in told(back.sink) if name.endswith(".refunds")]


def test_the_last_table_that_is_right_stays_while_another_is_being_put_back(back: Scene) -> None:
    before = back.catalog.definition("orders")
    with typed(back.refused(*REMOVE, "orders")) as hint:
        hint.says("try again once that is done")
        (words,) = hint.commands()
        assert "is being put back" in back.run(*words).stdout
        (refill,) = back.catalog.refills.pending("orders")
        with live(back) as claim:
            claim.store.note_refill(replace(refill, state=RefillState.DONE, ended_ms=9))
        stop(back)
        assert back.run(*REMOVE, "orders").exit_code == 0
        by_a_run(back)
    assert before.standing("refunds") is Standing.BACK
    assert standing_of(back) == {"orders": None, "refunds": Standing.IN}


def test_and_is_not_set_aside_either(back: Scene) -> None:
    job = back.catalog.definition("orders")
    config = from_stored(job.config)
    config = replace(config, job=config.job.model_copy(update={"on_error": "set-aside"}))
    assert of_one_table(BadData("x").of("orders"), job, config) is None
    assert of_one_table(BadData("x").of("refunds"), job, config) == "refunds"


def test_a_table_that_is_set_aside_cannot_be_added_but_put_back(out: Scene) -> None:
    before = out.catalog.definition("orders")
    asked = ("add", "orders", "--table", "refunds", "--into-existing", "--config", "job.toml")
    with typed(out.refused(*asked)) as hint:
        (words,) = hint.commands()
        assert out.catalog.definition("orders") == before
        assert out.run(*words).exit_code == 0
        put_back(out)
    assert standing_of(out)["refunds"] is Standing.BACK
    assert "has table 'refunds' already" in out.run(*asked).output


@pytest.mark.parametrize(
    ("aside_first", "dies"),
    [(True, ""), (True, "redefinition-checked"), (True, "redefined"), (False, "")],
)
def test_one_that_is_set_aside_is_dropped_with_its_rows_whatever_came_first(
    two: Scene, monkeypatch: pytest.MonkeyPatch, aside_first: bool, dies: str
) -> None:
    """Also where the run that takes the command dies at this point: the next one does it."""
    asked = (*REMOVE, "refunds", "--with-rows", "--confirm", "orders")
    assert aside_first or two.run(*asked).exit_code == 0
    with live(two) as claim:
        aside(two, claim)
    stop(two)
    assert not aside_first or two.run(*asked).exit_code == 0
    if dies:
        with monkeypatch.context() as dying, live(two) as claim:
            dying.setattr(redefine, "hit", kills(dies))
            with pytest.raises(Killed):
                taken(two, claim)
        assert any(name.endswith(".refunds") for name in told(two.sink))
        stop(two)
    with live(two) as claim:
        taken(two, claim)
    assert standing_of(two)["refunds"] is None
    assert not [name for name in told(two.sink) if name.endswith(".refunds")]
    assert agreed(two) == {"orders"}


def test_one_that_is_of_another_job_by_now_is_not_dropped(out: Scene) -> None:
    asked = (*REMOVE, "refunds", "--with-rows", "--confirm", "orders")
    assert out.run(*asked).exit_code == 0
    mine = a_table("refunds", schema=schema_json(id="long", name="string"))
    out.config.open_sink().prepare("fresh", (mine,), True)
    assert "was refused" in by_a_run(out)
    assert standing_of(out)["refunds"] is Standing.ASIDE
    out.sql(out.sink, "SELECT error(name) FROM refunds WHERE name <> 'kept'")


@pytest.mark.parametrize("gone", ["recreated", "removed by retention", "of one that was added"])
def test_a_topic_that_cannot_go_on_after_the_tables_last_commit_is_read_anew(out: Scene, gone: str) -> None:
    job = out.catalog.definition("orders")
    before = replace(aside_of(job, "refunds"), position={"refunds/0": 7})

    def observe(at: Position, _open: bool) -> UpstreamView:
        assert at == Position.of({"refunds/0": 7})
        if gone == "recreated":
            raise StateConflict("topic 'refunds' was recreated")
        oldest = {"refunds/0": 8} if gone == "removed by retention" else {"refunds/0": 0, "refunds/1": 2}
        return UpstreamView("{}", Position.of({"refunds/0": 9}), oldest=Position.of(oldest))

    capabilities = SimpleNamespace(reads=Partitions(()))
    upstream = SimpleNamespace(capabilities=capabilities, restore=lambda _pin: None, observe=observe)
    alone: Any = SimpleNamespace(upstream=upstream, with_retries=lambda act: act())
    with pytest.raises(
        (StateConflict, HistoryGone), match=r"recreated|0 is needed from offset 7|1 is needed from offset 0"
    ) as no:
        redefine._pin_of(job, before, job.pin, alone)
    with typed(no.value) as hint:
        remove, add = hint.commands()
        assert out.run(*remove).exit_code == 0
        by_a_run(out)
        assert out.run(*add).exit_code == 0
        by_a_run(out)
    assert standing_of(out)["refunds"] is Standing.IN


def test_files_that_are_gone_may_be_some_that_the_table_lacks(out: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever removes applied files by age does not know that a table was set aside before them."""
    with monkeypatch.context() as patched:
        gone_meanwhile(out, patched, exact=True)
        with pytest.raises(HistoryGone) as no:
            difference("orders", out.catalog, "refunds", Extent(), out.folder)
    assert "0001.jsonl was removed; of what came while it was set aside some may be gone, too" in str(no.value)
    with typed(no.value) as hint:
        remove, add, status = hint.commands()
        removed = out.run(*remove)
        assert removed.exit_code == 0, removed.output
        by_a_run(out)
        assert out.run(*add).exit_code == 0
        by_a_run(out)
        assert out.run(*status).exit_code == 0
    assert standing_of(out)["refunds"] is Standing.IN


def with_rows_of_others(s: Scene) -> JobDefinition:
    """The job, whose table that is aside was filled into one that had rows."""
    job = s.catalog.definition("orders")
    (before,) = job.aside
    kept = tuple(replace(one, plain_inserts=False) for one in decode(tuple[SinkTable, ...], before.tables))
    tables = tuple(replace(one, plain_inserts=one.name != "refunds") for one in job.tables)
    return replace(
        job, strategy="source", tables=tables, aside=(replace(before, tables=encode(kept), exact=False),)
    )


@pytest.mark.parametrize("late", [False, True])
def test_rows_of_others_are_not_taken_for_extra_ones_of_a_table_that_is_put_back(
    out: Scene, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Of a topic, too: its partitions go on after the last commit, but the rows may not have been right at it.

    late: what the command could not know is met where it is compared.
    """
    if late:
        assert out.run(*REFILL).exit_code == 0
        put_back(out)
    job = with_rows_of_others(out)
    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "definition", lambda *_: job)
        act: Any = (
            partial(difference, "orders", out.catalog, "refunds", Extent(), out.folder)
            if late
            else partial(refilling.refill, out.catalog, out.catalog.job("orders"), "refunds", None, None)
        )
        with pytest.raises(UsageError, match=r"rows that were in refunds before .*cannot be told") as no:
            act()
    with typed(no.value) as hint:
        remove, add = hint.commands()
        assert "--with-rows" not in remove
        assert out.run(*remove).exit_code == 0
        by_a_run(out)
        assert out.run(*add).exit_code == 0
        by_a_run(out)
    assert standing_of(out)["refunds"] is Standing.IN


def test_a_hint_that_names_the_table_keeps_the_part_that_was_typed(two: Scene) -> None:
    for verb, *part in (
        ("refill", "--range", "1..2"),
        ("refill", "--where", "id > 1"),
        ("verify", "--range", "1..2"),
    ):
        said = two.run(verb, "orders", *part)
        assert said.exit_code == 2
        assert f"{verb} orders --table orders {shlex.join(part)}" in said.output


def test_nor_does_the_last_table_leave_where_the_other_is_set_aside_first(two: Scene) -> None:
    assert two.run(*REMOVE, "orders").exit_code == 0
    with live(two) as claim:
        aside(two, claim)
    stop(two)
    assert "was refused: 'orders' is the only table of job 'orders'" in by_a_run(two)
    assert standing_of(two) == {"orders": Standing.IN, "refunds": Standing.ASIDE}


def test_a_set_that_waits_while_a_table_is_set_aside_is_taken_without_it(two: Scene) -> None:
    (two.folder / "job.toml").write_text(SHOP.replace('limit = "1s"', 'limit = "2s"') + REFUNDS)
    with live(two) as claim:
        assert two.run("set", "orders", "--config", "job.toml").exit_code == 0
        aside(two, claim)
        (said,) = taken(two, claim)
    assert "was refused" not in said
    config = from_stored(two.catalog.definition("orders").config)
    assert (config.retry.limit_s, [one.name for one in config.tables]) == (2, ["orders"])
    assert standing_of(two)["refunds"] is Standing.ASIDE


def test_its_rate_stays_with_it_and_can_be_changed_meanwhile(two: Scene) -> None:
    throttle = ("throttle", "orders", "--table", "refunds", "--rate")
    assert two.run(*throttle, "5").exit_code == 0
    with live(two) as claim:
        job = aside(two, claim)
    stop(two)
    row = two.catalog.job("orders")
    assert Barrier.taking((), row.epoch, 9, row.control, job.commanded).mutations.control.rates == {"refunds": 5}
    assert two.run(*throttle, "7").exit_code == 0
    assert two.run(*REFILL).exit_code == 0
    put_back(two)
    assert two.catalog.job("orders").control.rates == {"refunds": 7}


def test_one_that_is_forgotten_takes_its_rate_along(out: Scene) -> None:
    assert out.run("throttle", "orders", "--table", "refunds", "--rate", "5").exit_code == 0
    assert out.run(*REMOVE, "refunds").exit_code == 0
    by_a_run(out)
    assert out.catalog.job("orders").control.rates == {}


def test_no_refill_of_a_table_that_is_set_aside_can_be_cancelled(out: Scene) -> None:
    assert "no refill of table 'refunds' is pending" in out.run(*REFILL, "--cancel").output
