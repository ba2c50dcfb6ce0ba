"""Refills beside the loop, with comparisons that end when the test says so."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop import refills as of
from backfill_cli.engine.loop.refills import ERROR, FOUND, RATE, NotPutBack, Refills
from backfill_cli.errors import BackfillError, Transient
from backfill_cli.model.aside import Aside
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import encode
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import EpochPlan, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.refill import Difference, Extent, Refill, RefillPart, RefillState

FUZZY = "changes from the time of the copy come first"
SCHEMA = '{"type": "struct", "fields": []}'
AT = Checkpoint(10, 0, 1, "a", '{"phase": "upstream"}', Phase.UPSTREAM, Position.of({"log": 5}))


def at(log: int) -> Position:
    return Position.of({"log": log})


@dataclass
class Fake:
    folder: Path
    code: int | None = None
    killed: bool = False

    def ended(self) -> int | None:
        return self.code

    def progress(self) -> Mapping[str, object]:
        return {"doing": "comparing", "share": 0.5, "left_s": 3.0}

    def kill(self) -> None:
        self.killed = True

    def finds(self, rows: int, epoch: int = 10, up_to: Position | None = None, schema: str = SCHEMA) -> None:
        file = self.folder / "rows" / "0.parquet"
        file.parent.mkdir()
        file.write_bytes(b"found")
        found = Difference(epoch, schema, up_to, ("rows/0.parquet",) if rows else (), inserted=rows)
        (self.folder / FOUND).write_text(encode(found))
        self.code = 0

    def fails(self, transient: bool) -> None:
        (self.folder / ERROR).write_text(
            f'{{"transient": {str(transient).lower()}, "message": "gone", '
            '"hint": {"parts": [], "config": false, "retried": false}}'
        )
        self.code = 1


@dataclass
class World:
    root: Path
    asked: list[Refill]
    noted: list[Refill] = field(default_factory=list)
    begun: list[Fake] = field(default_factory=list)
    over: list[list[int]] = field(default_factory=list)
    now_ms: int = 0
    spooled: bool = False
    aside: tuple[Aside, ...] = ()

    def open(self) -> Refills:
        tables = (SinkTable("orders", "orders", ("id",), SCHEMA),)
        definition: Any = SimpleNamespace(
            name="j", tables=tables, aside=self.aside, pin=SimpleNamespace(complete_at=None)
        )
        store: Any = SimpleNamespace(refills=lambda: tuple(self.asked), note_refill=self.noted.append)

        def begin(_refill: Refill, folder: Path) -> Fake:
            self.begun.append(Fake(folder))
            return self.begun[-1]

        def folder_of(epoch: int, attempt: str) -> str:
            return str(self.root / f"{epoch}-{attempt}")

        clocks = (lambda: 99, lambda: self.now_ms)
        return Refills(
            definition, store, self.root, folder_of, lambda: None, begin, 5_000, *clocks, lambda: self.spooled
        )

    @property
    def states(self) -> list[RefillState]:
        return [one.state for one in self.noted]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, [Refill(1, "orders", Extent(), "me", 1, since=5)])

    def written(_spark: Any, _rows: Any, later: Any, _table: Any, *places: Any) -> StagedTable:
        """Which commits a part was put over, instead of rows."""
        path, folder = places[:2]
        made.over.append([one.epoch for one in later])
        path.mkdir(parents=True)
        (path / "0.parquet").write_bytes(b"rows")
        return StagedTable(changes=(StagedFile(str((path / "0.parquet").relative_to(folder)), 4),), changed=1)

    class Ahead(of._Ahead):
        """Is done once it is begun."""

        def __init__(self, base: int, make: Any, done: Any) -> None:
            super().__init__(base, make, done)
            self.made.exception()

    monkeypatch.setattr(of, "_written", written)
    monkeypatch.setattr(of, "_Ahead", Ahead)
    return made


def opened(world: World, rows: Any = None) -> Refills:
    """rows: what is read from files."""
    refills = world.open()
    refills._session = lambda: SimpleNamespace(read=SimpleNamespace(parquet=lambda *_: rows))  # type: ignore
    return refills


def commit(world: World, epoch: int, truncated: bool = False, schema: str = SCHEMA) -> Checkpoint:
    """A commit of one change, its file staged."""
    file = world.root / f"{epoch}-a" / "orders" / "changes" / "0.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"change")
    changes = () if truncated else (StagedFile("orders/changes/0.parquet", 6),)
    table = StagedTable(changes=changes, truncated=truncated)
    staged = Staged("a", {"orders": table})
    return replace(AT, epoch=epoch, staged=staged, plan=EpochPlan(), sink_schemas={"orders": schema})


def applied(refills: Refills, world: World, epoch: int, committed: Checkpoint = AT) -> RefillPart:
    """The part that is due, as the loop applies it."""
    assert refills.due(committed, committed.position, Control())
    made = refills.stage(epoch, committed)
    assert made is not None
    refills.keep(replace(AT, epoch=epoch, plan=EpochPlan(refill=made.part), staged=made.staged))
    return made.part


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two rows are a part; returns the numbers of the parts that are staged from now on."""
    numbers: list[int] = []

    def lit(number: int) -> int:
        numbers.append(number)
        return 0

    monkeypatch.setattr(of, "PART_ROWS", 2)
    monkeypatch.setattr(of, "F", SimpleNamespace(pmod=lambda *_: 0, xxhash64=lambda *_: 0, lit=lit))
    monkeypatch.setattr(of, "quoted", lambda name: name)
    return numbers


