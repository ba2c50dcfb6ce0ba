"""`add` and `remove`: a table joins or leaves a job at a barrier; what is refused has changed nothing."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb_shared
import half_done
import hint_scene
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from half_done import CONFIG, EPOCH, ROWS
from hint_scene import Scene, scene
from hint_typed import typed
from sink_contract import a_table, schema_json

import backfill_cli as bf
from backfill_cli.catalog import Claim
from backfill_cli.config import JobConfig, from_stored, load
from backfill_cli.contracts import SinkTable, Swap
from backfill_cli.engine.job import join, ownership
from backfill_cli.engine.job.awaited import as_asked
from backfill_cli.engine.job.change import removing
from backfill_cli.engine.job.ownership import forget_strays
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop import recovery as recovering
from backfill_cli.engine.loop import redefine
from backfill_cli.engine.loop.checkpoints import without_table
from backfill_cli.engine.loop.ports import Job
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.engine.loop.redefine import redefined
from backfill_cli.engine.staging.sample import Sampled
from backfill_cli.errors import BadData, Hint, UsageError
from backfill_cli.model.change import Change
from backfill_cli.model.codec import encode
from backfill_cli.model.job import JobState, Verb
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.snapshot import SnapshotStrategy

__all__ = ["scene"]

pytestmark = pytest.mark.seconds

SHOP = CONFIG.replace('path = "snapshot"', 'path = "snapshot/{table}"')
REFUNDS = '[[tables]]\nname = "refunds"\nkey = ["id"]\n'


@pytest.fixture
def s(scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The job `orders` half done, over a folder for each table; and rows of a second one."""
    write = half_done.written

    def written(folder: Path, **more: str) -> JobConfig:
        for table in ("orders", "refunds"):
            (folder / "snapshot" / table).mkdir(parents=True)
            rows = pa.table({"id": pa.array(list(ROWS), pa.int64()), "name": list(ROWS.values())})
            pq.write_table(rows, folder / "snapshot" / table / "part-0.parquet")
        return write(folder, **more)

    def tables(config: JobConfig, *_: object, **__: object) -> tuple[SinkTable, ...]:
        schema = schema_json(id="long", name="string")
        return tuple(a_table(one.name, one.sink_name, schema=schema) for one in config.tables)

    monkeypatch.setattr(half_done, "CONFIG", SHOP)
    monkeypatch.setattr(hint_scene, "written", written)
    monkeypatch.setattr(join, "sink_tables", tables)
    monkeypatch.setattr(join, "require_readable", lambda *_: Sampled(3, 0.1))
    return scene("tables")


@contextmanager
def live(s: Scene) -> Iterator[Claim]:
    with s.catalog.claim("orders", "test", 5) as claim:
        for state in (JobState.STARTING, JobState.RUNNING):
            claim.store.become(state, "")
        yield claim


def taken(s: Scene, claim: Claim) -> list[str]:
    """A run takes what redefines the job, and brings the sink there; returns what it told."""
    said: list[object] = []
    job = s.catalog.definition("orders")
    config = from_stored(job.config)
    with Resources(config) as resources, ExitStack() as opened:
        resources.upstream.restore(job.pin)
        job, _, after = redefined(job, config, resources, claim.store, s.catalog, opened, said.append, claim.token)
        _recovered(s, claim, after)
        after.upstream.observe(claim.store.load().committed.position, False)  # it is ready for the next barrier
        assert job == s.catalog.definition("orders")
    return list(map(str, said))


def _recovered(s: Scene, claim: Claim, resources: Resources) -> None:
    job = s.catalog.definition("orders")
    stager: Any = SimpleNamespace(  # what is promised has no rows
        intact=lambda *_: True, folder=lambda *_: "", current_folder=lambda *_: "", discard=lambda *_: None
    )
    resources.sink.prepare("orders", job.tables, into_existing=True)
    forget_strays(job, claim.store.load().committed, resources.sink, lambda _said: None)
    runner = Job("orders", claim.token, job.tables, encode(job), tuple(one.table for one in job.aside))
    recover(runner, claim.store, resources.sink, stager, 700)


