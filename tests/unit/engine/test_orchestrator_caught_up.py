"""The end of the barrier loop: when a job is caught up, and when it is done."""

from dataclasses import replace

from loop_world import SETTINGS, World

from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.ports import NoRefills
from backfill_cli.model.job import JobState, Phase, Verb

CAUGHT_UP = replace(SETTINGS, until="caught-up")


def test_until_caught_up_it_is_done_with_the_last_epoch_marked() -> None:
    world = World(rows=30, log=4, settings=CAUGHT_UP)
    world.until(Tick.DONE)
    assert world.sink.rows == world.upstream.at(world.upstream.observe_all())
    assert world.store.prepared is None
    assert world.store.committed.epoch == world.sink.marker.epoch
    assert world.loop.progress().caught_up_ms is not None


def test_it_is_not_caught_up_before_the_table_that_is_put_back_is_right() -> None:
    world = World(rows=5, log=4, settings=CAUGHT_UP)
    refills = NoRefills()
    refills.putting_back = True
    world.loop._ports = replace(world.loop._ports, refills=refills)
    assert Tick.DONE not in world.steps(30, 1_000)
    told = world.loop.progress()
    assert told.phase is Phase.UPSTREAM
    assert (told.caught_up_ms, told.settled_ms, told.converging) == (None, None, True)
    refills.putting_back = False
    world.until(Tick.DONE)
    assert not world.loop.progress().converging


def test_until_caught_up_it_ends_though_more_comes_while_each_epoch_commits() -> None:
    world = World(rows=5, settings=CAUGHT_UP)
    for _ in range(60):
        world.change()
        tick = world.step(world.settings.interval_ms)
        if tick == Tick.DONE:
            return
        if tick == Tick.WAITING:  # the next epoch may have been read ahead by now
            world.finish()
    raise AssertionError("a busy upstream kept it")


def test_forever_it_is_never_done_and_says_since_when_it_is_caught_up() -> None:
    world = World(rows=30, log=4)
    said = set()
    for _ in range(50):
        assert world.steps(1, 1_000) != [Tick.DONE]
        said.add(world.loop.progress().caught_up_ms)
    assert len(said - {None}) == 1


def test_what_changed_by_the_last_observation_is_in_the_sink_before_it_is_done() -> None:
    world = World(rows=10, log=1, settings=CAUGHT_UP)
    for _ in range(6):
        world.change()
        if Tick.DONE in world.steps(1):
            break
    world.until(Tick.DONE)
    done = world.loop.progress()
    assert done.pending_epochs == 0


def test_a_paused_job_is_not_done() -> None:
    world = World(rows=10, settings=CAUGHT_UP)
    world.post(Verb.PAUSE)
    assert Tick.DONE not in world.steps(20, 1_000)
    assert world.loop.progress().caught_up_ms is None


def test_a_pause_that_came_with_the_last_commit_is_obeyed_before_the_job_is_done() -> None:
    world = World(rows=10, settings=CAUGHT_UP)
    world.step()
    world.post(Verb.PAUSE)
    world.finish()
    assert Tick.DONE not in world.steps(5, 1_000)
    assert world.store.state == JobState.PAUSED
    world.post(Verb.RESUME)
    assert world.until(Tick.DONE)


def test_a_fuzzy_load_is_caught_up_once_its_end_is_passed_and_nothing_is_left() -> None:
    world = World(rows=5, per_epoch=1, fuzzy=3, settings=CAUGHT_UP)
    world.steps(20, 1_000)
    assert world.loop.progress().converging
    assert world.loop.progress().caught_up_ms is None
    world.change(25)
    pending = []
    while world.loop.progress().caught_up_ms is None:
        world.steps(1, 1_000)
        pending.append(world.loop.progress().pending_epochs)
    assert max(pending) > 0
    assert pending[-1] == 0
    assert world.sink.rows == world.upstream.at(world.upstream.observe_all())


def test_what_an_upstream_does_not_know_the_end_of_is_not_all_there_was() -> None:
    """Commits may follow what it shows: `wait` must not return, nor the job be done, without them."""
    world = World(rows=5, settings=CAUGHT_UP)
    shown = world.upstream.observe
    world.upstream.observe = lambda *at: replace(shown(*at), behind=True)  # type: ignore[method-assign]
    assert Tick.DONE not in world.steps(20, 1_000)
    assert world.loop.progress().settled_ms is None
    world.upstream.observe = shown  # type: ignore[method-assign]
    world.until(Tick.DONE)
    assert world.loop.progress().settled_ms is not None
