"""What the loop of a chain job sees of its log, and when the log is taken."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hint_typed import typed
from simulation.chain_world import MemorySpool, MemoryTakes, VolatileLog
from simulation.memory_store import MemoryStore
from simulation.world import TABLE

from backfill_cli.contracts import Taken
from backfill_cli.engine.spool.taker import Taker, TakerSettings
from backfill_cli.engine.spool.upstream import SpooledUpstream
from backfill_cli.errors import Fatal, SpoolFull, Transient
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import ChangeWindow
from backfill_cli.model.position import START, Position
from backfill_cli.model.split import SplitProgress, SplitStatus


class Steady(Random):
    def random(self) -> float:
        return 0.99


class World:
    """A log with some commits, and the facade of a new process."""

    def __init__(self, commits: int = 3, most: int | None = None, stops: bool = True) -> None:
        self.ms = 0
        self.log = VolatileLog(Steady(1), lambda: self.ms)
        self.commit(commits)
        self.spool = MemorySpool()
        self.store = MemoryStore(Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, START))
        self.taken: list[Exception] = []
        self.took_ms = 0
        self.settings = TakerSettings(1_000, most, stops, 5_000)
        self.begin(START)

    def begin(self, position: Position) -> None:
        real = MemoryTakes(self.log, self.spool)

        def takes(window: ChangeWindow, schemas: Mapping[str, str], folder: Path) -> Taken:
            if self.taken:
                raise self.taken.pop(0)
            self.ms += self.took_ms
            return real(window, schemas, folder)

        clock = (lambda: self.ms, lambda: self.ms)
        self.taker = Taker(self.log, self.spool, self.store, takes, self.settings, *clock)  # type: ignore[arg-type]
        self.facade = SpooledUpstream(self.log, self.log, self.taker, self.spool)  # type: ignore[arg-type]
        committed = Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, position)
        self.facade.take_up(committed, self.store.spooled())

    def commit(self, many: int) -> None:
        self.log.log += [(self.ms, [("U", len(self.log.log), 1)]) for _ in range(many)]


def at(place: int) -> Position:
    return Position.of({"log": place})


def test_while_the_snapshot_is_read_the_log_is_taken_at_each_interval() -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    observed = world.log.observe
    world.log.observe = lambda *at: replace(observed(*at), added=2)  # type: ignore[method-assign]
    assert world.taker.beside()
    assert (world.taker.position, world.log.acknowledged) == (at(3), at(3))
    assert world.facade.observe(START, True).added == 2
    world.commit(2)
    world.taker.beside()
    assert world.taker.position == at(3), "it is not due yet"
    world.ms += 1_000
    world.taker.beside()
    assert world.taker.position == at(5)
    view = world.facade.observe(START, True)
    assert [epoch.cursors for epoch in view.pending] == [at(3).cursors, at(5).cursors]
    assert view.spool is not None
    assert (view.spool.entries, view.spool.changes) == (2, 5)


@pytest.mark.parametrize(("took_ms", "due_ms"), [(100, 1_000), (600, 2_400), (9_000, 19_000)])
def test_a_taking_that_takes_long_leaves_the_snapshot_its_time(took_ms: int, due_ms: int) -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.took_ms = took_ms
    assert world.taker.beside()
    world.commit(1)
    world.ms = due_ms - 1
    world.taker.beside()
    assert world.taker.position == at(3)
    world.ms = due_ms
    world.taker.beside()
    assert world.taker.position == at(4)


def test_the_oldest_change_that_is_pending_is_told_taken_or_not() -> None:
    world = World(commits=0, most=1, stops=False)
    for at_ms in (10, 20, 30):
        world.ms = at_ms
        world.commit(1)
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.ms = 5_000
    assert world.taker.beside()
    assert world.facade.observe(START, True).oldest_ms == 10
    world.ms = 6_000
    world.commit(1)
    world.ms = 7_000
    world.taker.beside()
    assert world.taker.full
    assert (world.facade.observe(START, True).oldest_ms, world.taker.untaken_ms) == (10, 6_000)
    world.facade.acknowledge(at(3))
    assert world.facade.observe(at(3), True).oldest_ms == 6_000


def test_a_barrier_that_drains_has_all_that_the_log_has() -> None:
    world = World()
    world.facade.enter(Phase.LOG_STORE, START, {TABLE: "{}"})
    assert world.facade.observe(START, False).latest == at(3)


def test_once_the_spool_is_empty_the_log_is_read_directly_and_not_taken() -> None:
    world = World()
    world.facade.enter(Phase.LOG_STORE, START, {TABLE: "{}"})
    world.facade.enter(Phase.UPSTREAM, at(3), {TABLE: "{}"})
    world.facade.acknowledge(at(3))
    world.commit(1)
    world.facade.enter(Phase.UPSTREAM, at(3), {TABLE: "{}"})
    world.ms += 5_000
    world.taker.beside()
    view = world.facade.observe(at(3), False)
    assert (view.spool, len(view.pending), world.spool.sealed) == (None, 1, {})
    world.facade.acknowledge(at(4))
    assert world.log.acknowledged == at(4)


def test_what_follows_an_epoch_in_flight_is_not_taken() -> None:
    world = World()
    world.facade.enter(Phase.UPSTREAM, START, {TABLE: "{}"})
    world.facade.enter(Phase.LOG_STORE, at(3), {TABLE: "{}"})  # paused while the sink commits up to 3
    world.commit(1)
    world.taker.beside()
    assert (world.spool.sealed, world.log.acknowledged) == ({}, START)
    world.facade.acknowledge(at(3))
    world.facade.enter(Phase.LOG_STORE, at(3), {TABLE: "{}"})
    assert (world.taker.position, world.log.acknowledged) == (at(4), at(4))


def test_a_pause_of_all_leaves_the_log_where_it_is() -> None:
    world = World()
    for phase in (Phase.SNAPSHOT, Phase.LOG_STORE):
        world.facade.enter(phase, START, {TABLE: "{}"}, takes=False)
        world.taker.beside()
        assert (world.taker.position, world.log.acknowledged) == (START, START)
    world.facade.enter(Phase.LOG_STORE, START, {TABLE: "{}"}, takes=True)
    assert world.log.acknowledged == at(3)


def test_a_full_spool_stops_the_job_or_leaves_the_log_where_it_is() -> None:
    world = World(most=2)
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.taker.beside()
    world.commit(1)
    world.ms += 1_000
    assert not world.taker.beside()
    with pytest.raises(SpoolFull, match="no longer read") as full:
        world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    with typed(full.value) as hint:
        hint.says("raise spool.max_size")
        waits = hint.settings()["spool.on_full"] == "wait"
        for settings in ({"stops_when_full": not waits}, {"max_bytes": 9}):
            world.settings = replace(world.settings, **settings)
            world.begin(START)  # the run that follows
            world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
            assert world.taker.position == at(3) if waits and "max_bytes" not in settings else at(4)
    waiting = World(most=2, stops=False)
    waiting.facade.enter(Phase.LOG_STORE, START, {TABLE: "{}"})
    waiting.commit(1)
    waiting.facade.enter(Phase.LOG_STORE, START, {TABLE: "{}"})
    view = waiting.facade.observe(START, False)
    assert view.spool is not None
    assert (view.spool.full, view.latest, waiting.log.acknowledged) == (True, at(3), at(3))


def test_a_failure_in_passing_is_said_and_tried_again_up_to_the_limit() -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.taken = [Transient("the log is away")]
    assert world.taker.beside()
    view = world.facade.observe(START, True)
    assert view.spool is not None
    assert view.spool.waits is not None
    assert view.spool.waits.text == "the log is away"
    world.ms += 1_000
    world.taker.beside()
    assert (world.taker.waits, world.taker.position) == (None, at(3))
    world.commit(1)
    world.taken = [Transient("the log is away")] * 50
    while world.taker.beside():
        world.ms += 1_000
    with pytest.raises(Transient, match="away"):
        world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})


@pytest.mark.parametrize(
    ("failure", "said"), [(Fatal("another topic"), "another topic"), (KeyError("x"), "KeyError")]
)
def test_what_ends_the_taking_is_raised_at_the_next_barrier(failure: Exception, said: str) -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.taken = [failure]
    assert not world.taker.beside()
    with pytest.raises(Fatal, match=said):
        world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})


def test_the_next_process_goes_on_with_what_is_in_the_spool() -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.taker.beside()
    world.commit(2)
    world.log.acknowledged = START  # it died before it recorded that
    world.begin(START)
    world.facade.enter(Phase.LOG_STORE, START, {TABLE: "{}"})
    assert [entry.number for entry in world.taker.entries] == [1, 2]
    assert world.log.acknowledged == at(5)


def test_an_entry_under_way_is_waited_for_before_the_log_is_read_directly() -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    began, may_end = threading.Event(), threading.Event()
    takes = world.taker._takes

    def slow(window: ChangeWindow, schemas: Mapping[str, str], folder: Path) -> Taken:
        began.set()
        assert may_end.wait(10)
        return takes(window, schemas, folder)

    world.taker._takes = slow  # type: ignore[assignment]
    thread = threading.Thread(target=world.taker.beside)
    thread.start()
    assert began.wait(10)
    threading.Timer(0.2, may_end.set).start()
    world.facade.enter(Phase.UPSTREAM, START, {TABLE: "{}"})
    view = world.facade.observe(START, False)
    thread.join()
    assert view.spool is not None, "the entry is in the spool, and no longer in the log"


def test_a_taking_that_fails_leaves_nothing_in_the_spool() -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    removed: list[str] = []
    world.spool.remove = lambda entry: removed.append(entry.name)  # type: ignore[method-assign]
    world.taken = [Transient("no room")]
    failed: list[str] = []
    world.taker.failed = lambda error: failed.append(error.message)
    world.taker.beside()
    assert (len(removed), failed) == (1, ["no room"])


def test_a_backlog_is_taken_an_entry_at_a_time_until_the_process_is_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backfill_cli.strategies.chain.TAKEN_ROWS", 1)
    world = World(commits=5)
    world.facade.enter(Phase.LOG_STORE, START, {TABLE: "{}"})
    view = world.facade.observe(START, False)
    assert view.spool is not None
    assert (view.latest, view.spool.behind) == (at(1), True)
    world.taker.end()
    world.ms += 1_000
    world.taker.beside()
    assert world.taker.position == at(2)


def test_what_was_taken_is_remembered_with_each_checkpoint() -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.taker.beside()
    assert (world.facade.taken, world.facade.remembered(START)) == (at(3), "")


@pytest.mark.parametrize(("status", "begun"), [(SplitStatus.NOT_STARTED, False), (SplitStatus.CONSUMING, True)])
def test_rows_read_apart_know_whether_any_was_read(status: SplitStatus, begun: bool) -> None:
    """A loaded checkpoint also contains splits that have not started."""
    world, told = World(), []
    rows = SimpleNamespace(snapshot_only=told.append)
    facade = SpooledUpstream(rows, world.log, world.taker, world.spool)  # type: ignore[arg-type]
    splits = {(TABLE, "0"): SplitProgress(status), (TABLE, "1"): SplitProgress()}
    facade.take_up(Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, START, splits=splits), ())
    assert told == [begun]


def test_entries_that_were_applied_and_not_trimmed_are_gone_from_the_catalog_too() -> None:
    world = World()
    world.facade.enter(Phase.SNAPSHOT, START, {TABLE: "{}"})
    world.taker.beside()
    world.commit(1)
    world.ms += 1_000
    world.taker.beside()
    assert [entry.number for entry in world.store.spooled()] == [1, 2]
    world.begin(at(3))  # it died between the sink's commit and the trim
    assert [entry.number for entry in world.store.spooled()] == [2]
    world.begin(at(4))
    assert world.store.spooled() == ()