def markers(s: Scene) -> dict[str, int]:
    return {name: one.epoch for name, one in s.config.open_sink().committed("orders").items()}


def agreed(s: Scene) -> set[str]:
    """The tables that the sink knows, each at the catalog's checkpoint; the sink's definition is the catalog's."""
    found = markers(s)
    job = s.catalog.job("orders")
    assert set(found.values()) == {job.epoch}
    if job.epoch > EPOCH:  # since it was redefined
        saved = s.config.open_sink().saved("orders")
        assert saved is not None
        assert saved.definition == encode(s.catalog.definition("orders"))
    return set(found)


def add(s: Scene, *more: str) -> str:
    done = s.run("add", "orders", "--table", "refunds", *more)
    assert done.exit_code == 0, done.output
    return done.stderr


def test_a_table_that_joins_is_not_read_and_the_sink_has_it_empty_at_the_jobs_checkpoint(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    before = s.catalog.definition("orders")
    assert "add refunds (3 rows, " in add(s, "--config", "job.toml")
    assert s.catalog.definition("orders") == before, "it waits for a run"
    with live(s) as claim:
        (said,) = taken(s, claim)
        assert said.endswith(": the job goes on with the tables that it has now")
        kept = claim.store.load().committed
    after = s.catalog.definition("orders")
    assert [one.name for one in after.tables] == ["orders", "refunds"]
    assert [one.table for one in after.pin.splits] == ["orders", "refunds"]
    assert {key[0]: one.status for key, one in kept.splits.items()} == dict.fromkeys(
        ("orders", "refunds"), SplitStatus.NOT_STARTED
    )
    assert kept.sink_schemas.keys() == kept.schemas.keys() == {"orders", "refunds"}
    assert agreed(s) == {"orders", "refunds"}
    assert [one.mutations for one in s.catalog.ledger("orders", 2)] == ["add", "recovered"]


def test_a_table_that_the_file_lacks_is_tried_by_its_name_and_a_key_is_asked_for(
    s: Scene,
) -> None:
    with typed(s.refused("add", "orders", "--table", "refunds")) as hint:
        hint.says("name its key and options under its [[tables]] in the config")
        (s.folder / "job.toml").write_text(SHOP + REFUNDS)
        add(s, "--config", "job.toml")


class Killed(Exception):
    """As by kill -9: nothing of the process goes on."""


@pytest.mark.parametrize("at", ["redefinition-checked", "redefined", "recovery-levelled"])
@pytest.mark.parametrize("verb", ["add", "remove"])
def test_a_run_that_is_killed_meanwhile_leaves_the_command_or_the_new_definition_and_never_half(
    s: Scene, monkeypatch: pytest.MonkeyPatch, at: str, verb: str
) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    add(s, "--config", "job.toml")
    if verb == "remove":
        with live(s) as claim:
            taken(s, claim)
        stop(s)
        assert s.run("remove", "orders", "--table", "refunds").exit_code == 0
    before = s.catalog.definition("orders")

    def killed(point: str) -> None:
        if point == at:
            raise Killed

    with monkeypatch.context() as patch:
        for module in (redefine, recovering):
            patch.setattr(module, "hit", killed)
        with live(s) as claim:
            if at == "recovery-levelled" and verb == "remove":  # nothing is levelled
                taken(s, claim)
            else:
                with pytest.raises(Killed):
                    taken(s, claim)
            waits, now = claim.store.commands(), s.catalog.definition("orders")
            assert (len(waits) == 1) == (now == before)
            assert bool(waits) == (at == "redefinition-checked")
    stop(s)
    with live(s) as claim:
        taken(s, claim)
        assert claim.store.commands() == ()
    names = {"orders", "refunds"} if verb == "add" else {"orders"}
    after = s.catalog.definition("orders")
    assert {one.name for one in after.tables} == after.pin.schema.keys() == names
    assert agreed(s) == names
    assert json.loads(after.fingerprint)["tables"].keys() == names


def stop(s: Scene) -> None:
    s.sql(s.catalog.path, "UPDATE jobs SET state = 'stopped'")


def test_a_table_that_leaves_keeps_its_rows_and_another_job_may_have_it(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    add(s, "--config", "job.toml")
    with live(s) as claim:
        taken(s, claim)
    stop(s)
    s.sql(s.sink, "INSERT INTO refunds VALUES (1, 'kept')")
    said = s.run("remove", "orders", "--table", "refunds").stderr
    assert "its rows in the sink stay" in said
    assert f"remove it from {s.folder}/job.toml, too" in said
    with live(s) as claim:
        taken(s, claim)
        kept = claim.store.load().committed
    assert {table for table, _ in kept.splits} == {"orders"}
    assert kept.schemas.keys() == kept.sink_schemas.keys() == {"orders"}
    assert agreed(s) == {"orders"}
    s.config.open_sink().prepare(
        "fresh", (a_table("refunds", schema=schema_json(id="long", name="string")),), True
    )


def test_a_table_leaves_with_its_rows_once_that_is_confirmed(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    add(s, "--config", "job.toml")
    with live(s) as claim:
        taken(s, claim)
    stop(s)
    with typed(s.refused("remove", "orders", "--table", "refunds", "--with-rows")) as hint:
        (words,) = hint.commands()
        assert s.run(*words).exit_code == 0
        with live(s) as claim:
            taken(s, claim)
    assert agreed(s) == {"orders"}
    assert "main.refunds" not in half_done.told(s.sink)


@pytest.mark.parametrize("at", ["redefined", "left-tables-dropped"])
def test_a_table_that_leaves_with_its_rows_is_dropped_by_the_next_run_if_this_one_is_killed(
    s: Scene, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    two_tables(s)
    said = ("remove", "orders", "--table", "refunds", "--with-rows", "--confirm", "orders")
    assert s.run(*said).exit_code == 0

    def killed(point: str) -> None:
        if point == at:
            raise Killed

    with monkeypatch.context() as patch, live(s) as claim:
        for module in (redefine, ownership):
            patch.setattr(module, "hit", killed)
        with pytest.raises(Killed):
            taken(s, claim)
    stop(s)
    shown = s.run("status", "orders").stdout
    assert "to be dropped:   refunds: as the next run begins" in shown
    assert ("main.refunds" in half_done.told(s.sink)) == (at == "redefined")
    with live(s) as claim:
        taken(s, claim)
        assert claim.store.load().committed.dropping == {}
    assert agreed(s) == {"orders"}
    assert "main.refunds" not in half_done.told(s.sink)
    assert "to be dropped" not in s.run("status", "orders").stdout


def test_a_table_that_is_to_be_dropped_still_is_once_another_leaves_with_its_rows(s: Scene) -> None:
    two_tables(s)
    job = s.catalog.definition("orders")
    with live(s) as claim:
        at = claim.store.load()
    dropped: list[set[str]] = []
    committed, left = at.committed, job.tables
    for name in ("refunds", "orders"):
        strategy, gone = SnapshotStrategy(job.pin.without(name).splits), [one for one in left if one.name == name]
        committed = without_table(committed, at.control, strategy, name, left, gone, True)
        left = tuple(one for one in left if one not in gone)
        dropped.append({*committed.dropping})
    assert dropped == [{"refunds"}, {"refunds", "orders"}]


def test_rows_of_others_are_not_dropped_with_a_table(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    add(s, "--config", "job.toml")
    with live(s) as claim:
        taken(s, claim)
    stop(s)
    s.sql(
        s.catalog.path,
        "UPDATE jobs SET sink_tables = replace(sink_tables, 'plain_inserts\": true', 'plain_inserts\": false')",
    )
    with typed(s.refused("remove", "--table", "refunds", "--with-rows", "--confirm", "orders")) as hint:
        (words,) = hint.commands()
        assert s.run(*words).exit_code == 0


def test_the_last_table_is_not_removed_and_one_that_is_not_there_is_said(s: Scene) -> None:
    with typed(s.refused("remove", "--table", "orders")) as hint:
        assert hint.commands() == [["drop", "orders", "--confirm", "orders"]]
    with typed(s.refused("remove", "--table", "refunds")) as hint:
        (words,) = hint.commands()
        assert s.run(*words).exit_code == 0
    with typed(s.refused("add", "--table", "orders")) as hint:
        (words,) = hint.commands()
        assert s.run(*words).exit_code == 0


@pytest.mark.parametrize("why", ["strategy chain", "share one log", "divided among them"])
def test_a_table_that_cannot_join_gets_a_job_of_its_own(s: Scene, why: str) -> None:
    job = s.catalog.definition("orders")
    upstream: Any = s.config.open_upstream()
    capable = upstream.capabilities
    if why == "strategy chain":
        job = replace(job, strategy="chain")
    elif why == "share one log":
        upstream.capabilities = replace(capable, one_log=True)
    else:
        upstream.capabilities = replace(capable, apart=False)
    with pytest.raises(UsageError, match=why) as refused:
        join.require_joinable(job, "refunds", upstream)
    with typed(refused.value) as hint:
        assert hint.commands(FILE="refunds.toml") == [["start", "--config", "refunds.toml"]]


def test_a_table_that_is_there_already_joins_by_the_command_that_is_shown(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    with duckdb_shared.opened(s.folder / "sink.duckdb") as db:
        db.execute("CREATE TABLE refunds AS SELECT 1::BIGINT AS id, 'mine' AS name")
    refused = s.refused("add", "orders", "--table", "refunds", "--config", "job.toml")
    with typed(refused) as hint:
        (words,) = hint.commands()
        assert words[0] == "add"
        assert s.run(*words).exit_code == 0
    with live(s) as claim:
        taken(s, claim)
    assert agreed(s) == {"orders", "refunds"}


def test_python_gives_what_the_commands_print_and_refuses_what_they_refuse(s: Scene) -> None:
    job = bf.Job("orders", s.catalog.path)
    with pytest.raises(UsageError, match="it is not known which config") as unknown:
        job.set()
    with typed(unknown.value) as hint:
        (words,) = hint.commands()
        assert s.run(*words).exit_code == 0
        assert job.set(s.folder / "job.toml").note == Hint.of("the config is as it was")
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    asked = job.add("refunds", s.folder / "job.toml")
    assert (asked.command, asked.epoch) == (Verb.ADD, None)
    (waits,) = s.catalog.job("orders").waiting
    assert waits.id == asked.id
    with live(s) as claim:
        taken(s, claim)
    stop(s)
    for refused, words in (
        (lambda: job.add("refunds"), ("add", "orders", "--table", "refunds")),
        (lambda: job.remove("orders", with_rows=True), ("remove", "orders", "--table", "orders", "--with-rows")),
        (lambda: job.remove("more"), ("remove", "orders", "--table", "more")),
        (lambda: job.refill("more"), ("refill", "orders", "--table", "more")),
        (lambda: job.cancel_refill("refunds"), ("refill", "orders", "--table", "refunds", "--cancel")),
    ):
        with pytest.raises(UsageError) as error:
            refused()
        assert error.value.message in s.run(*words).stderr
    assert job.remove("refunds").note == Hint.of(f"remove it from {s.folder}/job.toml, too")
    refilled = job.refill("orders", between="1..2").refill
    assert (refilled.table, refilled.first, refilled.last) == ("orders", "1", "2")
    assert job.cancel_refill("orders").refill.id == refilled.id


def two_tables(s: Scene) -> None:
    """The job has `refunds`, too, and no runner."""
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    add(s, "--config", "job.toml")
    with live(s) as claim:
        taken(s, claim)
    stop(s)


@pytest.mark.parametrize("file", [SHOP, "no config", None])
def test_a_file_that_has_no_table_that_leaves_is_not_to_be_changed(s: Scene, file: str | None) -> None:
    two_tables(s)
    (s.folder / "job.toml").unlink() if file is None else (s.folder / "job.toml").write_text(file)
    said = s.run("remove", "orders", "--table", "refunds").stderr
    assert "its rows in the sink stay" in said
    assert "job.toml" not in said


def test_a_table_joins_or_leaves_the_config_that_the_job_has_then(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    for words, names in ((["add", "--config", "job.toml"], {"orders", "refunds"}), (["remove"], {"orders"})):
        assert s.run(words[0], "orders", "--table", "refunds", *words[1:]).exit_code == 0
        waited = json.loads(s.catalog.definition("orders").config)
        limit = f"{len(names)}7s"
        with live(s) as claim:
            claim.store.redefine(json.dumps({**waited, "retry": {"limit": limit}}), "forever", "moved.toml")
            taken(s, claim)
        stop(s)
        job = s.catalog.definition("orders")
        config = json.loads(job.config)
        assert {one["name"] for one in config["tables"]} == names == json.loads(job.fingerprint)["tables"].keys()
        assert config["retry"]["limit"] == limit
    assert job.config_file == "moved.toml"


def test_a_table_that_the_upstream_has_dropped_leaves_before_anything_looks_for_it(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tables(s)
    assert s.run("remove", "orders", "--table", "refunds").exit_code == 0
    kind = type(s.config.open_upstream())
    restore = kind.restore

    def gone(upstream: Any, pin: Pin) -> None:
        if "refunds" in pin.schema:
            raise UsageError("table 'refunds' does not exist", "create it")
        restore(upstream, pin)

    monkeypatch.setattr(kind, "restore", gone)
    done = s.run("resume", "orders")
    assert done.exit_code == 0, done.output
    assert [one.name for one in s.catalog.definition("orders").tables] == ["orders"]
    assert agreed(s) == {"orders"}


def test_a_marker_that_a_killed_run_left_is_forgotten_by_the_next_one(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tables(s)
    assert s.run("remove", "orders", "--table", "refunds").exit_code == 0

    def killed(point: str) -> None:
        if point == "redefined":
            raise Killed

    with monkeypatch.context() as patch, live(s) as claim:
        patch.setattr(redefine, "hit", killed)
        with pytest.raises(Killed):
            taken(s, claim)
    stop(s)
    assert markers(s).keys() == {"orders", "refunds"}
    assert s.run("resume", "orders").exit_code == 0
    assert agreed(s) == {"orders"}


def test_an_add_of_a_table_that_the_job_has_changes_nothing_in_the_sink(s: Scene) -> None:
    change = Change(json.dumps({"name": "orders", "key": ["id"]}), table="orders")
    s.catalog.post("orders", Verb.ADD, None, "ann", 5, payload=change.stored)
    with live(s) as claim:
        assert any("was refused" in said for said in taken(s, claim))
    assert agreed(s) == {"orders"}


@pytest.mark.parametrize(
    ("why", "log"),
    [("divided among them", None), ("one spool", "orders")],
)
def test_a_table_that_cannot_leave_is_named_with_how_to_start_over_without_it(
    s: Scene, why: str, log: str | None
) -> None:
    two_tables(s)
    job = s.catalog.definition("orders")
    upstream: Any = s.config.open_upstream()
    if log is None:
        upstream.capabilities = replace(upstream.capabilities, apart=False)
    else:
        job = replace(job, pin=replace(job.pin, position=Position.of({log: 3, "refunds": 4})))
        job = replace(job, strategy="chain")
    with pytest.raises(UsageError, match=why) as refused:
        join.require_removable(job, upstream)
    with typed(refused.value) as hint:
        (s.folder / "fresh.toml").write_text(SHOP)
        forget, again = hint.commands(FILE="fresh.toml")
        assert s.run(*forget).exit_code == 0
        assert again == ["start", "--config", "fresh.toml", "--into-existing"]


def test_a_table_whose_log_is_in_a_spool_is_refused_by_the_command_and_at_the_barrier(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tables(s)
    job = s.catalog.definition("orders")
    change = removing("orders", "refunds", s.catalog, with_rows=False)
    logs = Position.of({"orders": 3, "refunds": 4})
    moved = replace(job, strategy="chain", pin=replace(job.pin, position=logs))
    monkeypatch.setattr(type(s.catalog), "definition", lambda *_: moved)
    s.refused("remove", "orders", "--table", "refunds")
    s.catalog.post("orders", Verb.REMOVE, None, "ann", 5, payload=change.stored)
    with live(s) as claim:
        assert any("no table can leave job 'orders'" in said for said in taken(s, claim))
        assert claim.store.commands() == ()


def test_a_fault_that_nobody_foresaw_refuses_the_command_and_the_job_goes_on(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tables(s)

    def broken(*_: object) -> None:
        raise NotImplementedError("no table leaves this")

    assert s.run("remove", "orders", "--table", "refunds").exit_code == 0
    monkeypatch.setattr(redefine, "_without_table", broken)
    with live(s) as claim:
        (said,) = taken(s, claim)
        assert "was refused: NotImplementedError: no table leaves this" in said
        assert claim.store.commands() == ()
        (one,) = s.catalog.close_look("orders", 1, 5)[3][-1:]
    refusal = s.catalog.refusal("orders", one.command.id)
    assert refusal is not None
    with typed(refusal.hint) as hint:
        (words,) = hint.commands()
        assert s.run(*words).exit_code == 0


def queried(s: Scene) -> Callable[[], None]:
    """Both of the job's tables have names that people query; what cuts them over."""
    config = (s.folder / "job.toml").read_text()
    for name in ("orders", "refunds"):
        config = config.replace(
            f'[[tables]]\nname = "{name}"', f'[[tables]]\nname = "{name}"\nlive = "shown_{name}"'
        )
    (s.folder / "job.toml").write_text(config)
    job = load(s.folder / "job.toml")
    with live(s) as claim:
        claim.store.redefine(job.stored(), "forever", job.file)
    stop(s)
    swaps = [Swap(one, f"shown_{one.name}") for one in s.catalog.definition("orders").tables]
    sink: Any = job.open_sink()
    return lambda: sink.extras.cutover.cut_over("orders", swaps, EPOCH, 1, 2**42)


def test_a_table_that_people_query_stays_until_the_cutover_is_reversed(s: Scene) -> None:
    two_tables(s)
    cut_over = queried(s)
    cut_over()
    with typed(s.refused("remove", "orders", "--table", "refunds")) as hint:
        (words,) = hint.commands()
        done = s.run(*words)
        assert done.exit_code == 0, done.output + done.stderr
        assert s.run("remove", "orders", "--table", "refunds").exit_code == 0
    cut_over()  # before a run takes it
    with live(s) as claim:
        assert any("people query refunds as shown_refunds" in said for said in taken(s, claim))
    assert len(s.catalog.definition("orders").tables) == 2


def test_a_table_joins_or_leaves_only_once_the_sink_has_what_was_promised(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    add(s, "--config", "job.toml")
    with live(s) as claim:
        at = claim.store.load().committed
        promised = replace(at, epoch=EPOCH + 1, attempt="b", plan=EpochPlan(), staged=Staged("b"), splits={})
        claim.store.prepare(promised, None, None)
        job = s.catalog.definition("orders")
        with Resources(s.config) as resources, ExitStack() as opened:
            resources.upstream.restore(job.pin)
            redefined(job, s.config, resources, claim.store, s.catalog, opened, lambda _: None, claim.token)
        (one,) = s.catalog.close_look("orders", 1, 5)[3][-1:]
        refusal = s.catalog.refusal("orders", one.command.id)
        assert refusal is not None
        with typed(refusal.hint) as hint:
            hint.says("try again once it does")
            claim.store.unprepare(EPOCH + 1)
            assert s.run("add", "orders", "--table", "refunds", "--config", "job.toml").exit_code == 0
        (said,) = taken(s, claim)
        assert "goes on with the tables" in said


@pytest.mark.parametrize("asked", ["plan", "start", "set"])
def test_other_tables_in_the_config_are_offered_as_the_commands_for_them(s: Scene, asked: str) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    with typed(s.refused(asked, "--config", "job.toml")) as hint:
        (words,) = hint.commands()
        assert words[:4] == ["add", "orders", "--table", "refunds"]
        assert s.run(*words).exit_code == 0
    with live(s) as claim:
        taken(s, claim)
    stop(s)
    (s.folder / "job.toml").write_text(SHOP)
    with typed(s.refused(asked, "--config", "job.toml")) as hint:
        assert hint.commands() == [["remove", "orders", "--table", "refunds"]]
        hint.says("or add the sections of refunds to ")
        (s.folder / "job.toml").write_text(SHOP + REFUNDS)
        assert s.run("plan", "--config", "job.toml").exit_code == 0
        (s.folder / "job.toml").write_text(SHOP)
        assert s.run(*hint.commands()[0]).exit_code == 0


def test_a_start_with_the_tables_that_the_waiting_command_leads_to_is_the_next_run(s: Scene) -> None:
    start = ("start", "--config", "job.toml", "--until", "caught-up")
    before = (s.folder / "job.toml").read_text()
    for config, *words in (
        (SHOP + REFUNDS, "add", "orders", "--table", "refunds", "--config", "job.toml"),
        (SHOP, "remove", "orders", "--table", "refunds"),
    ):
        (s.folder / "job.toml").write_text(config)
        assert s.run(*words).exit_code == 0
        (s.folder / "job.toml").write_text(before)
        with typed(s.refused(*start)) as hint:
            (back,) = hint.commands()  # the command that follows the one that waits
            assert back[:4] == ["remove" if words[0] == "add" else "add", "orders", "--table", "refunds"]
            (s.folder / "job.toml").write_text(config)
            before = config
        for asked in (("plan", "--config", "job.toml"), start):
            done = s.run(*asked)
            assert done.exit_code == 0, done.output + done.stderr
            assert "for the job to use it" not in done.output
        if s.catalog.job("orders").waiting:  # a table leaves before the loop, which this run has not
            with live(s) as claim:
                taken(s, claim)
            stop(s)


def test_other_tables_and_another_key_are_another_job(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP.replace('["id"]', '["name"]') + REFUNDS)
    assert "undo these changes" in s.refused("set", "--config", "job.toml")


@pytest.mark.parametrize("verb", ["add", "set"])
def test_a_config_that_is_not_there_is_named(s: Scene, verb: str) -> None:
    words = ("--table", "refunds") if verb == "add" else ()
    done = s.run(verb, "orders", *words, "--config", "none.toml")
    assert done.exit_code == 2
    assert "none.toml: 1 problem\n  the file does not exist" in done.stderr


def types(s: Scene, *lines: str) -> None:
    for words in map(str.split, lines):
        done = s.run(*words)
        assert done.exit_code == 0, done.output + done.stderr


def takes(s: Scene, commands: int) -> list[str]:
    with live(s) as claim:
        said = [line for _ in range(commands) for line in taken(s, claim)]
    stop(s)
    return said


BY_REFUND = (
    "[[derived]]\nname = 'by_name'\nkey = ['name']\nsql = 'SELECT name, count(*) AS n FROM refunds GROUP BY 1'\n"
)


def test_commands_that_wait_follow_each_other_in_the_order_in_which_they_are_typed(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS + BY_REFUND)
    join_both = ("add orders --table refunds --config job.toml", "add orders --derived by_name --config job.toml")
    rows = "--with-rows --confirm orders"
    types(s, *join_both)
    assert [one.said for one in s.catalog.job("orders").waiting] == [
        "add refunds",
        "add --derived by_name",
    ]
    assert not [line for line in takes(s, 2) if "refused" in line]
    assert markers(s).keys() == {"orders", "refunds", "by_name"}

    # all of it leaves and comes back, as it would one run after the other
    leave = (f"remove orders --derived by_name {rows}", f"remove orders --table refunds {rows}")
    types(s, *leave, *join_both)
    types(s, "start --config job.toml --until caught-up")
    assert not [line for line in takes(s, 4) if "refused" in line]
    assert markers(s).keys() == {"orders", "refunds", "by_name"}


def test_what_the_commands_that_wait_leave_is_what_the_next_one_is_checked_against(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS + BY_REFUND)
    types(s, "add orders --table refunds --config job.toml", "add orders --derived by_name --config job.toml")
    with typed(s.refused("remove", "orders", "--table", "refunds")) as asked:
        asked.says("remove what reads it first")
        (removes,) = asked.commands()
        types(s, " ".join(removes), "remove orders --table refunds")
    for table, said in (("refunds", "table 'refunds' does not exist"), ("orders", "'orders' is the only table")):
        assert said in s.run("remove", "orders", "--table", table).stderr
    with typed(s.refused("add", "orders", "--table", "refunds", "--config", "job.toml")) as asked:
        (again,) = asked.commands()
        assert again[-1] == "--into-existing", "its rows stay"
        types(s, " ".join(again))
    assert not [line for line in takes(s, 5) if "refused" in line]
    assert agreed(s) == {"orders", "refunds"}


def test_what_followed_a_command_that_its_barrier_refuses_is_refused_as_well(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS + BY_REFUND)
    types(s, "add orders --table refunds --config job.toml", "add orders --derived by_name --config job.toml")
    takes(s, 2)
    (s.folder / "job.toml").write_text(SHOP + REFUNDS + BY_REFUND.replace("FROM refunds", "FROM orders"))
    types(s, "add orders --derived by_name --replace --config job.toml", "remove orders --table refunds")

    def cannot_be_filled(*_: object) -> None:
        raise BadData("its key (name) has duplicates", "correct the rows that share it")

    with monkeypatch.context() as patched:
        patched.setattr(redefine, "take_in", cannot_be_filled)
        replaced, removed = (line for line in takes(s, 2) if "refused" in line)
    assert "its key (name) has duplicates" in replaced
    assert "table 'refunds' cannot leave job 'orders': its derived table 'by_name' reads it" in removed
    (s.folder / "job.toml").write_text(SHOP + REFUNDS + BY_REFUND)
    types(s, "start --config job.toml --until caught-up")
    assert markers(s).keys() == {"orders", "refunds", "by_name"}


def test_a_start_follows_a_derived_table_that_leaves_before_what_it_reads_has_joined(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS + BY_REFUND)
    types(s, "add orders --table refunds --config job.toml", "add orders --derived by_name --config job.toml")
    types(s, "remove orders --derived by_name")
    assert s.run("start", "--config", "job.toml", "--until", "caught-up").exit_code == 2
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    types(s, "start --config job.toml --until caught-up")


def test_a_table_joins_into_the_target_of_one_that_leaves_by_a_command_that_waits(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    types(s, "add orders --table refunds --config job.toml")
    takes(s, 1)
    shutil.copytree(s.folder / "snapshot" / "refunds", s.folder / "snapshot" / "other")
    other = REFUNDS.replace('name = "refunds"', 'name = "other"\ntarget = "refunds"')
    (s.folder / "job.toml").write_text(SHOP + other)
    types(s, "remove orders --table refunds")
    with typed(s.refused("add", "orders", "--table", "other", "--config", "job.toml")) as asked:
        asked.says("written over them")
        (again,) = asked.commands()
        types(s, " ".join(again))
    assert "other" in as_asked("orders", s.catalog).job.names, "what follows finds it"
    assert not [line for line in takes(s, 2) if "refused" in line]
    assert markers(s).keys() == {"orders", "other"}


def test_what_a_table_has_that_leaves_and_joins_again_is_not_what_a_command_that_follows_finds(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + REFUNDS)
    types(s, "add orders --table refunds --config job.toml")
    takes(s, 1)
    had = dict.fromkeys(("orders", "refunds"), schema_json(id="long"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(s.catalog), "sink_schemas", lambda *_: had)
        assert as_asked("orders", s.catalog).schemas(s.catalog) == had
        types(s, "remove orders --table refunds", "add orders --table refunds --into-existing --config job.toml")
        assert as_asked("orders", s.catalog).schemas(s.catalog).keys() == {"orders"}


def test_a_set_that_waits_for_a_run_is_followed_by_a_table(s: Scene) -> None:
    (s.folder / "job.toml").write_text(SHOP + "[throttle]\nrate = 7\n")
    with live(s) as claim:
        types(s, "set orders --config job.toml")
        (s.folder / "job.toml").write_text(SHOP + "[throttle]\nrate = 7\n" + REFUNDS)
        types(s, "add orders --table refunds --config job.toml")
        with typed(s.refused("set", "orders", "--config", "job.toml")) as asked:
            asked.says("a run takes it first")
            assert asked.commands() == [["status", "orders"]]
            for _ in range(2):
                taken(s, claim)
            types(s, "set orders --config job.toml")
    config = from_stored(s.catalog.definition("orders").config)
    assert config.throttle.rate == 7
    assert [one.name for one in config.tables] == ["orders", "refunds"]
