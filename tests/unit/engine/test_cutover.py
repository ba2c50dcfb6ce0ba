"""The gates of a cutover, each closed by its condition, and when a cutover can be reversed."""

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_cli.catalog import Catalog, JobRow
from backfill_cli.catalog.lease import Lease
from backfill_cli.catalog.verified import Verified
from backfill_cli.contracts import JobDefinition, SinkExtras, SinkTable, Swap
from backfill_cli.engine import cutover
from backfill_cli.engine.cutover import _alone, _caught_up, _free, _require_reversible, _verified
from backfill_cli.engine.job import drop
from backfill_cli.errors import Held, Hint, UsageError
from backfill_cli.model.checkpoint import Checkpoint, Progress
from backfill_cli.model.cutover import CutoverReport, Found, Gate, Live, LiveName
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.view.reports import show_cutover

EPOCH = 100
PROGRESS = Progress(Phase.UPSTREAM, EPOCH, 10, 10, 1, 1, {}, 0, 0, None, None, Limit(""))
EQUAL = Verified("orders", EPOCH, 1, None, 0, 0, 0, True)
ROW = JobRow(
    "shop",
    JobState.DONE,
    "",
    Phase.UPSTREAM,
    EPOCH,
    Control(),
    PROGRESS,
    "snapshot",
    "forever",
    1,
    2,
    Lease(),
    False,
)


def verified(row: JobRow, *found: Verified, in_place: bool = False) -> Gate:
    return _verified(replace(row, verified=found), ["orders"], in_place)


def test_a_job_past_its_log_store_is_caught_up_and_says_what_waits() -> None:
    gate = _caught_up(replace(ROW, progress=replace(PROGRESS, pending_epochs=3)))
    assert (gate.open, "3 upstream commits" in gate.said) == (True, True)


@pytest.mark.parametrize(
    ("changed", "fix"),
    [
        ({"state": JobState.FAILED}, "backfill resume shop --until caught-up"),
        ({"state": JobState.STOPPED}, "backfill resume shop --until caught-up"),
        ({"state": JobState.PAUSED}, "backfill resume shop --until caught-up"),
        ({"phase": Phase.SNAPSHOT, "live": True}, "backfill wait shop --for caught-up"),
        (
            {"phase": Phase.SNAPSHOT, "live": True, "control": Control("cli", 1)},
            "backfill resume shop; backfill wait shop --for caught-up",
        ),
        ({"phase": Phase.LOG_STORE}, "backfill resume shop --detach; backfill wait shop --for caught-up"),
        ({"progress": None}, "backfill resume shop --detach; backfill wait shop --for caught-up"),
        ({"progress": replace(PROGRESS, converging=True), "live": True}, "backfill wait shop --for caught-up"),
    ],
)
def test_a_job_that_is_not_there_yet_says_how_to_wait_for_it(changed: dict[str, object], fix: str) -> None:
    gate = _caught_up(replace(ROW, **changed))  # type: ignore[arg-type]
    assert (gate.open, str(gate.fix)) == (False, fix)


def test_equal_at_the_last_checkpoint_is_verified() -> None:
    assert verified(ROW, EQUAL).open


@pytest.mark.parametrize(
    ("found", "said", "fix"),
    [
        ((), "has not been verified", "backfill verify shop"),
        ((replace(EQUAL, epoch=EPOCH - 1),), "the sink is at commit 100", "backfill verify shop"),
        ((replace(EQUAL, share=0.01),), "only 1% of the keys", "backfill verify shop"),
        ((replace(EQUAL, share=0.001),), "only 0.1% of the keys", "backfill verify shop"),
        ((replace(EQUAL, share=0.999),), "only 99.9% of the keys", "backfill verify shop"),
        ((replace(EQUAL, table="lines"),), "has not been verified", "backfill verify shop"),
        ((replace(EQUAL, equal=False),), "differs", "backfill verify shop --fix --confirm shop"),
    ],
)
def test_less_than_that_is_not(found: tuple[Verified, ...], said: str, fix: str) -> None:
    gate = verified(ROW, *found)
    assert (gate.open, said in gate.said, str(gate.fix)) == (False, True, fix)


