"""A table that is set aside: the job goes on without it, and `refill` puts it back."""

import json
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import half_done
import pytest
import test_command_tables as tables
from half_done import CONFIG, EPOCH
from hint_scene import Scene, scene, settled
from hint_typed import typed
from sink_contract import a_table, schema_json
from test_command_tables import REFUNDS, add, agreed, live, s, stop, taken

from backfill_cli.catalog import Catalog, Claim
from backfill_cli.config import JobConfig, from_stored, load
from backfill_cli.contracts import JobDefinition, Partitions, Source, TableSpec
from backfill_cli.engine.job.aside import kept_of, require_able, require_aside
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import sections_of
from backfill_cli.engine.loop import aside as setting_aside
from backfill_cli.engine.loop import recovery, redefine
from backfill_cli.engine.loop.aside import not_put_back, of_one_table, refills_of, set_aside
from backfill_cli.engine.loop.recovery import take_back
from backfill_cli.engine.refill.compare import difference
from backfill_cli.engine.staging.quarantine import side_name
from backfill_cli.engine.verify.job import Verification
from backfill_cli.errors import (
    START_OVER,
    BackfillError,
    BadData,
    Held,
    HistoryGone,
    Transient,
    UsageError,
    command,
)
from backfill_cli.model.aside import with_sections
from backfill_cli.model.job import Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.refill import Extent, RefillState
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin
from backfill_cli.upstreams.kafka import connector as kafka

__all__ = ["s", "scene"]

pytestmark = pytest.mark.seconds

SHOP = CONFIG.replace('path = "snapshot"', 'path = "snapshot/{table}"')
ASIDE = SHOP.replace('name = "orders"\n[up', 'name = "orders"\non_error = "set-aside"\n[up')
WHY = Limit("table 'refunds': a value that the sink cannot take", hint=command("verify orders"))


@pytest.fixture
def two(s: Scene) -> Scene:
    """The job has both tables, stopped; the sink has a row of the second."""

    def joined() -> None:
        (s.folder / "job.toml").write_text(SHOP + REFUNDS)
        add(s, "--config", "job.toml")
        with live(s) as claim:
            taken(s, claim)
        stop(s)
        s.sql(s.sink, "INSERT INTO refunds VALUES (1, 'kept')")

    return settled(s, "two", joined)


def aside(s: Scene, claim: Claim, why: Limit = WHY, table: str = "refunds") -> JobDefinition:
    """As a run sets the table aside, and goes on."""
    job = s.catalog.definition("orders")
    config = from_stored(job.config)
    with Resources(config) as resources, ExitStack() as opened:
        resources.upstream.restore(job.pin)
        job, _, after = set_aside(
            job, config, resources, claim.store, opened, lambda _: None, claim.token, table, why
        )
        tables._recovered(s, claim, after)
    assert job == s.catalog.definition("orders")
    return job


@pytest.fixture
def out(two: Scene) -> Scene:
    """The second table is set aside."""

    def put_aside() -> None:
        with live(two) as claim:
            aside(two, claim)
        stop(two)

    return settled(two, "out", put_aside)


def put_back(s: Scene) -> None:
    """A run takes the command that puts it back."""
    with live(s) as claim:
        (said,) = taken(s, claim)
        assert "goes on with the tables" in said
    stop(s)


def test_the_job_goes_on_without_it_and_the_sink_keeps_its_rows(out: Scene) -> None:
    job = out.catalog.definition("orders")
    assert {one.name for one in job.tables} == job.pin.schema.keys() == {"orders"}
    assert [one["name"] for one in json.loads(job.config)["tables"]] == ["orders"]
    assert agreed(out) == {"orders"}, "and the sink keeps the definition"
    assert out.catalog.job("orders").epoch > EPOCH
    out.sql(out.sink, "SELECT error(name) FROM refunds WHERE name <> 'kept'")
    (one,) = job.aside
    assert (one.table, one.cause, one.refill) == ("refunds", WHY, None)
    (line,) = [one.mutations for one in out.catalog.ledger("orders", 9) if one.mutations.startswith("set aside")]
    assert line == "set aside refunds"


