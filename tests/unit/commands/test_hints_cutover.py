"""What `cutover` refuses, and its way on typed: the names are cut over, or back, or shown how to be."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import duckdb_shared
import pytest
from command_builders import fake_engine
from half_done import EPOCH, commit_of, progress
from hint_scene import EQUAL, PlainSink, Scene, scene
from hint_typed import Typed, typed
from lake_states import SINK as DELTA

from backfill_cli.config import from_stored
from backfill_cli.engine import cutover
from backfill_cli.errors import UsageError
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.verify import VerifyReport

__all__ = ["scene"]

pytestmark = pytest.mark.seconds


def live(s: Scene, name: str) -> None:
    """The job's config says what people query."""
    file = s.folder / "job.toml"
    file.write_text(file.read_text().replace('key = ["id"]', f'key = ["id"]\nlive = "{name}"'))
    assert s.run("start", "--config", "job.toml").exit_code == 0


def test_a_job_gets_the_name_that_people_query_and_is_cut_over_to_it(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    assert s.run("start", "--config", "job.toml").exit_code == 0  # so the catalog knows the file
    with typed(s.refused("cutover", "orders")) as hint:
        file = s.folder / "job.toml"
        (name,) = hint.settings().values()
        file.write_text(file.read_text().replace('key = ["id"]', f'key = ["id"]\nlive = {json.dumps(name)}'))
        for words in hint.commands():
            done = s.run(*words)
            assert done.exit_code == 0, done.output
    with duckdb_shared.opened(s.sink) as db:
        assert db.execute(f"SELECT count(*) FROM {name}").fetchall() == [(0,)]


def test_a_cutover_is_not_reversed_before_it_was_made_and_by_hand_once_its_time_has_expired(
    scene: Callable[..., Scene],
) -> None:
    s = scene("0")
    s.sql(s.sink, "CREATE TABLE shown AS SELECT 7 AS before")
    s.catch_up()
    live(s, "shown")
    with typed(s.refused("cutover", "orders", "--reverse")) as hint:
        (words,) = hint.commands()
        assert "every gate is open" in s.run(*words).output
    assert s.run("cutover", "orders", "--window", "1ms").exit_code == 0
    with typed(s.refused("cutover", "orders", "--reverse")) as hint:
        hint.says("in one transaction: drop the view shown and rename shown_before_20 to shown")
        s.sql(s.sink, "BEGIN; DROP VIEW shown; ALTER TABLE shown_before_20 RENAME TO shown; COMMIT")
    with duckdb_shared.opened(s.sink) as db:
        assert db.execute("SELECT before FROM shown").fetchall() == [(7,)]
    assert s.run("cutover", "orders").exit_code == 0, "it can be cut over again"


def test_names_of_delta_tables_are_changed_where_they_are_defined(scene: Callable[..., Scene]) -> None:
    s = scene("0", DELTA)
    s.catch_up()
    live(s, "people.orders")
    with typed(s.refused("cutover", "orders")) as hint:
        (words,) = hint.commands()
        shown = s.run(*words)
        assert shown.exit_code == 0, shown.output
        assert "people.orders" in shown.output


def test_where_tables_are_cut_over_in_place_a_name_is_taken_out_of_the_config(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    live(s, "shown")
    with pytest.raises(UsageError, match="switches the table itself") as refused:
        cutover._swaps(s.catalog.definition("orders"), in_place=True)
    with typed(refused.value) as hint:
        hint.says("remove tables.live from the config")
        file = s.folder / "job.toml"
        file.write_text(file.read_text().replace('live = "shown"\n', ""))
        (words,) = hint.commands(FILE="job.toml")
        assert s.run(*words).exit_code == 0
        (swap,) = cutover._swaps(s.catalog.definition("orders"), in_place=True)
        assert swap.live == "orders"


def test_a_sink_without_views_leaves_the_view_to_people(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()
    config = from_stored(s.catalog.definition("orders").config)
    monkeypatch.setattr(cutover.Resources, "sink", property(lambda self: PlainSink(config.open_sink())))
    with typed(s.refused("cutover", "orders")) as hint:
        (words,) = hint.commands()
        fake_engine(monkeypatch, "verify.job", verify=lambda *_: EQUAL)
        assert s.run(*words).exit_code == 0
        hint.says("create the view in the system that people query through")
        s.sql(s.sink, "CREATE VIEW shown AS FROM orders")
        s.sql(s.sink, "FROM shown")


def test_each_closed_gate_is_opened_by_what_it_says(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.sql(s.sink, "CREATE TABLE shown AS SELECT 7 AS before; CREATE INDEX i ON shown (before)")
    live(s, "shown")
    with opened(s, "caught up") as hint:
        assert [" ".join(words) for words in hint.commands()] == [
            "resume orders --detach",
            "wait orders --for caught-up",
        ]
        s.catch_up()
    s.sql(s.catalog.path, "UPDATE jobs SET state = 'stopped'")
    with opened(s, "caught up") as hint:
        typed_in(s, hint)
    fake_engine(monkeypatch, "verify.job", verify=lambda *_: verified(s, EQUAL))
    fake_engine(monkeypatch, "verify.fix", fix=lambda *_: verified(s, EQUAL))
    (table,) = EQUAL.tables
    for found in (
        replace(EQUAL, epoch=EPOCH),
        replace(EQUAL, tables=(replace(table, equal=False),)),
        replace(EQUAL, not_compared={"orders": 3}),
    ):
        verified(s, found)
        with opened(s, "verified") as hint:
            typed_in(s, hint)
    died_after_a_commit(s)
    with opened(s, "no other writer") as hint:
        typed_in(s, hint)
    with opened(s, "nothing left behind") as hint:
        hint.says("drop them; after the cutover, create views again, and indexes on the job's table")
        s.sql(s.sink, "DROP INDEX i")
    verified(s, replace(EQUAL, epoch=30))
    assert s.run("cutover", "orders").exit_code == 0
    s.sql(s.sink, "CREATE INDEX i ON orders (name)")


def died_after_a_commit(s: Scene) -> None:
    """The sink has an epoch of which the catalog does not know yet that it is committed."""
    sink = s.config.open_sink()
    with s.catalog.claim("orders", "test", 5) as claim:
        sink.fence("orders", claim.token)
        before = claim.store.load().committed
        epoch = replace(before, epoch=30, prev_ms=EQUAL.epoch, token=claim.token, attempt="a30")
        claim.store.prepare(replace(epoch, plan=EpochPlan(), staged=Staged("a30")), None, progress())
        sink.commit(commit_of(s.job, epoch, EQUAL.epoch))


def verified(s: Scene, found: VerifyReport) -> VerifyReport:
    s.catalog.verified.note(found)
    return found


def typed_in(s: Scene, hint: Typed) -> None:
    for words in hint.commands():
        done = s.run(*words)
        assert done.exit_code == 0, (words, done.output)


@contextmanager
def opened(s: Scene, gate: str) -> Iterator[Typed]:
    """What the closed gate says is typed in the block; then it is open."""
    with typed(gates(s, closed=True)[gate]) as hint:
        yield hint
    assert gate in gates(s, closed=False)


def gates(s: Scene, closed: bool) -> dict[str, str]:
    shown = json.loads(s.run("cutover", "orders", "--dry-run", "--json").stdout)
    return {
        one["name"]: (one["fix"] or {"text": ""})["text"] for one in shown["gates"] if one["open"] is not closed
    }
