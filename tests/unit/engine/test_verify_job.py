"""What `verify` refuses before it reads anything, and what it reports when it cannot compare. No Spark."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.contracts import JobDefinition, SinkCopy, SinkTable
from backfill_cli.engine.job.converging import converging
from backfill_cli.engine.job.fixable import why_not
from backfill_cli.engine.job.ownership import start_over_named
from backfill_cli.engine.loop.ports import Job
from backfill_cli.engine.verify import fix
from backfill_cli.engine.verify.job import Verification, history_named, require_known
from backfill_cli.engine.verify.progress import Steps
from backfill_cli.errors import START_OVER, BadData, HistoryGone, Transient, UsageError
from backfill_cli.model.checkpoint import Checkpoint, Marker
from backfill_cli.model.derived import Derived
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.model.verify import Asked, TableVerdict, VerifyProgress, VerifyReport, to_fix

TABLES = tuple(SinkTable(name, f"main.{name}", ("id",), "{}") for name in ("customers", "orders", "order_lines"))
JOB = JobDefinition("shop", "{}", "{}", Pin(START, None, None, ()), "forever", "snapshot", TABLES)
AT = Checkpoint(5, 4, 1, "a", "{}", Phase.UPSTREAM, Position.of({"log": 5}))


def test_tables_that_the_job_has_are_taken() -> None:
    require_known(JOB, Asked())
    require_known(JOB, Asked(("orders", "customers")))


def test_a_table_that_it_has_not_is_told_with_those_that_it_has_nearest_first() -> None:
    with pytest.raises(UsageError) as caught:
        require_known(JOB, Asked(("orders", "ordres")))
    assert caught.value.message == "job 'shop': table 'ordres' does not exist; did you mean orders or order_lines?"
    with typed(caught.value) as hint:
        assert hint.commands() == [["verify", "shop", "--table", "orders"]]
        require_known(JOB, Asked(("orders",)))


def test_the_time_of_a_fix_is_that_of_both_comparisons_and_of_what_it_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was that of the comparison afterwards: `took 4.5s` of 45."""
    now_s = [100.0]
    monkeypatch.setattr(fix, "time", SimpleNamespace(monotonic=lambda: now_s[0], time_ns=time.time_ns))
    monkeypatch.setattr(fix, "sync", lambda _folder: None)

    def passed(seconds: float) -> None:
        now_s[0] += seconds

    def report(begin: Any = None) -> VerifyReport:
        passed(20.0 if begin else 4.5)
        return VerifyReport("shop", 5, (TableVerdict("orders", "main.orders", not begin, 9, 8),), 4.5)

    def recovered(*_: Any, **__: Any) -> Any:
        passed(3.0)
        return SimpleNamespace(committed=AT, last_epoch=5, control=Control())

    monkeypatch.setattr(fix, "recover", recovered)
    loaded = SimpleNamespace(committed=AT, prepared=None)
    store: Any = SimpleNamespace(prepare=lambda *_: None, load=lambda: loaded)
    resources: Any = SimpleNamespace(with_retries=lambda act: act(), sink=None)
    stager: Any = SimpleNamespace(begin=lambda: None, folder=lambda *_: str(tmp_path))
    heartbeat: Any = SimpleNamespace(check=lambda: None)
    verification: Any = SimpleNamespace(report=report, asked=Asked())
    runner = Job("shop", 2, TABLES, "{}")
    fixing = fix._Fixing(runner, JOB, store, resources, stager, heartbeat)
    done = fixing.done(verification, lambda _found: passed(1.0))
    assert done.seconds == 3.0 + 20.0 + 1.0 + 3.0 + 4.5