def test_status_says_so_with_the_error_and_what_to_type_and_the_job_is_not_healthy(out: Scene) -> None:
    said = out.run("status", "orders").stdout
    assert "set aside: " in said
    assert "a value that the sink cannot take" in said
    assert "backfill verify orders; then: backfill refill orders --table refunds" in said
    (told,) = json.loads(out.run("status", "orders", "--json").stdout)["jobs"]
    (one,) = told["aside"]
    assert (one["table"], one["error"]["text"], one["keeps"]) == ("refunds", WHY.text, "")
    check = out.run("status", "orders", "--check")
    assert check.exit_code == 1


def test_where_only_a_new_start_would_help_the_table_can_be_let_go(two: Scene) -> None:
    changed = Limit("table 'refunds': column 'v' was integer, and is now long", hint=START_OVER)
    with live(two) as claim:
        aside(two, claim, why=changed)
    stop(two)
    (told,) = json.loads(two.run("status", "orders", "--json").stdout)["jobs"]
    (one,) = told["aside"]
    assert one["error"]["hint"]["commands"] == [
        "backfill refill orders --table refunds",
        "backfill remove orders --table refunds",
    ]
    with live(two) as claim:
        assert two.run("remove", "orders", "--table", "refunds").exit_code == 0
        taken(two, claim)
    assert two.catalog.definition("orders").aside == ()


class Killed(Exception):
    """As by kill -9: nothing of the process goes on."""


def kills(at: str) -> Callable[[str], None]:
    """The process dies at this point."""

    def hit(point: str) -> None:
        if point == at:
            raise Killed

    return hit


