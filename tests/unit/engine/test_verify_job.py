"""What `verify` refuses before it reads anything, and what it reports when it cannot compare. No Spark."""

import json
from dataclasses import replace

import pytest

from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.engine.verify.fixable import converging, why_not
from backfill_cli.engine.verify.job import history_named, require_known
from backfill_cli.errors import HistoryGone, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.model.verify import Asked

TABLES = tuple(SinkTable(name, f"main.{name}", ("id",), "{}") for name in ("customers", "orders", "order_lines"))
JOB = JobDefinition("shop", "{}", "{}", Pin(START, None, None, ()), "forever", "snapshot", TABLES)
AT = Checkpoint(5, 4, 1, "a", "{}", Phase.UPSTREAM, Position.of({"log": 5}))


def test_tables_that_the_job_has_are_taken() -> None:
    require_known(JOB, Asked())
    require_known(JOB, Asked(("orders", "customers")))


def test_a_table_that_it_has_not_is_told_with_those_that_it_has_nearest_first() -> None:
    with pytest.raises(UsageError) as caught:
        require_known(JOB, Asked(("orders", "ordres")))
    assert caught.value.message == "job 'shop' has no table 'ordres'; its tables: orders, order_lines, customers"
    assert caught.value.hint == "backfill verify shop --table orders"


@pytest.mark.parametrize("phase", Phase)
def test_a_fix_waits_for_the_end_of_the_snapshot(phase: Phase) -> None:
    assert (why_not(JOB, replace(AT, phase=phase), False) is None) == (phase != Phase.SNAPSHOT)


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
        assert (why_not(job, at, converging(job, at)) is not None) is expected


@pytest.mark.parametrize(
    "hint", ["put it back, or drop the job and start over", "drop the job and start over", ""]
)
def test_where_history_is_gone_it_is_named_and_nobody_is_told_to_start_over(hint: str) -> None:
    with pytest.raises(HistoryGone) as caught, history_named("shop"):
        raise HistoryGone("replication slot 'shop' is gone", hint)
    assert caught.value.exit_code == 7
    assert caught.value.message == "job 'shop' cannot be verified: replication slot 'shop' is gone"
    assert "drop" not in caught.value.hint
    assert "start over" not in caught.value.hint
    assert caught.value.hint.endswith("backfill status shop")


def test_what_brings_history_back_is_still_told() -> None:
    with pytest.raises(HistoryGone) as caught, history_named("shop"):
        raise HistoryGone("2 of 9 change files are gone", "put them back to compare with them")
    assert caught.value.hint.startswith("put them back to compare with them; ")


@pytest.mark.parametrize(
    "upstream",
    [
        {"type": "kafka", "compacted": True},
        {"snapshot": {}, "changes": {"type": "kafka", "accept_compaction": True}},
    ],
)
def test_a_fix_goes_by_no_log_that_compaction_thins(upstream: dict[str, object]) -> None:
    found = why_not(replace(JOB, config=json.dumps({"upstream": upstream})), AT, False)
    assert found is not None
    assert "compacted" in found[0]
    assert why_not(replace(JOB, config=json.dumps({"upstream": {"compacted": False}})), AT, False) is None


def test_a_fix_leaves_tables_alone_that_had_rows_of_others() -> None:
    existing = replace(JOB, tables=tuple(replace(table, plain_inserts=False) for table in JOB.tables))
    found = why_not(existing, AT, False)
    assert found is not None
    assert "--into-existing" in found[0]
    quarantine = tuple(replace(table, plain_inserts=False, side=True) for table in JOB.tables)
    assert why_not(replace(JOB, tables=quarantine), AT, False) is None
