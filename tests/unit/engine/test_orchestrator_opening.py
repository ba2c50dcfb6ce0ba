"""The loop while Spark starts: nothing is staged, and everything else goes on. What needs no Spark starts none."""

from dataclasses import dataclass, field, replace

from loop_world import SETTINGS, Stager, World

from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.model.job import JobState, Verb

STARTING = "starting Spark"


@dataclass
class Starting(Stager):
    """starts: how often it is still starting when asked; asked: how often it was."""

    starts: int = 10**6
    asked: int = field(default=0)

    def awaited(self) -> str | None:
        self.asked += 1
        self.starts -= 1
        return STARTING if self.starts >= 0 else None


def world_of(starts: int, rows: int = 20, until: str = "forever") -> tuple[World, Starting]:
    world = World(rows=rows, settings=replace(SETTINGS, until=until))
    stager = Starting(world.upstream, world.stager.random, trace=world.trace, starts=starts)
    world.stager = world.sink.stager = stager
    world.open()
    return world, stager


def test_a_job_with_nothing_new_ends_and_never_asks_for_spark() -> None:
    world, stager = world_of(10**6, rows=0, until="caught-up")
    assert world.until(Tick.DONE) == Tick.DONE
    assert stager.asked == 0


def test_while_it_starts_the_upstream_is_observed_once_and_the_loop_sleeps_until_it_is_woken() -> None:
    world, _ = world_of(10**6)
    assert [world.step(), world.step(200), world.step(5_000)] == [Tick.WAITING] * 3
    assert world.seen() == ["observe"]
    assert world.loop.wait_ms() == SETTINGS.interval_ms
    told = world.loop.progress()
    assert (told.doing, told.limited_by.text, told.waiting_for) == (STARTING, STARTING, None)


def test_once_it_has_started_an_epoch_is_staged_at_once() -> None:
    world, _ = world_of(2)
    assert [world.step(), world.step(1), world.step(1)] == [Tick.WAITING, Tick.WAITING, Tick.WORKED]
    assert "stage" in world.seen()
    assert world.loop.progress().doing == "writing 10 rows to the sink"
    assert world.loop.progress().limited_by.text != STARTING


def test_commands_act_while_it_starts() -> None:
    world, stager = world_of(10**6)
    world.step()
    world.post(Verb.PAUSE)
    world.step()
    assert (world.store.states[-1], world.loop.state.control.paused) == (JobState.PAUSED, True)
    stager.starts = 0
    assert [world.step(1_000), world.step(1_000)] == [Tick.IDLE, Tick.IDLE]
    assert "stage" not in world.seen()


def test_a_stop_ends_the_run_while_it_starts() -> None:
    world, _ = world_of(10**6)
    world.step()
    world.loop.ask_stop()
    assert world.step() == Tick.STOPPED
    assert "stage" not in world.seen()