@pytest.mark.parametrize("at", ["aside-checked", "aside"])
def test_a_run_that_is_killed_meanwhile_leaves_the_table_in_or_aside_and_never_half(
    two: Scene, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    before = two.catalog.definition("orders")

    with monkeypatch.context() as patch:
        patch.setattr(setting_aside, "hit", kills(at))
        with live(two) as claim, pytest.raises(Killed):
            aside(two, claim)
    stop(two)
    now = two.catalog.definition("orders")
    assert (now == before) == (at == "aside-checked")
    with live(two) as claim:
        if now == before:
            aside(two, claim)
        else:
            with Resources(from_stored(now.config)) as resources:
                tables._recovered(two, claim, resources)
    assert agreed(two) == {"orders"}


def test_refill_puts_it_back_as_if_it_had_been_read_and_asks_for_all_its_rows(out: Scene) -> None:
    before = out.catalog.definition("orders").aside[0]
    done = out.run("refill", "orders", "--table", "refunds")
    assert done.exit_code == 0, done.output
    put_back(out)
    job = out.catalog.definition("orders")
    assert {one.name for one in job.tables} == job.pin.schema.keys() == {"orders", "refunds"}
    assert all(one.plain_inserts for one in job.tables)
    (refill,) = out.catalog.refills.pending("orders")
    assert job.aside == (replace(before, refill=refill.id),)
    assert refill.since is not None
    assert refill.extent.whole
    assert agreed(out) == {"orders", "refunds"}
    with live(out) as claim:
        kept = claim.store.load().committed
        assert [one.status for (of, _), one in kept.splits.items() if of == "refunds"] == [SplitStatus.CONSUMED]
        claim.store.note_refill(replace(refill, state=RefillState.DONE, ended_ms=9))
        assert claim.store.commands() == ()
    assert out.catalog.definition("orders").aside == ()
    out.sql(out.sink, "SELECT error(name) FROM refunds WHERE name <> 'kept'")


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
def test_a_table_whose_refill_ends_otherwise_is_set_aside_again_with_the_cause(out: Scene, ends: str) -> None:
    assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
    put_back(out)
    (refill,) = out.catalog.refills.pending("orders")
    with live(out) as claim:
        if ends == "fails":
            why = Limit("its rows are gone upstream")
            claim.store.note_refill(replace(refill, state=RefillState.FAILED, ended_ms=9, why=why))
        else:
            stop(out)
    if ends != "fails":
        assert out.run("refill", "orders", "--table", "refunds", "--cancel").exit_code == 0
    job = out.catalog.definition("orders")
    found = not_put_back(job, refills_of(job, out.catalog))
    assert found is not None
    assert found[0] == "refunds"
    assert ("gone upstream" if ends == "fails" else "cancelled by") in found[1].text
    stop(out)
    with live(out) as claim:
        job = aside(out, claim, found[1])
    assert [(one.table, one.refill) for one in job.aside] == [("refunds", None)]
    assert agreed(out) == {"orders"}


def test_an_error_while_it_is_put_back_ends_its_refill_with_that_cause(out: Scene) -> None:
    assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
    put_back(out)
    with live(out) as claim:
        aside(out, claim, Limit("the same value again"))
    (refill,) = out.catalog.job("orders").refills
    assert (refill.state, refill.why.text) == (RefillState.FAILED, "the same value again")
    assert not out.catalog.refills.pending("orders")


def test_a_table_that_another_job_has_by_now_is_not_put_back_and_says_why(out: Scene) -> None:
    mine = a_table("refunds", schema=schema_json(id="long", name="string"))
    out.config.open_sink().prepare("fresh", (mine,), True)
    assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
    with live(out) as claim:
        (said,) = taken(out, claim)
    assert "was refused" in said
    (refill,) = out.catalog.job("orders").refills
    assert refill.state is RefillState.FAILED
    assert "fresh" in refill.why.text
    assert [one.refill for one in out.catalog.definition("orders").aside] == [None]
    assert agreed(out) == {"orders"}


def test_only_all_of_it_is_put_back(out: Scene) -> None:
    with typed(out.refused("refill", "orders", "--table", "refunds", "--where", "id > 1")) as hint:
        (words,) = hint.commands()
        assert out.run(*words).exit_code == 0
        put_back(out)


def test_a_refill_that_is_cancelled_before_a_run_takes_it_changes_nothing(out: Scene) -> None:
    assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
    assert out.run("refill", "orders", "--table", "refunds", "--cancel").exit_code == 0
    with live(out) as claim:
        (said,) = taken(out, claim)
        assert "its refill was cancelled" in said
    with typed(refusal_of(out)) as hint:
        (words,) = hint.commands()
        assert "set aside" in out.run(*words).stdout
    assert agreed(out) == {"orders"}


def refusal_of(s: Scene) -> str:
    (one,) = [one for one in s.catalog.close_look("orders", 1, 9)[3] if one.command.verb is Verb.PUT_BACK]
    refusal = s.catalog.refusal("orders", one.command.id)
    assert refusal is not None
    return str(refusal.hint)


def test_a_table_that_is_not_set_aside_by_then_stays_as_it_is(out: Scene) -> None:
    assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
    out.sql(out.catalog.path, "UPDATE jobs SET aside = NULL")
    with live(out) as claim:
        (said,) = taken(out, claim)
        assert "'refunds' is not set aside" in said
    with typed(refusal_of(out)) as hint:
        (words,) = hint.commands()
        assert "set aside:" not in out.run(*words).stdout


@pytest.mark.parametrize("state", ["aside", "back"])
def test_what_needs_its_rows_names_it(out: Scene, state: str) -> None:
    if state == "back":
        assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
        put_back(out)
    for words in (["verify", "orders", "--table", "refunds"], ["cutover", "orders"], ["cutover", "--dry-run"]):
        with typed(out.refused(*words)) as hint:
            (then,) = hint.commands()
            done = out.run(*then)
            assert done.exit_code in (0, 2), done.output
            if state == "back":
                assert "is being put back" in done.stdout
        if state == "aside" and out.catalog.refills.pending("orders"):
            break  # the hint was typed: it is asked for


def test_it_can_be_forgotten_and_its_rows_stay(out: Scene) -> None:
    assert out.run("remove", "orders", "--table", "refunds").exit_code == 0
    with live(out) as claim:
        taken(out, claim)
    assert out.catalog.definition("orders").aside == ()
    out.sql(out.sink, "SELECT error(name) FROM refunds WHERE name <> 'kept'")


def test_the_job_is_dropped_with_its_rows(out: Scene) -> None:
    done = out.run("drop", "orders", "--with-rows", "--confirm", "orders")
    assert done.exit_code == 0, done.output
    assert not [name for name in tables.half_done.told(out.sink) if name.endswith((".orders", ".refunds"))]


def test_the_same_file_is_still_the_jobs_config(out: Scene) -> None:
    (out.folder / "job.toml").write_text(SHOP.replace('limit = "1s"', 'limit = "2s"') + REFUNDS)
    done = out.run("set", "orders", "--config", "job.toml")
    assert done.exit_code == 0, done.output
    job = out.catalog.definition("orders")
    assert from_stored(job.config).retry.limit_s == 2
    assert [one.name for one in from_stored(job.config).tables] == ["orders"]
    assert out.run("plan", "--config", "job.toml").exit_code == 0


@pytest.mark.parametrize("by", ["set", "start"])
def test_it_comes_back_as_the_newest_config_has_it(out: Scene, by: str) -> None:
    section = f'{REFUNDS}rate = 7\non_error = "set-aside"\n'
    (out.folder / "job.toml").write_text(SHOP + section)
    if by == "set":
        said = out.run("set", "orders", "--config", "job.toml")
        assert said.exit_code == 0, said.output
        assert "tables.refunds.rate, tables.refunds.on_error" in said.stdout + said.stderr, said.output
    else:
        job = out.catalog.definition("orders")
        now = with_sections(job.aside, sections_of(job, load(out.folder / "job.toml")))
        with live(out) as claim:
            claim.store.redefine(job.config, job.until, job.config_file, now)
        stop(out)
    assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
    with live(out) as claim:
        taken(out, claim)
    one = from_stored(out.catalog.definition("orders").config).table("refunds")
    assert (one.rate, one.on_error) == (7, "set-aside")


def test_a_section_with_which_it_could_not_come_back_is_refused(out: Scene) -> None:
    (out.folder / "job.toml").write_text(SHOP + REFUNDS.replace('key = ["id"]', 'key = ["name"]'))
    before = out.catalog.definition("orders")
    assert sections_of(before, from_stored(before.config)) == (), "one that is not named stays as it is"
    said = out.run("set", "orders", "--config", "job.toml")
    assert said.exit_code == 2
    assert "tables.refunds.key" in said.output
    assert out.catalog.definition("orders") == before


@pytest.mark.parametrize("state", ["aside", "back"])
def test_a_lost_catalog_is_rebuilt_with_it_and_what_was_being_put_back_is_refilled_again(
    out: Scene, state: str
) -> None:
    if state == "back":
        assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
        put_back(out)
    out.catalog.path.unlink()
    done = out.run("resume", "orders", "--from-sink", "job.toml")
    assert "differ" not in done.output, done.output
    (one,) = out.catalog.definition("orders").aside
    pending = [(refill.id, refill.table) for refill in out.catalog.refills.pending("orders")]
    assert pending == ([] if state == "aside" else [(one.refill, "refunds")])


@pytest.mark.parametrize(
    ("error", "config", "found"),
    [
        (BadData("x").of("refunds"), ASIDE, "refunds"),
        (BadData("x").of("refunds"), SHOP, None),
        (BadData("x"), ASIDE, None),
        (BadData("x").of(""), ASIDE, None),
        (BadData("x").of(side_name("refunds")), ASIDE, None),
        (Transient("x").of("refunds"), ASIDE, None),
        (Held("x").of("refunds"), ASIDE, None),
        (BadData("x").of("refunds"), ASIDE + 'on_error = "stop"\n', None),
        (BadData("x").of("refunds"), SHOP + 'on_error = "set-aside"\n', "refunds"),
    ],
)
def test_only_an_error_of_one_table_sets_it_aside_where_the_config_says_so(
    two: Scene, error: BackfillError, config: str, found: str | None
) -> None:
    end = 'on_error = "stop"\n' if config.endswith('"stop"\n') else ""
    end = 'on_error = "set-aside"\n' if config.startswith(SHOP) and config != SHOP else end
    (two.folder / "job.toml").write_text(config.removesuffix(end) + REFUNDS + end)
    job = two.catalog.definition("orders")
    assert of_one_table(error, job, load(two.folder / "job.toml")) == found


def test_the_last_table_is_never_set_aside(out: Scene) -> None:
    (out.folder / "job.toml").write_text(ASIDE)
    job = out.catalog.definition("orders")
    assert of_one_table(BadData("x").of("orders"), job, load(out.folder / "job.toml")) is None


@pytest.mark.parametrize("option", ["job.on_error", "tables.on_error"])
def test_where_a_table_could_not_be_put_back_on_error_is_refused_by_name(two: Scene, option: str) -> None:
    asked = 'on_error = "set-aside"\n'
    text = ASIDE + REFUNDS if option == "job.on_error" else SHOP + REFUNDS + asked
    (two.folder / "job.toml").write_text(text)
    config, job = load(two.folder / "job.toml"), two.catalog.definition("orders")
    upstream = config.unreached_upstream()
    require_aside(config, job.strategy, upstream, job.pin)
    with typed(two.failed(lambda: require_aside(config, "chain", upstream, job.pin))) as hint:
        assert hint.settings() == {option: "stop"}
        (two.folder / "job.toml").write_text(text.replace("set-aside", "stop"))
        require_aside(load(two.folder / "job.toml"), "chain", upstream, job.pin)


@pytest.mark.parametrize("shared", [False, True])
def test_tables_of_topics_are_set_aside_where_each_has_its_own(shared: bool) -> None:
    topics = {"topic": "shop"} if shared else {"topics": "shop.{table}"}
    told = {"bootstrap_servers": "127.0.0.1:1", "value": {"format": "debezium", "schema": "id INT"}, **topics}
    names = ["orders", "refunds"]
    upstream = kafka.open(kafka.options.model_validate(told), [TableSpec(name, ("id",)) for name in names])
    refused = pytest.raises(
        UsageError, match="no table can leave job 'orders': its tables are read from one topic"
    )
    with refused if shared else nullcontext():
        require_able("orders", "source", upstream, Pin(Position(), None, None, ()), names, "orders")


class Tags:
    """A lease as an Iceberg table has one, by what is asked of it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def join(self, mark: str) -> None:
        self.told.append(("join", mark))

    def give_up(self, table: str, mark: str) -> None:
        self.told.append(("give up", mark))

    def leave(self, table: str, pin: Pin) -> None:
        self.told.append(("leave", (table, *pin.schema)))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@pytest.fixture
def tags(monkeypatch: pytest.MonkeyPatch) -> Tags:
    made = Tags()
    monkeypatch.setattr(Source, "lease", made)
    return made


@pytest.mark.parametrize("then", ["refill", "remove", "drop"])
def test_what_is_held_of_a_table_is_let_go_though_the_run_died_that_set_it_aside(
    two: Scene, monkeypatch: pytest.MonkeyPatch, tags: Tags, then: str
) -> None:
    with monkeypatch.context() as patch, live(two) as claim:
        patch.setattr(setting_aside, "hit", kills("aside"))
        with pytest.raises(Killed):
            aside(two, claim)
    with live(two) as claim:
        taken(two, claim)  # the next one recovers
    stop(two)
    assert tags.told == []
    if then == "drop":
        assert two.run("drop", "orders", "--confirm", "orders").exit_code == 0
    else:
        assert two.run(then, "orders", "--table", "refunds").exit_code == 0
        with live(two) as claim:
            taken(two, claim)
    assert tags.told[0] == ("leave", ("refunds", "refunds"))


@pytest.mark.parametrize("then", ["taken", "cancelled"])
def test_what_a_put_back_holds_has_the_name_of_its_command_whatever_run_dies(
    out: Scene, monkeypatch: pytest.MonkeyPatch, tags: Tags, then: str
) -> None:
    assert out.run("refill", "orders", "--table", "refunds").exit_code == 0
    with monkeypatch.context() as patch, live(out) as claim:
        patch.setattr(redefine, "hit", kills("redefinition-checked"))
        with pytest.raises(Killed):
            taken(out, claim)
    stop(out)
    if then == "cancelled":
        assert out.run("refill", "orders", "--table", "refunds", "--cancel").exit_code == 0
    with live(out) as claim:
        taken(out, claim)
    marks = [mark for told, mark in tags.told if told != "leave"]
    assert [told for told, _ in tags.told if told != "leave"] == ["join", "join" if then == "taken" else "give up"]
    assert len(set(marks)) == 1
    assert marks[0]


@pytest.mark.parametrize("then", ["DROP TABLE refunds", "DELETE FROM refunds", "SELECT 1"])
def test_rows_that_somebody_removed_meanwhile_are_known_to_be_gone(out: Scene, then: str) -> None:
    """The log goes on after the last commit: what is not compared would have to be there."""
    job = out.catalog.definition("orders")
    out.sql(out.sink, then)
    with Resources(from_stored(job.config)) as resources:
        assert redefine._has_rows(resources.sink, "orders", kept_of(job, "refunds")) is (then == "SELECT 1")


def gone_meanwhile(s: Scene, monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    """What the refill that puts refunds back would compare with is gone."""
    assert s.run("refill", "orders", "--table", "refunds").exit_code == 0
    put_back(s)
    job = s.catalog.definition("orders")
    known = replace(job, aside=(replace(job.aside[0], exact=exact),))
    monkeypatch.setattr(Catalog, "definition", lambda *_: known)

    def gone(*_: Any) -> None:
        raise HistoryGone("changes/0001.jsonl was removed")

    monkeypatch.setattr(Verification, "of", gone)


@pytest.mark.parametrize("exact", [True, False])
def test_a_topic_that_went_on_after_the_last_commit_needs_no_comparison(
    out: Scene, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    """What was applied before is gone: nothing is found, and nothing lacks, unless rows were not right then."""
    gone_meanwhile(out, monkeypatch, exact)
    partitions = SimpleNamespace(capabilities=SimpleNamespace(reads=Partitions(())))
    monkeypatch.setattr(Resources, "upstream", partitions)
    with nullcontext() if exact else pytest.raises(HistoryGone):
        found = difference("orders", out.catalog, "refunds", Extent(), out.folder)
        assert found.rows == 0
        assert found.why.startswith("changes/0001.jsonl was removed; its rows are right if nobody else")


def test_an_epoch_that_other_tables_have_is_finished_without_the_one_that_refuses_it(two: Scene) -> None:
    with live(two) as claim:
        at = claim.store.load().committed
        reads = (SnapshotRead("orders", "0", up_to=None), SnapshotRead("refunds", "0", up_to=None))
        staged = Staged("b", {"refunds": StagedTable()}, tuple((one, 3) for one in reads))
        plan = EpochPlan(reads, closes_snapshot=("orders", "refunds"), filling=("refunds",))
        promised = replace(at, epoch=at.epoch + 1, attempt="b", plan=plan, staged=staged, splits={})
        claim.store.prepare(promised, None, None)
        aside(two, claim)
        after = claim.store.load()
    assert after.prepared is None
    assert after.committed.epoch == at.epoch + 1
    assert after.committed.schemas.keys() == {"orders"}
    assert agreed(two) == {"orders"}


def in_the_sink(s: Scene, monkeypatch: pytest.MonkeyPatch) -> int:
    """An epoch that every table has and the catalog only promised, as while its commit flew; its number."""
    with live(s) as claim:
        at = claim.store.load().committed
        promised = replace(at, epoch=at.epoch + 1, attempt="b", plan=EpochPlan(), staged=Staged("b"), splits={})
        claim.store.prepare(promised, None, None)
        killed_at(s, claim, "recovery-committed", monkeypatch)
    stop(s)
    return at.epoch + 1


def killed_at(s: Scene, claim: Claim, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run recovers, and is killed there."""

    config = from_stored(s.catalog.definition("orders").config)
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "hit", kills(at))
        with pytest.raises(Killed), Resources(config) as resources:
            tables._recovered(s, claim, resources)


