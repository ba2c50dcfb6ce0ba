"""The laws over lake tables: others, and other runners, get in between the steps of a commit; each rule counts."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from backfill_cli.errors import BackfillError
from backfill_cli.lake.state import JobState
from backfill_cli.sinks.delta import marks

from .delta_tables import DeltaTables
from .iceberg_tables import IcebergTables
from .lake_schedule import BusySchedule, DeltaSchedule, IcebergSchedule, LakeSchedule, LivingSchedule
from .schedule import run_all

KINDS = (DeltaSchedule, IcebergSchedule)
LEAST = {"taken over in a commit": 100, "written by others": 500, "crash": 100, "damaged": 5, "half refused": 5}


@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_keeps_the_laws(kind: type[LakeSchedule]) -> None:
    happened = run_all(kind, range(50_000, 50_300))
    assert {what: happened[what] for what, times in LEAST.items() if happened[what] < times} == {}


def test_the_laws_hold_where_others_write_all_the_time() -> None:
    assert run_all(BusySchedule, range(50_000, 50_100))["taken over in a commit"] > 30


def test_tables_show_their_epoch_where_no_runner_dies() -> None:
    assert run_all(LivingSchedule, range(50_000, 50_100))["written by others"] > 1_000


def _at_the_newest(self: IcebergTables, name: str, tag: str, number: int) -> None:
    table = self.tables[name]
    self._put(name, replace(table, refs={**table.refs, tag: table.main}))


def _over_what_came_between(self: IcebergTables, name: str, number: int) -> bool:
    return number in self.tables[name].snapshots  # a snapshot that expired is nowhere to forward to


WITHOUT: Mapping[str, tuple[type[LakeSchedule], object, str, object]] = {
    "a Delta number begins with the token": (DeltaSchedule, marks, "number_of", lambda token, epoch: epoch),
    "Delta refuses what another of its application overtook": (DeltaSchedule, DeltaTables, "overtaken", False),
    "what is kept is written before the rows": (DeltaSchedule, JobState, "save", lambda *_: None),
    "a branch forwards where nothing came between": (
        IcebergSchedule,
        IcebergTables,
        "forwards",
        _over_what_came_between,
    ),
    "a tag keeps the marker": (IcebergSchedule, IcebergTables, "tagged", lambda *_: None),
    "a tag is at the marker, not at the newest snapshot": (
        IcebergSchedule,
        IcebergTables,
        "tagged",
        _at_the_newest,
    ),
    "what is given up has no branch": (LivingSchedule, IcebergTables, "given_up", lambda *_: None),
}


@pytest.mark.parametrize("rule", WITHOUT)
def test_the_laws_see_that_a_rule_is_missing(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, *place = WITHOUT[rule]
    monkeypatch.setattr(*place)
    with pytest.raises((AssertionError, BackfillError)) as failed:  # of a law, or of a runner that cannot go on
        run_all(kind, range(50_000, 50_300))
    assert failed.value.__notes__[0].startswith(f"replay: {kind.__name__}(")
