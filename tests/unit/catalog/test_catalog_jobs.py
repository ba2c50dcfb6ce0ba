"""Jobs: names, states along existing arrows only, and the row that people see."""

import json
import time
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import pytest
from catalog_builders import (
    FIRST,
    PARTITIONS,
    Clock,
    checkpoint,
    claimed,
    consumed,
    definition,
    partitioned,
    progress,
    record,
    with_job,
)
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.catalog import Catalog, Claim, jobs
from backfill_cli.catalog.store import Store
from backfill_cli.errors import Held, NoSuchJob, StateConflict, UsageError
from backfill_cli.model.job import TRANSITIONS, Command, Control, JobState, Verb
from backfill_cli.model.split import Split, SplitProgress


def test_a_new_job_is_starting_and_has_its_definition(catalog: Catalog) -> None:
    row = catalog.job("orders")
    assert (row.state, row.epoch, row.strategy, row.until) == (JobState.STARTING, 0, "snapshot", "forever")
    assert catalog.definition("orders") == definition()


def test_a_job_can_start_paused_and_limited(path: Path, clock: Clock) -> None:
    catalog = Catalog(path, clock)
    catalog.create_job(definition(), Control("cli", 7, 500.0), FIRST)
    assert catalog.job("orders").control == Control("cli", 7, 500.0)


def test_a_name_that_is_taken_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="'orders' already exists in the catalog"):
        catalog.create_job(definition(), Control(), FIRST)


@given(st.text(max_size=70))
def test_only_plain_names_become_part_of_a_path(name: str) -> None:
    plain = 0 < len(name) < 64 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    if plain:
        assert jobs.check_name(name) == name
    else:
        with pytest.raises(UsageError, match="not a valid job name"):
            jobs.check_name(name)


@pytest.mark.parametrize("name", ["../orders", "/etc/x", "Orders", "a b", "", "orders\n", "x" * 64])
def test_a_name_that_is_a_path_is_refused_by_every_call(catalog: Catalog, clock: Clock, name: str) -> None:
    calls = (
        lambda: catalog.create_job(definition(name), Control(), FIRST),
        lambda: catalog.rebuild(definition(name), FIRST, Control(), 1),
        lambda: catalog.definition(name),
        lambda: catalog.job(name),
        lambda: catalog.post(name, Verb.PAUSE, None, "cli", 1),
        lambda: catalog.taken(name, 1),
        lambda: catalog.ledger(name, 1),
        lambda: catalog.lock_job(name),
        lambda: catalog.claim(name, "me", clock()),
        lambda: catalog.drop(name),
    )
    before = set(catalog.path.parent.iterdir())
    for call in calls:
        with pytest.raises(UsageError, match="not a valid job name"):
            call()
    assert set(catalog.path.parent.iterdir()) == before


def test_names_and_details_are_data_never_sql(path: Path, clock: Clock) -> None:
    odd = """a'b"c;--[/d]\x1b,{"x": 'é'}"""
    split = Split(odd, odd, None, 0, cuttable=False, detail=odd)
    told = definition()
    told = replace(told, config=odd, pin=replace(told.pin, splits=(split,), identity=odd))
    catalog = Catalog(path, clock)
    catalog.create_job(told, Control(odd, 1), FIRST)
    assert catalog.definition("orders") == told
    assert catalog.job("orders").control.paused_by == odd


def test_a_state_follows_only_arrows_that_exist(catalog: Catalog, path: Path) -> None:
    with Store(path).writing() as db:
        for now, then in product(JobState, JobState):
            db.execute("UPDATE jobs SET state = ?", [now])
            if now == then or (now, then) in TRANSITIONS:
                jobs.become(db, "orders", then, "told")
                assert jobs.standing(db, "orders").state == then
            else:
                with pytest.raises(StateConflict, match=f"is {now}: it cannot become {then}"):
                    jobs.become(db, "orders", then, "told")
                assert jobs.standing(db, "orders").state == now


def test_a_reason_that_is_not_told_is_the_arrows_own(catalog: Catalog, claim: Claim) -> None:
    claim.store.become(JobState.RUNNING, "")
    assert catalog.job("orders").reason == TRANSITIONS[JobState.STARTING, JobState.RUNNING]