@pytest.mark.parametrize("killed", ["", "recovery-tells"])
def test_the_sink_keeps_the_definition_without_it_also_where_every_table_had_the_promised_epoch(
    two: Scene, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    epoch = in_the_sink(two, monkeypatch)
    dies = pytest.raises(Killed) if killed else nullcontext()
    with live(two) as claim, monkeypatch.context() as patch, dies:
        patch.setattr(recovery, "hit", kills(killed))
        aside(two, claim)
    stop(two)
    with live(two) as claim, Resources(from_stored(two.catalog.definition("orders").config)) as resources:
        tables._recovered(two, claim, resources)
    stop(two)
    assert agreed(two) == {"orders"}
    assert [one.epoch for one in two.catalog.definition("orders").aside] == [epoch], "its rows are of that commit"
    two.catalog.path.unlink()
    assert two.run("resume", "orders", "--from-sink", "job.toml").exit_code == 0
    job = two.catalog.definition("orders")
    assert [one.name for one in job.tables] == ["orders"]
    assert [one.table for one in job.aside] == ["refunds"]


CHANGES = ', format = "parquet" }\nchanges = { path = "changes/{table}", format = "debezium" }\n'


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Scene:
    """As `two`, with change files, of which the job has applied two of each table; a third is pending."""
    write, shop = half_done.written, SHOP.replace(', format = "parquet" }\n', CHANGES)

    def written(folder: Path, **more: str) -> JobConfig:
        for table in ("orders", "refunds"):
            (folder / "changes" / table).mkdir(parents=True)
            for number in (1, 2, 3):
                changed(folder, table, number)
        return write(folder, **more)

    monkeypatch.setattr(tables, "SHOP", shop)
    monkeypatch.setattr(half_done, "written", written)
    s: Scene = request.getfixturevalue("s")

    def applied() -> None:
        (s.folder / "job.toml").write_text(shop + REFUNDS)
        add(s, "--config", "job.toml")
        with live(s) as claim:
            taken(s, claim)
            at = claim.store.load().committed
            there = Position.of({"orders": "0002.json", "refunds": "0002.json"})
            upstream = load(s.folder / "job.toml").open_upstream()
            upstream.restore(s.catalog.definition("orders").pin)
            upstream.observe(Position(), False)
            state = json.dumps(json.loads(at.state) | {"position": dict(there)})
            epoch = replace(at, epoch=at.epoch + 1, attempt="b", state=state, position=there, joined=())
            epoch = replace(
                epoch, splits={}, plan=EpochPlan(), staged=Staged("b"), memory=upstream.remembered(there)
            )
            claim.store.prepare(epoch, None, None)
            with Resources(from_stored(s.catalog.definition("orders").config)) as resources:
                tables._recovered(s, claim, resources)
            aside(s, claim)
        stop(s)

    return settled(s, "logged", applied)


def changed(folder: Path, table: str, number: int, name: str = "x") -> None:
    after = {"id": number, "name": name}
    line = {"op": "u", "before": None, "after": after, "ts_ms": number, "source": {"table": table}}
    (folder / "changes" / table / f"000{number}.json").write_text(json.dumps(line))


@pytest.mark.parametrize(
    "meanwhile", ["nothing", "applied ones go", "a pending one goes", "an applied one is changed"]
)
def test_the_log_of_a_table_that_is_put_back_goes_on_after_its_last_commit(logged: Scene, meanwhile: str) -> None:
    (one,) = logged.catalog.definition("orders").aside
    assert (one.position, one.began) == ({"refunds": "0002.json"}, {})
    changed(logged.folder, "refunds", 4)
    if meanwhile == "applied ones go":
        (logged.folder / "changes" / "refunds" / "0001.json").unlink()
        (logged.folder / "changes" / "refunds" / "0002.json").unlink()
    if meanwhile == "a pending one goes":
        (logged.folder / "changes" / "refunds" / "0003.json").unlink()
    if meanwhile == "an applied one is changed":
        changed(logged.folder, "refunds", 1, "corrected")
    assert logged.run("refill", "orders", "--table", "refunds").exit_code == 0
    put_back(logged)
    with live(logged) as claim:
        at = claim.store.load().committed
    upstream = load(logged.folder / "job.toml").open_upstream()
    upstream.restore(logged.catalog.definition("orders").pin)
    upstream.recall(at.memory)
    pending = {
        str(dict(epoch.cursors)["refunds"])[:4]
        for epoch in upstream.observe(at.position, False).pending
        if "refunds" in dict(epoch.cursors)
    }
    assert (
        pending
        == {
            "nothing": {"0003", "0004"},
            "applied ones go": {"0003", "0004"},
            "a pending one goes": {"0004"},
            "an applied one is changed": {"0001", "0002", "0003", "0004"},
        }[meanwhile]
    )
    assert at.position.get("orders") == "0002.json"
    assert json.loads(at.memory).keys() >= {"orders"}


def test_a_refusal_of_one_table_is_said_to_be_of_it_where_others_have_the_epoch() -> None:
    names = [a_table("orders"), a_table("refunds")]
    job: Any = SimpleNamespace(name="j", tables=names)
    has = SimpleNamespace(epoch=5, attempt="b", token=1)
    sink: Any = SimpleNamespace(committed=lambda _: {"orders": has})
    prepared: Any = SimpleNamespace(epoch=5, attempt="b")
    for table, found in (("refunds", "refunds"), ("orders", None), ("", None)):
        nothing: Any = None
        with pytest.raises(BadData) as stuck:
            take_back(job, nothing, sink, nothing, prepared, BadData("a value").of(table))
        assert stuck.value.table == found
        assert stuck.value.__cause__ is not None
