"""The mechanism itself: a hint that cannot be typed is found, and none counts as typed by saying so."""

import ast
from collections.abc import Callable
from typing import Any

import hint_checks
import hint_run
import pytest
from hint_log import latest
from hint_sites import ROOT, sites

from backfill_cli.commands.throttle import rows_per_second
from backfill_cli.errors import BackfillError, UsageError


@pytest.mark.parametrize(
    ("hint", "fault"),
    [
        ("backfill staus orders", "there is no command 'staus'"),
        ("backfill drop orders --confrm orders", "No such option: --confrm"),
        ("backfill resume 'a b'", "'a b' is no job's name"),
        ("leave --independant out", "no command has the option --independant"),
        ("correct sink.dns", "the config has no option sink.dns"),
        ('set barrier.target = "soon"', "does not accept this value"),
        ("set csv.header = true", "the config has no option csv.header"),
        ('set upstream.snapshot.format = "orc"', "does not accept this value"),
        ("ALTER TABLE t SET LOGGED TWICE", "is not duckdb's SQL"),
    ],
)
def test_a_hint_that_cannot_be_typed_is_found(hint: str, fault: str) -> None:
    with hint_run.parsers([], {}) as parse:
        found = list(hint_checks.faults(hint, "backfill_cli/sinks/duckdb/x.py", parse))
    assert [fault in one for one in found] == [True], found


@pytest.mark.parametrize(
    "hint",
    [
        "backfill pause a --all --wait; backfill verify a; backfill resume a",
        "backfill throttle --rate 500, or --rate none",
        'convert it in the transform: select = ["CAST(a AS STRING) AS a", …]',
        "if they change: upstream.changes.accept_compaction = true; then: backfill start --config FILE",
        "ALTER TABLE t ALTER COLUMN a TYPE text; then go on",
        "nothing of it is committed; this is a bug in backfill: report it with the job's log",
    ],
)
def test_a_hint_that_can_be_typed_passes(hint: str) -> None:
    with hint_run.parsers([], {}) as parse:
        assert list(hint_checks.faults(hint, "backfill_cli/sinks/duckdb/x.py", parse)) == []


def test_an_error_counts_for_the_call_that_built_its_hint() -> None:
    with pytest.raises(UsageError) as refused:
        rows_per_second("fast")
    (site,) = hint_run.sites_of(hint_run.Record("built", _places(refused.value), str(refused.value.hint), ""))
    file, line, _ = site.at
    assert (site.name, file) == ("commands/throttle.py:rows_per_second#1", "commands/throttle.py")
    assert "UsageError(" in (ROOT / file).read_text("utf-8").splitlines()[line - 1]
    assert latest[str(refused.value.hint)] == refused.value.hint_places  # type: ignore[attr-defined]


def test_a_hint_that_is_written_out_can_be_typed_whether_a_test_shows_it_or_not() -> None:
    with hint_run.parsers([], {}) as parse:
        found = [(one.name, list(hint_checks.faults(one.said, one.at[0], parse))) for one in sites() if one.said]
    assert len(found) > 200
    assert [one for one in found if one[1]] == []


def test_each_site_has_a_name_of_its_own_and_is_a_call_or_its_block() -> None:
    assert len({site.name for site in sites()}) == len(sites()) > 500
    calls = {
        (file, call.lineno, call.col_offset)
        for file in {site.at[0] for site in sites()}
        for call in ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
        if isinstance(call, ast.Call | ast.With)
    }
    assert {site.at for site in sites()} <= calls


def test_nothing_is_typed_by_a_test_that_takes_nothing_of_the_hint(typed: Callable[..., Any]) -> None:
    error = BackfillError("it is so", "backfill status")
    with pytest.raises(AssertionError, match="nothing of the hint was typed"), typed(error):
        pass
    with pytest.raises(AssertionError, match="start it"), typed(error) as hint:
        hint.says("start it")


def _places(error: Any) -> Any:
    return tuple(tuple(place) for place in error.hint_places)
