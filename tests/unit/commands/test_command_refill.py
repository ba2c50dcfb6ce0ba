"""refill: what it records, what it refuses before anything is recorded, how it ends; each way on is typed."""

import json
import shlex
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from hint_scene import PlainSink, Scene, scene
from hint_typed import typed
from pyspark.errors import AnalysisException
from sink_contract import a_table, schema_json

from backfill_cli.api.refilling import _bounds, _is_set
from backfill_cli.config import from_stored
from backfill_cli.config.transforms import condition_faults
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.refill.compare import _condition_told
from backfill_cli.errors import UsageError, command
from backfill_cli.model.job import Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.refill import Extent, Refill, RefillState

__all__ = ["scene"]

pytestmark = pytest.mark.seconds


def pending(s: Scene) -> tuple[Refill, ...]:
    return s.catalog.refills.pending("orders")


def ended(s: Scene, state: RefillState, why: Limit = Limit("")) -> None:  # noqa: B008
    (one,) = pending(s)
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.note_refill(replace(one, state=state, ended_ms=9, why=why))


def test_a_part_of_a_table_is_recorded_and_shown_until_a_runner_does_it(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    done = s.run("refill", "orders", "--range", "1000..2000", "--where", "id > 5")
    assert done.exit_code == 0, done.output
    assert "the refill of orders, keys 1000..2000, where id > 5 is recorded" in done.stderr
    assert "it waits for a runner: backfill resume orders" in done.stderr
    (one,) = pending(s)
    assert (one.extent, one.state) == (Extent("id > 5", "1000", "2000"), RefillState.WAITING)
    shown = s.run("status", "orders").stdout
    assert "orders, keys 1000..2000, where id > 5: waiting: until a runner has the job" in shown
    (job,) = json.loads(s.run("status", "orders", "--json").stdout)["jobs"]
    assert (job["refills"][0]["first"], job["refills"][0]["state"]) == ("1000", "waiting")
    assert job["refills"][0]["reason"]["hint"]["commands"] == ["backfill resume orders"]


def test_a_second_refill_of_the_table_waits_for_the_first_or_its_end(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    assert s.run("refill", "orders").exit_code == 0
    with typed(s.refused("refill", "orders", "--range", "1..2")) as hint:
        see, end = hint.commands()
        assert s.run(*see).exit_code == 0
        assert s.run(*end).exit_code == 0
        assert pending(s) == ()
        assert s.run("refill", "orders", "--range", "1..2").exit_code == 0


def test_a_cancel_without_a_refill_changes_nothing(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    with typed(s.refused("refill", "orders", "--cancel")) as hint:
        (see,) = hint.commands()
        assert "refill:" not in s.run(*see).stdout


@pytest.mark.parametrize(
    ("other", "words"),
    [("--where", ("--where", "id = 1")), ("--range", ("--range", "1..2")), ("--wait", ("--wait",))],
)
def test_a_cancel_takes_no_part_of_a_table(
    scene: Callable[..., Scene], other: str, words: tuple[str, ...]
) -> None:
    s = scene("0")
    s.catch_up()
    with typed(s.refused("refill", "orders", "--cancel", *words)) as hint:
        hint.says(f"leave {other} out")
        assert s.run("refill", "orders").exit_code == 0
        assert s.run("refill", "orders", "--cancel").exit_code == 0


def test_a_table_that_the_job_does_not_have_is_refused_with_the_nearest(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    with typed(s.refused("refill", "orders", "--table", "order")) as hint:
        (again,) = hint.commands()
        assert s.run(*again).exit_code == 0


def test_a_job_of_several_tables_is_told_which(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()
    definition = s.catalog.definition("orders")
    more = replace(definition, tables=(*definition.tables, replace(definition.tables[0], name="lines")))
    monkeypatch.setattr("backfill_cli.catalog.catalog.jobs.definition", lambda *_: more)
    with typed(s.refused("refill", "orders")) as hint:
        (again,) = hint.commands()
        assert s.run(*again).exit_code == 0


@pytest.mark.parametrize("between", ["a..b", "1", "..", "9..1", "1..2..3", "1..1_000"])
def test_bounds_that_are_none_are_refused(scene: Callable[..., Scene], between: str) -> None:
    s = scene("0")
    s.catch_up()
    with typed(s.refused("refill", "orders", "--range", between)) as hint:
        (again,) = hint.commands()
        assert s.run(*again).exit_code == 0


def test_a_key_without_bounds_is_refused_with_a_condition(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()
    monkeypatch.setattr("backfill_cli.api.refilling.OF_TYPE", {})
    with typed(s.refused("refill", "orders", "--range", "a..b")) as hint:
        (again,) = hint.commands()
        assert s.run(*again).exit_code == 0


@pytest.mark.parametrize(
    "where",
    ["colour = 'red'", "id = ", "id IN (SELECT 1)", "", "  ", "rand() < 0.5", "count(*) > 1", "id = 1; DROP"],
)
def test_what_is_no_condition_on_a_row_is_refused(scene: Callable[..., Scene], where: str) -> None:
    s = scene("0")
    s.catch_up()
    with typed(s.refused("refill", "orders", "--where", where)) as hint:
        (again,) = hint.commands()
        assert s.run(*again).exit_code == 0


def test_a_sink_that_cannot_be_read_is_refused(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()
    config = from_stored(s.catalog.definition("orders").config)
    monkeypatch.setattr(Resources, "sink", property(lambda self: PlainSink(config.open_sink())))
    with typed(s.refused("refill", "orders")) as hint:
        assert hint.commands() == [["plan"]]


def test_into_existing_tables_nothing_is_refilled(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()
    definition = s.catalog.definition("orders")
    into = replace(definition, tables=tuple(replace(one, plain_inserts=False) for one in definition.tables))
    monkeypatch.setattr("backfill_cli.catalog.catalog.jobs.definition", lambda *_: into)
    with typed(s.refused("refill", "orders")) as hint:
        hint.says("correct the rows that verify lists with SQL")
        s.sql(s.sink, "DELETE FROM orders WHERE id IS NULL")


def test_the_end_is_waited_for_and_says_what_was_changed(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()

    def do() -> None:
        while not pending(s):
            pass
        ended(s, RefillState.DONE)

    runner = threading.Thread(target=do)
    runner.start()
    done = s.run("refill", "orders", "--wait", "--json")
    runner.join()
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["refill"]["state"] == "done"


def test_a_refill_that_fails_ends_its_wait_with_its_reason(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    why = Limit("the log is gone", hint=command("status orders"))

    def fail() -> None:
        while not pending(s):
            pass
        ended(s, RefillState.FAILED, why)

    runner = threading.Thread(target=fail)
    runner.start()
    with typed(s.ended("refill", "orders", "--wait")) as hint:
        runner.join()
        (see,) = hint.commands()
        assert "failed: the log is gone" in s.run(*see).stdout


def test_a_cancelled_refill_ends_its_wait_and_can_be_asked_for_again(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()

    def end() -> None:
        while not pending(s):
            pass
        (one,) = pending(s)
        s.catalog.post("orders", Verb.CANCEL_REFILL, None, "me@box", 9, payload=str(one.id))

    other = threading.Thread(target=end)
    other.start()
    with typed(s.ended("refill", "orders", "--wait")) as hint:
        other.join()
        (again,) = hint.commands()
        assert s.run(*again).exit_code == 0


def test_a_wait_without_a_runner_times_out_and_the_refill_stays(scene: Callable[..., Scene]) -> None:
    s = scene("0")
    s.catch_up()
    with typed(s.ended("refill", "orders", "--wait", "--timeout", "100ms")) as hint:
        (see,) = hint.commands()
        assert "refill:" in s.run(*see).stdout
        assert len(pending(s)) == 1


def gone(s: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has another table instead of `orders`."""
    definition = s.catalog.definition("orders")
    other = replace(definition, tables=(replace(definition.tables[0], name="lines"),))
    monkeypatch.setattr("backfill_cli.catalog.catalog.jobs.definition", lambda *_: other)


def test_a_refill_of_a_table_that_left_the_job_can_be_cancelled(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()
    assert s.run("refill", "orders").exit_code == 0
    gone(s, monkeypatch)
    assert s.run("refill", "orders", "--table", "orders", "--cancel").exit_code == 0
    assert pending(s) == ()


def test_who_waits_for_the_refill_of_a_table_that_leaves_is_told(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()

    def leave() -> None:
        while not pending(s):
            pass
        gone(s, monkeypatch)
        ended(s, RefillState.CANCELLED, Limit("the table left the job"))

    other = threading.Thread(target=leave)
    other.start()
    with typed(s.ended("refill", "orders", "--wait")) as hint:
        other.join()
        (see,) = hint.commands()
        assert "the table left the job" in s.run(*see).stdout


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("byte", ["128", "-129", "1_0", " 1", "1.0", "١"]),
        ("short", ["32768"]),
        ("integer", ["2147483648", "-2147483649"]),
        ("long", ["9223372036854775808", "9" * 5000]),
        ("decimal(4,2)", ["100", "-100.5", "1.234", "1E1", "NaN", "1_0", ".", "x"]),
        ("decimal(2,2)", ["1"]),
        ("date", ["20260101", "2026-W01-1", "2026-02-30", "0000-01-01", "2026-01-01 00:00:00"]),
        ("timestamp", ["20260101", "2026-01-01 00:00:00,5", "2026-01-01 25:00:00", "2026-W01-1"]),
        ("timestamp_ntz", ["2026-01-01 00:00:00+02:00", "2026-01-01 00:00:00Z"]),
    ],
)
def test_a_bound_that_spark_would_not_take_as_it_is_is_refused_by_name(kind: str, wrong: list[str]) -> None:
    table = a_table(schema=schema_json(id=kind, name="string"))
    for bound in wrong:
        for between in (f"{bound}..", f"..{bound}"):
            with pytest.raises(UsageError) as refused:
                _bounds("orders", table, between)
            assert refused.value.message.endswith(f"found {bound!r}")
    last = shlex.split(str(refused.value.hint))[-1]
    assert _bounds("orders", table, last) != (None, None), "what the hint types"


@pytest.mark.parametrize(
    ("kind", "between", "bounds"),
    [
        ("byte", "-128..+127", ("-128", "127")),
        ("long", "-9223372036854775808..9223372036854775807", ("-9223372036854775808", "9223372036854775807")),
        ("decimal(4,2)", "-099.990..99.99", ("-99.990", "99.99")),
        ("decimal(2,2)", ".5..0.99", ("0.5", "0.99")),
        ("date", "0001-01-01..9999-12-31", ("0001-01-01", "9999-12-31")),
        (
            "timestamp",
            "2026-01-01T01:00Z..2026-01-01 03:30:00.5+02:00",
            ("2026-01-01 01:00:00+00:00", "2026-01-01 03:30:00.500000+02:00"),
        ),
        ("timestamp_ntz", "2026-01-01..", ("2026-01-01 00:00:00", None)),
        ("string", "a_1..b c", ("a_1", "b c")),
    ],
)
def test_bounds_are_recorded_as_spark_casts_them(kind: str, between: str, bounds: tuple[str, str | None]) -> None:
    assert _bounds("orders", a_table(schema=schema_json(id=kind, name="string")), between) == bounds


def test_only_one_of_two_bounds_with_a_zone_has_no_order() -> None:
    table = a_table(schema=schema_json(id="timestamp", name="string"))
    with pytest.raises(UsageError):
        _bounds("orders", table, "2026-01-01 00:00:00Z..2026-01-02 00:00:00")


def test_a_cancel_of_a_whole_tables_refill_says_that_rows_can_be_missing_still(
    scene: Callable[..., Scene],
) -> None:
    s = scene("0")
    s.catch_up()
    assert s.run("refill", "orders").exit_code == 0
    done = s.run("refill", "orders", "--cancel")
    again = "such rows are missing still; to have all rows: backfill refill orders --table orders"
    assert again in done.stderr
    (job,) = json.loads(s.run("status", "orders", "--json").stdout)["jobs"]
    assert again in s.run("status", "orders").stdout.replace("\n", " ")
    (words,) = job["refills"][-1]["reason"]["hint"]["commands"]
    assert s.run(*words.split()[1:]).exit_code == 0
    assert s.run("refill", "orders", "--cancel").exit_code == 0
    assert s.run("refill", "orders", "--range", "1..2").exit_code == 0
    assert "missing still" not in s.run("refill", "orders", "--cancel").stderr


def test_a_condition_that_cannot_be_computed_for_a_row_ends_the_refill_and_is_named(
    scene: Callable[..., Scene],
) -> None:
    s = scene("0")
    s.catch_up()

    def compared(error: Exception, where: str) -> None:
        with _condition_told("orders", "orders", Extent(where)):
            raise error

    of_where = AnalysisException('[DATATYPE_MISMATCH] "v" is no BOOLEAN. SQLSTATE: 42K09')
    with pytest.raises(UsageError, match=r"--where 'v': .*is no BOOLEAN") as refused:
        compared(of_where, "v")
    with typed(refused.value) as hint:
        (again,) = hint.commands()
        assert s.run(*again[:-1], "id = 1").exit_code == 0
    with pytest.raises(AnalysisException):  # without a condition it is of something else
        compared(of_where, "")


@pytest.mark.parametrize("name", ["order", "a b", "a`b", "it's", "select"])
def test_a_condition_that_a_hint_shows_is_one_whatever_the_keys_name(name: str) -> None:
    assert condition_faults(_is_set(name), [name]) == []
