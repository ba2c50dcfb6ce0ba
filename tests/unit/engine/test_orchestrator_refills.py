"""The barrier loop and refills beside it: when it looks at them, and how far it knows the sink to be."""

from dataclasses import replace

from loop_world import World
from simulation.world import TABLE

from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.ports import NoRefills, RefillEpoch
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control, Verb
from backfill_cli.model.plan import Staged, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.refill import RefillPart


class Beside(NoRefills):
    """has: whether a part is ready. looks: up to where the sink had all changes, at each barrier."""

    def __init__(self, world: World) -> None:
        self.world, self.has = world, False
        self.looks: list[Position] = []

    def ready(self, applied: Position) -> bool:
        return self.has

    def due(self, committed: Checkpoint, applied: Position, control: Control) -> bool:
        self.looks.append(applied)
        return self.has

    def stage(self, epoch: int, committed: Checkpoint) -> RefillEpoch:
        self.has = False
        self.world.stager.files[self.world.stager.folder(epoch, "r")] = ({}, {})
        return RefillEpoch(RefillPart(1, 0, 0, 0, True), Staged("r", {TABLE: StagedTable()}))


def live(world: World) -> Beside:
    """The job follows its upstream, and a barrier has just passed."""
    beside = Beside(world)
    world.loop._ports = replace(world.loop._ports, refills=beside)
    world.until(Tick.IDLE)
    world.seen()
    return beside


def at(log: int) -> Position:
    return Position.of({"log": log})


def test_a_part_that_is_ready_need_not_wait_for_the_interval_and_is_marked_once_it_is_in_the_sink() -> None:
    world = World(rows=5, log=2)
    beside = live(world)
    world.step(1)
    assert "prepare r" not in world.seen()
    beside.has = True
    world.step(1)
    assert "prepare r" in world.seen()
    world.finish()
    world.step(1)
    assert [one for one in world.seen() if one.startswith("mark")] == [f"mark {world.sink.marker.epoch}"]
    assert world.sink.marker.attempt == "r"


def test_where_the_log_has_no_changes_for_the_job_the_sink_is_as_far_as_the_log() -> None:
    """A database's log goes on all the time; a position without changes is committed twice a minute."""
    world = World(rows=5, log=2)
    beside = live(world)
    shown, further = world.upstream.observe, 9
    world.upstream.observe = lambda *of: replace(shown(*of), latest=at(further))  # type: ignore[method-assign]
    world.steps(2, world.settings.interval_ms)
    assert beside.looks[-1] == at(9)
    assert world.store.committed.position == at(2)
    world.change()
    further = 12
    world.post(Verb.PAUSE)
    world.steps(3, world.settings.interval_ms)
    assert beside.looks[-1] == at(9), "a change waits"