def test_without_a_name_the_only_active_job_is_meant(catalog: Catalog, clock: Clock) -> None:
    catalog.create_job(definition("old"), Control(), FIRST)
    catalog.post("old", Verb.STOP, None, "cli", clock())
    assert catalog.job(None).name == "orders"


def test_without_a_name_two_active_jobs_are_asked_about(catalog: Catalog) -> None:
    catalog.create_job(definition("users"), Control(), FIRST)
    with pytest.raises(UsageError, match="several jobs are active: orders, users"):
        catalog.job(None)


def test_without_a_name_and_an_active_job_the_ended_ones_are_told(catalog: Catalog, clock: Clock) -> None:
    catalog.post("orders", Verb.STOP, None, "cli", clock())
    with pytest.raises(NoSuchJob, match=r"orders \(stopped\)"):
        catalog.job(None)


def test_an_unknown_name_is_told_with_the_one_meant(catalog: Catalog) -> None:
    for name in ("users", "order_items"):
        catalog.create_job(definition(name), Control(), FIRST)
    with pytest.raises(NoSuchJob, match=r"job \'ordres\' does not exist; did you mean orders\?") as unknown:
        catalog.job("ordres")
    assert unknown.value.exit_code == 4
    assert str(unknown.value.hint) == "backfill status orders"


def test_asked_and_reached_are_two_states(catalog: Catalog, claim: Claim, clock: Clock) -> None:
    claim.store.become(JobState.RUNNING, "")
    catalog.post("orders", Verb.PAUSE, None, "cli", clock())
    assert (catalog.job("orders").state, catalog.job("orders").shown_state) == ("running", "pausing")
    catalog.post("orders", Verb.STOP, None, "cli", clock())
    assert catalog.job("orders").shown_state == JobState.STOPPING
    assert [c.verb for c in catalog.job("orders").waiting] == [Verb.PAUSE, Verb.STOP]


def test_a_waiting_resume_takes_a_waiting_pause_back(catalog: Catalog, claim: Claim, clock: Clock) -> None:
    claim.store.become(JobState.RUNNING, "")
    catalog.post("orders", Verb.PAUSE, None, "cli", clock())
    catalog.post("orders", Verb.RESUME, None, "cli", clock())
    assert catalog.job("orders").shown_state == JobState.RUNNING


def test_an_ended_job_is_shown_as_it_ended_whatever_waits(catalog: Catalog) -> None:
    row = replace(catalog.job("orders"), state=JobState.DONE, waiting=(Command(1, Verb.PAUSE, "cli", 1),))
    assert row.shown_state == JobState.DONE


def test_whether_a_runner_lives_is_told(catalog: Catalog, clock: Clock) -> None:
    assert not catalog.job("orders").live
    with claimed(catalog, clock):
        assert catalog.job("orders").live
    assert not catalog.job("orders").live


