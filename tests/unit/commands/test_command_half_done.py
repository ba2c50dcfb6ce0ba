"""Start over, resume and drop of a job that is half done: what they keep, and what a refusal leaves as it was."""

import re
import shlex
from collections.abc import Callable

import duckdb_shared
import pytest
from engine_states import (
    nothing_saved,
    other_result,
    sink_deleted,
    sink_newer,
    sink_older,
    staging_damaged_between_tables,
)
from hint_scene import Scene, content, scene
from sink_states import marker_gone_under_a_runner, sink_restored_under_a_runner, table_dropped

__all__ = ["scene"]

pytestmark = pytest.mark.seconds


@pytest.mark.parametrize(
    "state",
    [
        table_dropped,
        sink_newer,
        sink_older,
        sink_deleted,
        other_result,
        nothing_saved,
        marker_gone_under_a_runner,
        sink_restored_under_a_runner,
        staging_damaged_between_tables,
    ],
)
def test_to_start_over_as_a_hint_says_is_not_refused_for_rows_of_the_first_try(
    scene: Callable[[str], Scene], state: Callable[[Scene], str]
) -> None:
    s = scene("0")
    s.sql(s.sink, "INSERT INTO orders VALUES (1, 'a')")
    over = re.search(r"(backfill drop [^;,]+), and start over", state(s))
    assert over is not None
    assert s.run(*shlex.split(over[1])[1:]).exit_code == 0
    begun = s.run("start", "--config", "job.toml")
    assert begun.exit_code == 0, begun.stderr


def test_resume_records_the_until_that_it_is_given_and_says_so(scene: Callable[[str], Scene]) -> None:
    s = scene("0")
    before = s.catalog.definition("orders").until
    given = "forever" if before == "caught-up" else "caught-up"
    done = s.run("resume", "orders", "--until", given)
    assert done.exit_code == 0, done.stderr
    assert s.catalog.definition("orders").until == given
    assert f"until {given} from now on, stored in the catalog; it was until {before}" in done.stderr
    assert "from now on" not in s.run("resume", "orders").stderr
    assert s.catalog.definition("orders").until == given


@pytest.mark.parametrize("lost", [False, True], ids=["in its catalog", "by its sink"])
def test_a_drop_that_the_sink_refuses_has_changed_nothing(scene: Callable[[str], Scene], lost: bool) -> None:
    s = scene("orders")
    s.sql(s.sink, "DROP TABLE orders; CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR)")
    s.sql(s.sink, "CREATE TABLE lines (of_order BIGINT REFERENCES orders (id))")
    staged = s.folder / ".backfill/staging/orders/1-a/rows.parquet"
    staged.parent.mkdir(parents=True)
    staged.touch()
    if lost:
        s.catalog.path.unlink()
    by = ("--sink", "job.toml") if lost else ()
    before = content(s.sink)
    said = s.ended("drop", "orders", *by, "--with-rows", "--confirm", "orders")
    assert "drop what depends on it first" in said
    assert (content(s.sink), staged.exists()) == (before, True)
    assert [row.name for row in s.catalog.jobs()] == ([] if lost else ["orders"])
    s.sql(s.sink, "DROP TABLE lines")
    done = s.run("drop", "orders", *by, "--with-rows", "--confirm", "orders")
    assert done.exit_code == 0, done.output
    assert not staged.exists()
    with duckdb_shared.opened(s.sink) as db:
        assert ("orders",) not in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()


def test_a_plan_of_a_job_refuses_what_its_next_run_would_find_changed(scene: Callable[[str], Scene]) -> None:
    s = scene("0")
    ready = s.run("plan")
    assert (ready.exit_code, "start continues it" in ready.stdout) == (0, True), ready.output
    file = s.folder / "snapshot" / "part-0.parquet"
    file.rename(file.with_name("part-1.parquet"))
    planned = s.run("plan")
    assert planned.exit_code == 1, planned.output
    assert "part-0.parquet" in planned.stderr
    assert "backfill drop orders" in planned.stderr
