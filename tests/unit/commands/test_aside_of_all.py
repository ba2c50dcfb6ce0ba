"""One outage is of all tables: none of them is set aside for it, and the run ends with its cause."""

import shutil
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hint_scene import Scene, scene, settled
from test_command_aside import ASIDE, SHOP, aside, two
from test_command_tables import REFUNDS, agreed, live, queried, s, stop, taken

from backfill_cli.config import from_stored, load
from backfill_cli.engine.job.resources import NoWatcher, Resources
from backfill_cli.engine.job.select import changed_keys, edited
from backfill_cli.engine.loop.aside import why_not
from backfill_cli.engine.loop.run import _Run
from backfill_cli.errors import BackfillError, BadData, Fatal
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.plan import EpochPlan, Staged

__all__ = ["s", "scene", "two"]

pytestmark = pytest.mark.seconds

GONE = Fatal("table 'refunds': its files are gone")
THIRD = REFUNDS.replace("refunds", "third")


def of_all_of(s: Scene, error: BackfillError, table: str = "refunds") -> str | None:
    job = s.catalog.definition("orders")
    with live(s) as claim, Resources(from_stored(job.config)) as resources:
        said = why_not(job, from_stored(job.config), resources, claim.store, s.catalog, table, error)
    stop(s)
    return said


@pytest.fixture
def three(two: Scene) -> Scene:
    """The job has a third table, too."""

    def joined() -> None:
        shutil.copytree(two.folder / "snapshot/orders", two.folder / "snapshot/third")
        (two.folder / "job.toml").write_text(ASIDE + REFUNDS + THIRD)
        done = two.run("add", "orders", "--table", "third", "--config", "job.toml")
        assert done.exit_code == 0, done.output
        with live(two) as claim:
            taken(two, claim)
        stop(two)

    return settled(two, "three", joined)


def test_where_the_others_are_as_they_should_be_the_error_is_of_the_table(two: Scene) -> None:
    shutil.rmtree(two.folder / "snapshot/refunds")
    assert of_all_of(two, GONE) is None


def test_where_the_folder_of_all_is_gone_the_error_is_of_none(two: Scene) -> None:
    before = two.catalog.definition("orders")
    shutil.move(two.folder / "snapshot", two.folder / "away")
    said = of_all_of(two, GONE)
    assert said is not None
    assert "the others fail, too: " in said
    assert "orders" in said
    shutil.move(two.folder / "away", two.folder / "snapshot")
    assert of_all_of(two, GONE) is None
    assert two.catalog.definition("orders") == before


def test_the_run_ends_with_the_cause_and_the_job_has_all_its_tables(two: Scene) -> None:
    (two.folder / "job.toml").write_text(ASIDE + REFUNDS)
    config, before, said = load(two.folder / "job.toml"), two.catalog.definition("orders"), list[str]()
    shutil.move(two.folder / "snapshot", two.folder / "away")
    watcher: Any = SimpleNamespace(tell=said.append, progressed=NoWatcher().progressed)
    run = _Run("orders", two.catalog, watcher)
    error = Fatal("its files are gone").of("refunds")
    with (
        live(two) as claim,
        Resources(config) as resources,
        ExitStack() as opened,
        pytest.raises(Fatal, match="its files are gone"),
    ):
        run._without(claim, before, config, resources, opened, error)
    assert two.catalog.definition("orders") == before
    assert said[0].startswith("refunds is not set aside: the others fail, too: ")


def test_a_second_table_waits_for_a_commit_of_the_others_but_for_what_is_of_its_data(three: Scene) -> None:
    with live(three) as claim:
        aside(three, claim, table="third")
    stop(three)
    said = of_all_of(three, GONE)
    assert said == "the others have committed nothing since third was set aside"
    assert of_all_of(three, BadData("a value")) is None
    commit(three)
    assert of_all_of(three, GONE) is None


def configured(s: Scene, text: str) -> None:
    (s.folder / "job.toml").write_text(text)
    done = s.run("set", "orders", "--config", "job.toml")
    assert done.exit_code == 0, done.output
    with live(s) as claim:
        taken(s, claim)
    stop(s)