def test_a_dropped_job_leaves_nothing_but_its_token(catalog: Catalog, path: Path, clock: Clock) -> None:
    with claimed(catalog, clock) as claim:
        claim.store.prepare(checkpoint(100, consumed(0, 100)), None, progress())
        claim.store.mark(record(100), progress())
        claim.store.prepare(checkpoint(200, consumed(1, 200)), None, progress())
        catalog.post("orders", Verb.PAUSE, None, "cli", clock())
    catalog.drop("orders")
    assert catalog.jobs() == ()
    with Store(path).reading() as db:
        tables = [row[0] for row in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        counts = {table: db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables}
    assert {table for table, count in counts.items() if count} == {"catalog_version", "catalog_identity", "leases"}
    assert counts["leases"] == 1
    catalog.create_job(definition(), Control(), FIRST)
    with claimed(catalog, clock) as again:
        assert again.token == claim.token + 1
        assert all(progress.rows == 0 for progress in again.store.load().committed.splits.values())


def test_a_job_that_runs_cannot_be_dropped_or_rebuilt(catalog: Catalog, claim: Claim) -> None:
    with pytest.raises(Held, match="held by me"):
        catalog.drop("orders")
    with pytest.raises(Held, match="held by me"):
        catalog.rebuild(definition(), FIRST, Control(), 9)


def test_who_holds_the_lock_can_drop(catalog: Catalog) -> None:
    with catalog.lock_job("orders") as lock:
        catalog.drop("orders", lock)
    assert catalog.jobs() == ()


def test_a_job_that_is_not_there_cannot_be_dropped(catalog: Catalog) -> None:
    with pytest.raises(NoSuchJob, match="'users'"):
        catalog.drop("users")


def test_a_rebuilt_job_is_as_its_sink_says(path: Path, clock: Clock) -> None:
    """The catalog was lost; or it is older than the sink, then what it had goes."""
    catalog = with_job(path, clock)
    saved = checkpoint(900, consumed(2, 900))
    with catalog.lock_job("orders") as lock:
        catalog.rebuild(definition(), saved, Control("cli", 3), token=41, lock=lock)
        with catalog.claim("orders", "me", clock(), lock) as claim:
            assert claim.token == 42
            recovered = claim.store.load()
    assert recovered.control == Control("cli", 3)
    assert (recovered.committed.epoch, recovered.prepared, recovered.last_epoch) == (900, None, 900)
    assert recovered.committed.splits["orders", "part-000002.parquet"].rows == 10


def test_a_rebuilt_job_keeps_partitions_newer_than_its_pin(path: Path, clock: Clock) -> None:
    Catalog(path, clock).rebuild(partitioned(), checkpoint(900, PARTITIONS), Control(), token=41)
    with claimed(Catalog(path, clock), clock) as claim:
        assert claim.store.load().committed.splits == {("orders", "0"): SplitProgress(), **PARTITIONS}


def test_a_lost_catalog_is_rebuilt_where_there_was_none(path: Path, clock: Clock) -> None:
    Catalog(path, clock).rebuild(definition(), checkpoint(900), Control(), token=41)
    assert Catalog(path, clock).job("orders").epoch == 900


def test_no_field_of_a_split_is_forgotten() -> None:
    kept = {"table", "id", "rows", "size_bytes", "cuttable", "detail", "first"}
    assert {field.name for field in fields(Split)} == kept, "a new field needs its column in the table splits"
    moved = {"status", "cursor", "rows", "epoch", "target"}
    assert {field.name for field in fields(SplitProgress)} == moved, "a new field needs its column, also in sinks"


@pytest.mark.seconds
def test_100_000_splits_take_seconds_to_create_and_one_to_load(path: Path, clock: Clock) -> None:
    wide = definition(splits=100_000)
    catalog = Catalog(path, clock)
    began = time.perf_counter()
    catalog.create_job(wide, Control(), FIRST)
    created = time.perf_counter()
    with claimed(catalog, clock) as claim:
        assert len(claim.store.load().committed.splits) == 100_000
    assert created - began < 10  # 0.9 s when nothing else runs
    assert time.perf_counter() - created < 5  # 0.2 s
    assert catalog.definition("orders") == wide


def test_a_config_that_changed_is_what_later_runs_go_by(catalog: Catalog, clock: Clock) -> None:
    with claimed(catalog, clock) as claim:
        claim.store.redefine('{"job": {"name": "orders"}}', "caught-up", "/srv/my.toml")
    known = catalog.definition("orders")
    assert (known.config, known.until) == ('{"job": {"name": "orders"}}', "caught-up")
    assert known.config_file == catalog.job("orders").config_file == "/srv/my.toml"
    assert known.fingerprint == definition().fingerprint


def test_the_sections_of_a_jobs_tables_are_those_of_its_stored_config(path: Path, clock: Clock) -> None:
    catalog = Catalog(path, clock)
    assert catalog.sections("orders") == {}, "no catalog yet"
    sections = {"orders": {"name": "orders", "key": ["region", "id"]}, "lines": {"name": "lines"}}
    stored = json.dumps({"tables": list(sections.values())})
    catalog.create_job(replace(definition(), config=stored), Control("cli", 7, 500.0), FIRST)
    assert catalog.sections("orders") == sections
    assert catalog.sections("others") == {}
