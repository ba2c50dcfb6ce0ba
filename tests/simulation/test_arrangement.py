"""The laws of strategy arrangement under seeded schedules; they see each of its rules that is taken out."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from backfill_cli.engine.loop import orchestrator
from backfill_cli.engine.staging import changes
from backfill_cli.strategies.arrangement import ArrangementStrategy

from .current_job import AlteringSchedule, CurrentSchedule
from .current_tables import KEYS, rank
from .current_world import CurrentUpstream
from .schedule import run_all
from .test_schedules import CHUNK, SCHEDULES

MET = ("not shown yet", "ended early", "log first", "emptied", "emptied while it was read", "dropped, not reached")


@pytest.mark.parametrize("first", range(0, SCHEDULES // 4, CHUNK))
def test_every_schedule_keeps_the_laws(first: int) -> None:
    run_all(CurrentSchedule, range(first, first + CHUNK))


def _met(seeds: range) -> Counter[str]:
    """What happened in these schedules, to the job and in the database."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        schedule = CurrentSchedule(seed)
        try:
            schedule.run()
        except BaseException as exc:
            exc.add_note(f"replay: CurrentSchedule({seed}).run()")
            raise
        happened += Counter(schedule.seen) + schedule.upstream.met
    return happened


def test_schedules_meet_what_is_rare() -> None:
    happened = _met(range(30_000, 30_200))
    assert {what: happened[what] for what in MET if happened[what] < 5} == {}
    least = {
        "crash": 100,
        "dropped": 10,
        "history gone": 5,
        "restored": 20,
        "refused": 5,
        "taken over": 10,
        "set": 30,
    }
    assert {what: happened[what] for what, times in least.items() if happened[what] < times} == {}


def test_case_04_a_key_that_changes_is_gone_and_there_wherever_the_reads_are() -> None:
    assert _met(range(30_200, 30_260))["key changed"] > 500


def test_case_09_keys_are_compared_by_the_database_alone() -> None:
    """Their order there is that of their texts read backwards."""
    in_text_order = sorted(KEYS)
    assert sorted(KEYS, key=rank) != in_text_order
    assert _met(range(30_260, 30_320))["dropped, not reached"] > 200


def test_case_21_a_commit_that_is_in_the_log_before_it_is_shown_is_not_lost() -> None:
    assert _met(range(30_320, 30_380))["not shown yet"] > 50


def test_case_23_a_table_that_is_emptied_while_it_is_read_is_empty() -> None:
    assert _met(range(30_380, 30_500))["emptied while it was read"] > 2


def test_columns_that_change_often_keep_the_laws() -> None:
    run_all(AlteringSchedule, range(30_500, 30_600))


def _not_waiting(self: CurrentUpstream) -> None: ...


def _not_knowing(self: CurrentUpstream, memory: str) -> None:
    self.read = True


WITHOUT: Mapping[str, tuple[type[CurrentSchedule], object, str, object]] = {
    "chunks show what was consumed": (CurrentSchedule, CurrentUpstream, "_until_seen", _not_waiting),
    "what is not shown yet is remembered": (CurrentSchedule, CurrentUpstream, "recall", _not_knowing),
    "a truncate drops the rows that were read": (
        CurrentSchedule,
        changes,
        "over",
        lambda rows, net: replace(net, inserts=rows.inserts, rows=rows.rows),
    ),
    "the window is as far as the reads": (
        CurrentSchedule,
        changes,
        "reached",
        lambda plan, reads: REACHED(plan, ()),
    ),
    "what no read has reached is dropped": (
        CurrentSchedule,
        ArrangementStrategy,
        "_within",
        lambda self, state: None,
    ),
    "an open window ends at or after all that its chunks saw": (
        AlteringSchedule,
        CurrentUpstream,
        "reaches_reads",
        False,
    ),
    "a window that ends early leaves something pending": (
        CurrentSchedule,
        orchestrator,
        "left_of",
        lambda plan, staged: plan,
    ),
}
REACHED: Callable[..., Any] = changes.reached


@pytest.mark.parametrize("rule", WITHOUT)
def test_the_laws_see_that_a_rule_is_missing(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, *place = WITHOUT[rule]
    monkeypatch.setattr(*place)
    with pytest.raises(AssertionError) as failed:
        run_all(kind, range(1_000))
    (note,) = failed.value.__notes__
    begin = f"replay: {kind.__name__}("
    assert note.startswith(begin)
    with pytest.raises(AssertionError):
        kind(int(note.removeprefix(begin).removesuffix(").run()"))).run()