@pytest.mark.parametrize(
    ("state", "fix"),
    [
        ({}, "backfill resume shop --until caught-up; backfill verify shop"),
        (
            {"live": True},
            "backfill pause shop --wait; backfill verify shop; backfill cutover shop; backfill resume shop",
        ),
        (
            {"live": True, "control": Control("cli", 1)},
            "backfill resume shop; backfill wait shop --for caught-up; backfill pause shop --wait; "
            "backfill verify shop",
        ),
    ],
)
def test_keys_that_were_not_compared_are_counted_with_what_compares_them(
    state: dict[str, Any], fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under constant writes there are always some: a closed gate would never open."""
    gate = verified(replace(ROW, **state), replace(EQUAL, not_compared=14_690))
    assert gate.open
    assert gate.said.endswith("at commit 100; 14,690 keys changed since and were not compared")
    assert str(gate.fix) == f"{fix}   # compares them, too, if nothing writes to the upstream meanwhile"
    show_cutover(CutoverReport("shop", EPOCH, (), (gate,)), str, as_json=False)
    assert f"Try: {fix}" in capsys.readouterr().out
    assert str(verified(ROW, EQUAL).fix) == ""
    none = verified(replace(ROW, **state), replace(EQUAL, not_compared=14_690, rows=0))
    assert (none.open, str(none.fix)) == (False, str(gate.fix))
    assert none.said == "table 'orders': no key was compared: 14,690 keys changed meanwhile"


def test_a_job_that_goes_on_is_paused_for_it() -> None:
    gate = verified(replace(ROW, live=True), replace(EQUAL, epoch=EPOCH - 1))
    assert str(gate.fix) == (
        "backfill pause shop --wait; backfill verify shop; backfill cutover shop; backfill resume shop"
    )


def test_a_job_that_goes_on_is_stopped_for_a_fix_and_to_be_cut_over_in_place() -> None:
    live = replace(ROW, live=True)
    assert str(verified(live, replace(EQUAL, equal=False)).fix) == (
        "backfill stop shop --wait; backfill verify shop --fix --confirm shop; backfill resume shop"
    )
    for row in (live, replace(live, control=Control("cli", 1))):
        assert str(verified(row, in_place=True).fix) == (
            "backfill stop shop --wait; backfill resume shop --until caught-up; backfill verify shop; "
            "backfill cutover shop; backfill resume shop --until forever"
        )


def test_a_sink_that_is_not_where_the_catalog_says_is_looked_at_again_or_recovered_by_a_run() -> None:
    sink: Any = SimpleNamespace(committed=lambda _job: {"orders": SimpleNamespace(epoch=EPOCH + 1)})
    again = "backfill cutover shop   # again: a commit may have been under way"
    assert str(_alone(replace(ROW, live=True), sink).fix) == again
    assert str(_alone(ROW, sink).fix) == "backfill resume shop --until caught-up"


def test_what_would_be_left_behind_closes_a_gate_that_names_it() -> None:
    gate = _free({"orders": Live(Found.TABLE, depends=("view orders is read by v1", "w", "x", "y"))})
    assert (gate.open, "v1; w; x, and 1 more" in gate.said) == (False, True)
    assert _free({"orders": Live(Found.TABLE)}).open


def test_only_what_was_cut_over_lately_is_reversed() -> None:
    now_ms = time.time_ns() // 1_000_000
    ours = Live(Found.OURS, "orders_before_100", 1, now_ms + 60_000)

    def require(*lives: Live, in_place: bool = False) -> None:
        names = tuple(LiveName(f"t{at}", f"t{at}_v2", f"t{at}", live) for at, live in enumerate(lives))
        _require_reversible("shop", names, in_place)

    require(ours, Live(Found.NOTHING))
    with pytest.raises(UsageError, match="is not cut over"):
        require(Live(Found.VIEW))
    late = replace(ours, until_ms=now_ms - 1)
    with pytest.raises(UsageError, match=r"has expired; what was there before is orders_before_100") as both:
        require(late, replace(late, kept=None))
    assert str(both.value.hint).endswith("drop the view t0 and rename orders_before_100 to t0, drop the view t1")
    with pytest.raises(UsageError, match=r"expired") as in_place:
        require(late, in_place=True)
    assert str(in_place.value.hint).endswith("by hand: read t0 VERSION AS OF 'orders_before_100'")


def test_what_others_did_to_a_table_that_is_cut_over_in_place_closes_a_gate_with_what_undoes_it() -> None:
    gate = _free({"orders": Live(Found.TABLE, moved=("others wrote", Hint.of("roll it back")))}, in_place=True)
    assert (gate.open, gate.said, str(gate.fix)) == (False, "others wrote", "roll it back")
    assert _free({"orders": Live(Found.TABLE)}, in_place=True).open


TABLE = SinkTable("orders", "orders_t", ("id",), "{}")


class InPlace:
    """A sink that cuts over in place; records each act, and whether a runner could have had the job meanwhile."""

    in_place = True
    sink: Any = property(lambda self: self)
    extras = property(lambda self: SinkExtras(cutover=self))
    prepare = own = commit = saved = drop = forget = lambda *_: None

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self.did = catalog, list[str]()
        self.found = Found.TABLE

    def __enter__(self) -> "InPlace":
        return self

    def __exit__(self, *_: object) -> None: ...

    def _note(self, act: str) -> None:
        with pytest.raises(Held):
            self._catalog.lock_job("shop").release()
        self.did.append(act)

    def owner(self, job: str) -> None:
        return None

    def committed(self, job: str) -> dict[str, Any]:
        return {}

    def fence(self, job: str, token: int) -> None:
        self._note(f"fence {token}")

    def live(self, job: str, swaps: tuple[Swap, ...]) -> dict[str, Live]:
        assert [(one.table.name, one.live) for one in swaps] == [("orders", "orders_t")]
        return {"orders": Live(self.found, until_ms=2**60)}

    def cut_over(self, job: str, swaps: Any, epoch: int, now_ms: int, until_ms: int) -> None:
        self._note("cut over")
        self.found = Found.OURS

    def reverse(self, job: str, swaps: Any) -> None:
        self._note("reverse")
        self.found = Found.TABLE


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InPlace:
    config = {
        "job": {"name": "shop"},
        "upstream": {"type": "files", "snapshot": {"path": "x/", "format": "parquet"}},
        "sink": {"type": "iceberg", "table": "./lake/{table}", "branch": "b"},
        "tables": [{"name": "orders", "key": ["id"], "target": "orders_t"}],
    }
    catalog = Catalog(tmp_path / "catalog.duckdb")
    pin = Pin(Position(), None, None, ())
    job = JobDefinition("shop", json.dumps(config), "{}", pin, "forever", "snapshot", (TABLE,))
    catalog.create_job(job, Control(), Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, Position()))
    made = InPlace(catalog)
    monkeypatch.setattr(cutover, "Resources", lambda _config: made)
    monkeypatch.setattr(cutover, "_caught_up", lambda _row: Gate("caught up", True, ""))
    monkeypatch.setattr(cutover, "_verified", lambda *_: Gate("verified", True, ""))
    return made


class Folders:
    """A sink without names."""

    sink: Any = property(lambda self: self)
    extras = property(lambda self: SinkExtras(statements=self.statements))
    prepare = own = commit = saved = drop = forget = fence = owner = lambda *_: None
    committed = live = lambda *_: {}

    def __enter__(self) -> "Folders":
        return self

    def __exit__(self, *_: object) -> None: ...

    def statements(self, swaps: tuple[Swap, ...], epoch: int) -> list[str]:
        return [f"CREATE OR REPLACE VIEW {one.live}" for one in swaps]


def test_a_sink_without_names_has_its_gates_and_says_what_to_run_and_changes_nothing(
    shop: InPlace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cutover, "Resources", lambda _config: Folders())
    monkeypatch.setattr(cutover, "_swaps", lambda _job, in_place: (Swap(TABLE, "people.orders"),))
    looked = cutover.look("shop", shop._catalog)
    assert (looked.open, looked.cut_over) == (True, False)
    show_cutover(looked, str, as_json=False)
    assert "CREATE OR REPLACE VIEW people.orders\njob shop: run these" in capsys.readouterr().out
    with pytest.raises(UsageError, match="nothing was changed"):
        cutover.cut_over("shop", shop._catalog, 60)
    with pytest.raises(UsageError, match="nothing was changed"):
        cutover.reverse("shop", shop._catalog)
    monkeypatch.setattr(cutover, "_caught_up", lambda _row: Gate("caught up", False, ""))
    assert not cutover.cut_over("shop", shop._catalog, 60).open
    show_cutover(cutover.look("shop", shop._catalog), str, as_json=False)
    assert "CREATE" not in capsys.readouterr().out, "nothing to run before every gate is open"


def test_a_job_whose_tables_are_cut_over_in_place_is_dropped_whatever_live_it_names(shop: InPlace) -> None:
    config = SimpleNamespace(tables=[SimpleNamespace(name="orders", live="people.orders")])
    assert drop._live(shop._catalog.definition("shop"), config, shop) == ()  # type: ignore[arg-type]


def test_a_table_is_cut_over_in_place_while_nobody_can_run_the_job_and_late_runners_are_fenced(
    shop: InPlace,
) -> None:
    report = cutover.cut_over("shop", shop._catalog, 60)
    assert (report.changed, report.cut_over) == (True, True)
    assert cutover.reverse("shop", shop._catalog).reversed
    assert shop.did == ["fence 1", "cut over", "fence 2", "reverse"]
    with shop._catalog.lock_job("shop"), pytest.raises(Held):
        cutover.cut_over("shop", shop._catalog, 60)
    assert len(shop.did) == 4, "a runner has the job: nothing changed"


def test_a_closed_gate_fences_nobody_and_the_commands_own_lock_is_no_runner(
    shop: InPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([True])
    monkeypatch.setattr(cutover, "_caught_up", lambda row: Gate("caught up", next(looks, row.live), ""))
    assert not cutover.cut_over("shop", shop._catalog, 60).open, "its runner ended between the two looks"
    assert shop.did == ["fence 1"]
    assert not cutover.cut_over("shop", shop._catalog, 60).open
    with pytest.raises(UsageError, match="is not cut over"):
        cutover.reverse("shop", shop._catalog)
    assert shop.did == ["fence 1"], "refused: nothing changed"


def test_what_a_death_left_of_a_cut_over_the_same_command_ends_whatever_gate_is_closed(
    shop: InPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.found = Found.OURS
    monkeypatch.setattr(cutover, "_verified", lambda *_: Gate("verified", False, ""))
    report = cutover.cut_over("shop", shop._catalog, 60)
    assert (report.changed, report.cut_over, shop.did) == (False, True, ["cut over"])


def test_what_others_wrote_since_a_cut_over_refuses_its_reversal(shop: InPlace) -> None:
    ours = Live(Found.OURS, until_ms=2**60, moved=("others wrote", Hint.of("leave it")))
    with pytest.raises(UsageError, match="others wrote"):
        _require_reversible("shop", (LiveName("orders", "orders_v2", "orders", ours),), in_place=True)
    assert _free({"orders": ours}, in_place=True).open, "of the next table's cutover it says nothing"