def test_what_was_compared_is_applied_over_what_was_committed_since(world: World) -> None:
    refills = opened(world)
    assert not refills.due(AT, AT.position, Control())
    refills.keep(commit(world, 9))  # the copy of the sink has it already
    refills.keep(commit(world, 11))
    world.begun[0].finds(3)
    assert refills.due(AT, AT.position, Control())
    refills.keep(commit(world, 12))
    assert applied(refills, world, 13) == RefillPart(1, 3, 0, 0, True)
    assert world.over == [[11], [12]]
    assert not refills.pending
    assert world.states == [RefillState.COMPARING, RefillState.APPLYING]
    assert not list(world.root.glob("refill-*"))
    assert world.begun[0].killed


def test_where_nothing_changed_since_the_files_are_applied_as_they_are(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3)
    made = refills.stage(13, AT) if refills.due(AT, AT.position, Control()) else None
    assert made is not None
    (file,) = made.staged.tables["orders"].changes
    assert (world.root / f"13-{made.staged.attempt}" / file.path).read_bytes() == b"found"
    assert file.size_bytes == len(b"found")
    assert (made.staged.upserted, made.staged.deleted) == (3, 0)
    assert not world.over, "without Spark"


def test_equal_rows_need_no_epoch(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(0)
    assert not refills.due(AT, AT.position, Control())
    assert world.states == [RefillState.COMPARING, RefillState.DONE]
    assert not refills.pending


def test_rows_as_they_were_read_wait_until_the_log_is_applied_that_far(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3, up_to=at(7))
    assert not refills.due(AT, AT.position, Control())
    assert refills.due(AT, at(7), Control())


def test_the_loop_need_not_wait_for_its_interval_where_a_refill_goes_on(world: World) -> None:
    refills = opened(world)
    assert not refills.ready(AT.position)
    refills.due(AT, AT.position, Control())
    assert not refills.ready(AT.position)
    world.begun[0].finds(3, up_to=at(7))
    assert refills.ready(AT.position), "the comparison has ended"
    refills.due(AT, AT.position, Control())
    assert not refills.ready(AT.position), "the log is not applied that far"
    assert refills.ready(at(7))
    assert refills.due(AT, at(7), Control())
    assert refills.ready(at(7)), "it was staged ahead"
    made = refills.stage(13, AT)
    assert made is not None
    assert not refills.ready(at(7)), "it is in flight"
    refills.keep(replace(AT, epoch=13, plan=EpochPlan(refill=made.part), staged=made.staged))
    assert not refills.ready(at(7))


def test_after_a_truncate_every_row_is_of_changes_since(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    refills.keep(commit(world, 11, truncated=True))
    world.begun[0].finds(3)
    assert not refills.due(AT, AT.position, Control())
    assert world.states[-1] is RefillState.DONE


def test_a_truncate_that_the_comparison_saw_voids_nothing(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    refills.keep(commit(world, 10, truncated=True))
    world.begun[0].finds(3)
    assert refills.due(AT, AT.position, Control())


def test_other_columns_are_compared_again(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    refills.keep(commit(world, 11, schema="wider"))
    world.begun[0].finds(3)
    wider = replace(AT, sink_schemas={"orders": "wider"})
    assert not refills.due(wider, wider.position, Control())
    assert not refills.due(wider, wider.position, Control())
    assert len(world.begun) == 2


def test_many_rows_are_several_epochs_each_over_what_is_newest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed(monkeypatch)
    refills = opened(world, SimpleNamespace(where=lambda _: None))
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3)
    assert applied(refills, world, 11) == RefillPart(1, 0, 0, 0, False)
    refills.keep(commit(world, 12))
    assert applied(refills, world, 13) == RefillPart(1, 3, 0, 0, True)
    assert world.over == [[], [12]]
    assert not refills.pending


def test_a_pause_ends_the_comparison_and_a_resume_begins_it_again(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    assert not refills.due(AT, AT.position, Control(paused_by="me"))
    assert world.begun[0].killed
    assert (world.states[-1], world.noted[-1].why.text) == (RefillState.WAITING, "the job is paused")
    refills.due(AT, AT.position, Control())
    assert len(world.begun) == 2


@pytest.mark.parametrize(
    ("committed", "control", "spooled", "why"),
    [
        (replace(AT, phase=Phase.SNAPSHOT), Control(), False, "the snapshot comes first"),
        (
            replace(AT, state='{"uncovered": true}'),
            Control(),
            False,
            "changes from the time of the copy come first",
        ),
        (AT, Control(rate=0.0), False, "the rate is 0"),
        (AT, Control(), True, "what is in the spool comes first"),
    ],
)
def test_a_refill_waits_and_says_for_what(
    world: World, committed: Checkpoint, control: Control, spooled: bool, why: str
) -> None:
    world.spooled = spooled
    refills = opened(world)
    for _ in range(3):
        assert not refills.due(committed, committed.position, control)
    assert [one.why.text for one in world.noted] == [why]
    assert not world.begun
    assert refills.pending


def test_a_failure_that_may_pass_is_tried_again_until_the_limit(world: World) -> None:
    refills = opened(world)
    while refills.pending and world.now_ms < 60_000:
        refills.due(AT, AT.position, Control())
        if world.begun and not world.begun[-1].killed:
            world.begun[-1].fails(transient=True)
        world.now_ms += 500
    assert len(world.begun) > 2
    assert world.states[-1] is RefillState.FAILED
    assert 5_000 < world.now_ms < 30_000


def test_a_failure_that_does_not_pass_ends_the_refill_only(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].fails(transient=False)
    assert not refills.due(AT, AT.position, Control())
    assert world.states[-1] is RefillState.FAILED
    told = "gone; updates of rows that the sink lacked may have been skipped meanwhile"
    assert world.noted[-1].why.text.startswith(told)
    assert str(world.noted[-1].why).endswith("; to have all rows: backfill refill j --table orders")
    assert not refills.pending


def test_a_comparison_that_was_killed_is_begun_again(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].code = -9
    refills.due(AT, AT.position, Control())
    assert world.states[-1] is RefillState.WAITING
    world.now_ms = 5_000
    refills.due(AT, AT.position, Control())
    assert len(world.begun) == 2


def test_what_the_sink_refuses_for_good_ends_the_refill_only(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3)
    assert refills.due(AT, AT.position, Control())
    assert refills.stage(11, AT) is not None
    refills.refused(BackfillError("no room for a second paid order"))
    assert world.states[-1] is RefillState.FAILED
    assert not refills.pending


def test_a_part_that_cannot_be_staged_is_no_failure_of_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    refills.keep(commit(world, 11))
    world.begun[0].finds(3)

    def full(*_: object) -> StagedTable:
        raise Transient("the disk is full")

    monkeypatch.setattr(of, "_written", full)
    assert not refills.due(AT, AT.position, Control())
    assert (world.states[-1], world.noted[-1].why.text) == (RefillState.WAITING, "the disk is full")


def test_a_cancelled_refill_is_given_up_and_the_next_begins(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.asked = [Refill(2, "orders", Extent(first="1"), "me", 1, since=6)]
    refills.told()
    assert world.begun[0].killed
    refills.due(AT, AT.position, Control())
    assert [one.id for one in world.noted] == [1, 2]


def test_a_new_runner_begins_again_and_sweeps_what_was_found(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3)
    again = opened(world)
    assert not list(world.root.glob("refill-*"))
    assert again.pending
    assert not again.due(AT, AT.position, Control())
    assert len(world.begun) == 2


def test_the_last_part_of_a_refill_that_a_pause_met_in_flight_ends_it(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3)
    assert refills.due(AT, AT.position, Control())
    made = refills.stage(11, AT)
    assert made is not None
    refills.due(AT, AT.position, Control(paused_by="me"))
    refills.keep(replace(AT, epoch=11, plan=EpochPlan(refill=made.part), staged=made.staged))
    assert not refills.pending


@pytest.mark.parametrize("ended_by", ["a pause", "a cancel"])
def test_a_part_that_lands_late_is_not_one_of_the_next_comparison(
    world: World, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    numbers = hashed(monkeypatch)
    refills = opened(world, SimpleNamespace(where=lambda _: None))
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(6)
    assert refills.due(AT, AT.position, Control())
    first = refills.stage(11, AT)
    assert first is not None
    if ended_by == "a cancel":
        world.asked = [Refill(2, "orders", Extent(first="1"), "me", 1, since=6)]
        refills.told()
    else:
        refills.due(AT, AT.position, Control(paused_by="me"))
    refills.due(AT, AT.position, Control())
    refills.keep(replace(AT, epoch=11, plan=EpochPlan(refill=first.part), staged=first.staged))
    world.begun[1].finds(6)
    numbers.clear()
    while refills.pending:
        applied(refills, world, 12 + len(numbers))
    assert [number for number in numbers if number != 3] == [0, 1, 2], "of three"


def test_a_part_that_is_refused_late_is_no_failure_of_the_next_refill(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3)
    assert refills.due(AT, AT.position, Control())
    assert refills.stage(11, AT) is not None
    world.asked = [Refill(2, "orders", Extent(first="1"), "me", 1, since=6)]
    refills.told()
    refills.due(AT, AT.position, Control())
    refills.refused(BackfillError("no room for a second paid order"))
    assert world.states[-1] is RefillState.COMPARING
    assert refills.pending


def test_a_refill_of_a_table_that_the_job_has_no_more_holds_up_nothing(world: World) -> None:
    world.asked = [Refill(1, "gone", Extent(), "me", 1, since=5), Refill(2, "orders", Extent(), "me", 1, since=6)]
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    refills.told()
    assert [one.id for one in world.noted] == [2]
    assert refills.filling == ("orders",)


def rate_of(fake: Fake) -> str | None:
    file = fake.folder / RATE
    return file.read_text() if file.exists() else None


def test_a_comparison_reads_at_the_lowest_rate_that_is_in_force_and_follows_it(world: World) -> None:
    refills, control = world.open(), Control(rate=500.0).with_rate("orders", 200.0).with_rate("others", 1.0)
    refills.due(AT, AT.position, control)
    assert rate_of(world.begun[0]) == "200.0"
    told = refills.progress()
    assert told is not None
    assert told.doing == "comparing, at most 200 rows/s"
    for now, said in (
        (control.with_rate("orders", 50.0), "50.0"),
        (Control(rate=7.0), "7.0"),
        (Control(), "null"),
    ):
        refills.paced(now)
        refills.due(AT, AT.position, now)
        assert rate_of(world.begun[0]) == said
    assert len(world.begun) == 1
    assert not world.begun[0].killed


def test_a_comparison_that_began_without_a_limit_begins_again_with_one(world: World) -> None:
    refills = world.open()
    refills.due(AT, AT.position, Control())
    assert rate_of(world.begun[0]) is None
    refills.paced(Control())
    refills.paced(Control().with_rate("others", 1.0))
    assert not world.begun[0].killed
    slow = Control().with_rate("orders", 9.0)
    refills.paced(slow)
    assert world.begun[0].killed
    refills.due(AT, AT.position, slow)
    assert rate_of(world.begun[1]) == "9.0"


def test_what_was_compared_is_applied_at_any_rate_but_0(world: World) -> None:
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    world.begun[0].finds(3)
    refills.due(AT, AT.position, Control())
    slow = Control(rate=1.0)
    refills.paced(slow)
    assert refills.due(AT, AT.position, slow)
    assert not world.begun[0].killed


def test_a_rate_of_0_of_its_table_suspends_a_refill_and_is_named(world: World) -> None:
    refills = world.open()
    refills.due(AT, AT.position, Control().with_rate("orders", 0.0))
    assert not world.begun
    assert str(world.noted[-1].why) == (
        "the rate of table orders is 0; to continue: backfill throttle j --table orders --rate none"
    )
    refills.due(AT, AT.position, Control().with_rate("others", 0.0))
    assert len(world.begun) == 1


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_a_refill_that_was_to_put_a_table_back_and_ends_otherwise_is_said_to_the_run(
    world: World, how: str
) -> None:
    world.aside = (Aside("orders", "{}", "{}", "[]", 3, 2, "it broke", refill=1),)
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    if how == "fails":
        world.begun[0].fails(transient=False)
    else:
        world.asked = []
    with pytest.raises(NotPutBack) as error:
        refills.due(AT, AT.position, Control()) if how == "fails" else refills.told()
    assert error.value.table == "orders"
    assert world.begun[0].killed


def test_a_table_that_a_refill_has_put_back_is_like_any_other(world: World) -> None:
    world.aside = (Aside("orders", "{}", "{}", "[]", 3, 2, "it broke", refill=1),)
    refills = opened(world)
    refills.due(AT, AT.position, Control())
    assert refills.putting_back
    world.begun[0].finds(3)
    assert applied(refills, world, 13).last
    assert not refills.putting_back
    world.asked = []
    refills.told()