def test_two_tables_that_fail_at_once_are_set_aside_one_after_the_other_and_never_all(three: Scene) -> None:
    configured(three, ASIDE + REFUNDS + THIRD)
    for table in ("refunds", "third"):
        shutil.rmtree(three.folder / "snapshot" / table)
    assert of_all_of(three, GONE) is None
    with live(three) as claim:
        aside(three, claim, table="refunds")
    stop(three)
    assert of_all_of(three, Fatal("its files are gone"), "third") is None
    shutil.rmtree(three.folder / "snapshot/orders")
    said = of_all_of(three, Fatal("its files are gone"), "third")
    assert said is not None
    assert "the others fail, too: " in said


def test_a_table_that_people_query_since_a_cutover_is_not_set_aside(two: Scene) -> None:
    shutil.rmtree(two.folder / "snapshot/refunds")
    cut_over = queried(two)
    assert of_all_of(two, GONE) is None
    cut_over()
    said = of_all_of(two, GONE)
    assert said is not None
    assert "people query refunds as shown_refunds since the cutover" in said


def test_a_table_whose_error_stops_the_job_is_never_passed_over(three: Scene) -> None:
    configured(three, ASIDE + REFUNDS + THIRD + 'on_error = "stop"\n')
    for table in ("refunds", "third"):
        shutil.rmtree(three.folder / "snapshot" / table)
    said = of_all_of(three, GONE)
    assert said is not None
    assert "third" in said


def commit(s: Scene) -> None:
    """The job's tables have committed an epoch."""
    with live(s) as claim:
        at = claim.store.load().committed
        epoch = replace(at, epoch=at.epoch + 1, attempt="c", plan=EpochPlan(), staged=Staged("c"), splits={})
        claim.store.prepare(epoch, None, None)
        claim.store.mark(EpochRecord(epoch.epoch, at.epoch, at.phase, epoch.epoch), None)
    stop(s)


def test_a_table_that_is_put_back_leaves_the_config_as_the_file_has_it(two: Scene) -> None:
    """It is the last of the job's by then; the file has it first."""
    (two.folder / "job.toml").write_text(SHOP + REFUNDS)
    with live(two) as claim:
        aside(two, claim, table="orders")
    stop(two)
    assert two.run("refill", "orders", "--table", "orders").exit_code == 0
    with live(two) as claim:
        (said,) = taken(two, claim)
    stop(two)
    assert said.startswith("refill orders, requested by "), "as it was typed"
    job = two.catalog.definition("orders")
    assert [one.name for one in from_stored(job.config).tables] == ["refunds", "orders"]
    assert changed_keys(job.config, load(two.folder / "job.toml")) == []
    assert list(edited(replace(job, config_file=str(two.folder / "job.toml")))) == []
    (two.folder / "job.toml").write_text(SHOP + REFUNDS.replace('key = ["id"]', 'key = ["id"]\nrate = 5'))
    assert changed_keys(job.config, load(two.folder / "job.toml")) == ["tables.refunds.rate"]


def test_tables_are_put_back_one_after_the_other_in_one_run(three: Scene) -> None:
    for table in ("refunds", "third"):
        with live(three) as claim:
            aside(three, claim, table=table)
        stop(three)
    for table in ("refunds", "third"):
        done = three.run("refill", "orders", "--table", table)
        assert done.exit_code == 0, done.output
    assert three.run("refill", "orders", "--table", "third").exit_code == 2, "it is asked for already"
    with live(three) as claim:
        assert ["goes on with" in said for _ in "12" for said in taken(three, claim)] == [True, True]
    stop(three)
    job = three.catalog.definition("orders")
    assert {one.name for one in job.tables} == {"orders", "refunds", "third"} == agreed(three)
    assert [one.refill for one in job.aside] == [one.id for one in three.catalog.refills.pending("orders")]
    assert len(job.aside) == 2


def test_the_rows_of_a_table_that_was_not_put_back_after_all_are_of_no_commit(two: Scene) -> None:
    with live(two) as claim:
        aside(two, claim)
    stop(two)
    (one,) = two.catalog.definition("orders").aside
    assert f"its rows are those of commit {one.epoch}" in " ".join(two.run("status", "orders").stdout.split())
    assert two.run("refill", "orders", "--table", "refunds").exit_code == 0
    with live(two) as claim:
        taken(two, claim)
        aside(two, claim)
    stop(two)
    assert "its rows are those of no commit" in " ".join(two.run("status", "orders").stdout.split())