@pytest.mark.parametrize("promised", [False, True])
def test_a_fix_fills_a_derived_table_that_somebody_has_dropped(
    promised: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It said `nothing to fix` of one in a lake: what prepares the sink had marked it as not filled before the
    comparison, and the marker of a lake's table goes with the table.

    promised: by a runner that was killed; what is prepared then is for that commit, which fills it.
    """
    there, marked, commits, seen = [False], [False], list[int](), list[VerifyReport]()
    outstanding = [AT] * promised
    table = TableVerdict("orders", "main.orders", True, 9, 9)

    def recovered(*_: Any, **__: Any) -> Any:
        if outstanding:
            assert marked[0], "a sink refuses to commit to a table that is gone"
            commits.append(outstanding.pop().epoch)
            there[0], marked[0] = True, False
        return SimpleNamespace(committed=AT, last_epoch=5, control=Control())

    def report(_begin: Any = None) -> VerifyReport:
        gone = not (there[0] or marked[0])
        derived = TableVerdict("d", "main.d", not gone, 0, 0, derived=True, filled=there[0] or gone, gone=gone)
        return VerifyReport("shop", AT.epoch, (table, derived), 1.0)

    monkeypatch.setattr(fix, "sync", lambda _folder: None)
    monkeypatch.setattr(fix, "recover", recovered)
    monkeypatch.setattr(fix, "prepare_derived", lambda *_: marked.__setitem__(0, not there[0]))
    store: Any = SimpleNamespace(
        prepare=lambda at, *_: outstanding.append(at),
        load=lambda: SimpleNamespace(committed=AT, prepared=outstanding[0] if outstanding else None),
    )
    absent = {"d": Marker(0, 0, "")}
    sink = SimpleNamespace(committed=lambda _job: absent, extras=SimpleNamespace(derives=None))
    resources: Any = SimpleNamespace(with_retries=lambda act: act(), sink=sink)
    stager: Any = SimpleNamespace(folder=lambda *_: str(tmp_path))
    runner = Job("shop", 2, TABLES, "{}", derived=(Derived("d", "main.d", ("k",), "SELECT 1"),))
    fixing = fix._Fixing(runner, JOB, store, resources, stager, SimpleNamespace(check=lambda: None))  # type: ignore[arg-type]
    done = fixing.done(SimpleNamespace(report=report, asked=Asked()), seen.append)  # type: ignore[arg-type]
    assert len(commits) == 1, "a commit, which fills it"
    assert (done.tables[1].filled, done.tables[1].equal) == (True, True)
    assert [(one.gone, one.equal) for found in seen for one in found.tables[1:]] == [(True, False)] * (
        not promised
    )
    fixed = [(one.table, one.gone) for one in done.fix.tables]  # type: ignore[union-attr]
    assert fixed == [("d", True)] * (not promised)


@pytest.mark.parametrize("phase", Phase)
def test_a_fix_waits_for_the_end_of_the_snapshot(phase: Phase) -> None:
    assert (why_not(JOB, replace(AT, phase=phase)) is None) == (phase != Phase.SNAPSHOT)


def test_a_fix_waits_until_a_fuzzy_load_has_converged() -> None:
    for complete_at, state, expected in (
        (None, {}, False),
        (Position.of({"log": 5}), {}, False),
        (Position.of({"log": 6}), {}, True),
        (None, {"uncovered": True}, True),
        (None, {"complete_at": {"log": 6}}, True),
    ):
        job = replace(JOB, pin=Pin(START, None, complete_at, ()))
        at = replace(AT, state=json.dumps(state))
        assert converging(job, at) is expected
        assert (why_not(job, at) is not None) is expected


@pytest.mark.parametrize("hint", ["put it back, or " + START_OVER, START_OVER, ""])
def test_where_history_is_gone_it_is_named_and_nobody_is_told_to_start_over(hint: str) -> None:
    with pytest.raises(HistoryGone) as caught, history_named("shop"):
        raise HistoryGone("replication slot 'shop' is gone", hint)
    assert caught.value.exit_code == 7
    assert caught.value.message == "job 'shop' cannot be verified: replication slot 'shop' is gone"
    assert "drop" not in str(caught.value.hint)
    assert "start over" not in str(caught.value.hint)
    assert str(caught.value.hint).endswith("backfill status shop")


def test_what_brings_history_back_is_still_told() -> None:
    with pytest.raises(HistoryGone) as caught, history_named("shop"):
        raise HistoryGone("2 of 9 change files are gone", "put them back to compare with them")
    assert str(caught.value.hint).startswith("put them back to compare with them; ")


@pytest.mark.parametrize(
    "upstream",
    [
        {"type": "kafka", "compacted": True},
        {"snapshot": {}, "changes": {"type": "kafka", "accept_compaction": True}},
    ],
)
def test_a_fix_goes_by_no_log_that_compaction_thins(upstream: dict[str, object]) -> None:
    found = why_not(replace(JOB, config=json.dumps({"upstream": upstream})), AT)
    assert found is not None
    assert "compacted" in found[0]
    assert why_not(replace(JOB, config=json.dumps({"upstream": {"compacted": False}})), AT) is None


def test_a_fix_leaves_tables_alone_that_had_rows_of_others() -> None:
    existing = replace(JOB, tables=tuple(replace(table, plain_inserts=False) for table in JOB.tables))
    found = why_not(existing, AT)
    assert found is not None
    assert "--into-existing" in found[0]
    quarantine = tuple(replace(table, plain_inserts=False, side=True) for table in JOB.tables)
    assert why_not(replace(JOB, tables=quarantine), AT) is None


def test_a_fix_of_what_was_asked_is_refused_for_nothing_else() -> None:
    ours, *_ = JOB.tables
    theirs = replace(ours, name="theirs", target="theirs", plain_inserts=False)
    both = replace(JOB, tables=(ours, theirs))
    assert why_not(both, AT, (ours.name,)) is None
    for asked in ((), ("theirs",), (ours.name, "theirs")):
        assert (found := why_not(both, AT, asked)) is not None
        assert "rows that were in theirs before" in found[0]
    assert why_not(both, AT, ("a_derived_one",)) is None, "its SELECT says what it holds"
    verdicts = [TableVerdict(one, one, False, 1, 0, missing=1) for one in (ours.name, "d")]
    theirs_too = (TableVerdict("theirs", "theirs", True, 1, 1), verdicts[0], replace(verdicts[1], derived=True))
    for compared, left_out, asked in (
        (theirs_too, (), ()),
        (theirs_too[:2], (), ()),  # the fix that would be typed is of the whole job, and refused for theirs
        (theirs_too[1:2], ("theirs", "d"), (ours.name,)),
        ((theirs_too[0], theirs_too[2]), (), ("d",)),
    ):
        report = VerifyReport("j", 7, compared, 1.0, left_out=left_out)
        assert to_fix(report) == asked
        assert (why_not(both, AT, asked) is None) == bool(asked)
    thinned = replace(both, config=json.dumps({"upstream": {"type": "kafka", "compacted": True}}))
    assert why_not(thinned, AT, ("a_derived_one",)) is None


def test_a_repeated_attempt_says_which_one_it_is() -> None:
    opened = []

    @contextmanager
    def copied(job: str, live: bool, folder: Path) -> Iterator[SinkCopy]:
        opened.append(job)
        raise Transient("a commit in between", "it is retried automatically")
        yield

    said: list[VerifyProgress] = []
    steps = Steps("shop", said.append, lambda: 0.0)
    resources: Any = SimpleNamespace(spark=None, upstream=SimpleNamespace(capabilities=SimpleNamespace(log=None)))
    config: Any = SimpleNamespace(job=SimpleNamespace(staging="staging"))
    with pytest.raises(Transient):
        Verification(JOB, config, resources, copied, True, Asked(), steps).report()
    assert opened == ["shop", "shop"]
    assert [one.doing for one in said] == ["taking a copy of the sink", "taking a copy of the sink, attempt 2"]


def test_an_error_that_only_starting_over_corrects_names_the_command() -> None:
    catalog: Any = SimpleNamespace(definition=lambda _name: JOB)
    with pytest.raises(BadData) as caught, start_over_named("shop", catalog):
        raise BadData("table 'orders': column 'v' was dropped", START_OVER)
    assert str(caught.value.hint) == "backfill drop shop --with-rows --confirm shop, and start over"


def test_where_there_is_no_job_yet_nothing_is_to_be_dropped(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught, start_over_named("shop", Catalog(tmp_path / "none.duckdb")):
        raise UsageError("the transform does not fit", "correct [transform]; then " + START_OVER)
    assert str(caught.value.hint) == "correct [transform]; then start again"
