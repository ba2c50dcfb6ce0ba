"""Derived tables are filled range by range: commits without rows follow, between which commands act."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from loop_world import SETTINGS, World

from backfill_cli.contracts import EpochCommit
from backfill_cli.engine.loop.fills import Fills
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.derived import Derived, Filling
from backfill_cli.model.job import Control, Verb

DERIVED = Derived("d", "d", ("k",), "SELECT")
RANGES = 4
HALF = Filling("t", 2, 4, 4_000)


def test_a_range_follows_the_one_before_at_the_rate_in_force() -> None:
    fills = Fills(1_000)
    slow = Control(rate=100)
    assert fills.allowed(slow, 0) == 1_000, "the first waits for nothing"
    fills.landed({"d": replace(HALF, done=1)}, 10_000)
    fills.landed({"d": replace(HALF, done=1)}, 15_000)  # a commit of changes alone
    assert fills.allowed(slow, 19_999) == 0
    assert fills.allowed(slow, 20_000) == 1_000, "1,000 rows at 100 rows per second"
    assert fills.allowed(Control(rate=1_000), 11_000) == 1_000
    assert fills.allowed(Control(), 10_001) == 1_000
    assert fills.allowed(Control(rate=0), 10**9) == 0
    assert fills.allowed(Control(paused_by="ann", paused_since_ms=1), 10**9) == 0
    fills.landed({}, 30_000)  # it is filled: so the last range landed
    assert fills.allowed(slow, 39_999) == 0


@dataclass
class Derives:
    """Each commit fills a range of a table that has RANGES of them."""

    done: int = 0
    asked: list[int | None] = field(default_factory=list)
    took_ms: Mapping[str, int] = field(default_factory=dict)

    def commit(self, commit: EpochCommit) -> None:
        self.asked.append(commit.fill_rows)
        self.done += commit.fill_rows != 0 and self.done < RANGES

    def filling(self, _job: str) -> Mapping[str, Filling]:
        return {"d": Filling("t", self.done, RANGES, 4_000)} if 0 < self.done < RANGES else {}


def opened(until: str, transactional: bool = True) -> tuple[World, Derives]:
    world, derives = World(settings=replace(SETTINGS, until=until, fill_rows=1_000)), Derives()
    committed, commit = world.sink.committed, world.sink.commit

    def markers(job: str) -> Mapping[str, Marker]:
        return {**committed(job), "d": Marker(derives.done // RANGES, 1, "")}

    def into(one: EpochCommit) -> None:
        commit(one)
        derives.commit(one)

    sink: Any = world.sink
    sink.committed, sink.commit, sink.extras = markers, into, SimpleNamespace(derives=derives)
    sink.capabilities = replace(sink.capabilities, transactional=transactional)
    world.derived = (DERIVED,)
    world.open()
    return world, derives


def test_commits_without_rows_follow_until_all_ranges_are_filled_and_then_the_run_ends() -> None:
    world, derives = opened("caught-up")
    assert world.until(Tick.DONE) is Tick.DONE
    assert derives.done == RANGES
    assert world.loop.progress().unfilled == ()
    assert [one.mutations for one in world.store.ledger].count("filled d") >= RANGES - 2


def test_a_pause_acts_between_two_ranges_and_the_fill_goes_on_where_it_was() -> None:
    world, derives = opened("forever")
    while derives.done < 2:
        world.steps(1, SETTINGS.interval_ms)
    assert world.loop.progress().filling == {"d": Filling("t", 2, RANGES, 4_000)}
    world.post(Verb.PAUSE)
    world.steps(4, SETTINGS.interval_ms)
    assert derives.done <= 3
    held = derives.done
    world.steps(6, SETTINGS.interval_ms)
    assert derives.done == held
    world.post(Verb.RESUME)
    world.steps(8, SETTINGS.interval_ms)
    assert derives.done == RANGES


def test_a_throttle_has_each_range_wait_for_the_rows_of_the_one_before() -> None:
    world, derives = opened("forever")
    world.post(Verb.THROTTLE, 100)
    while derives.done < 2:
        world.steps(1, SETTINGS.interval_ms)
    world.steps(6, SETTINGS.interval_ms)
    assert derives.done == 2, "10 s for each"
    world.steps(6, SETTINGS.interval_ms)
    assert derives.done == 3


def test_no_commit_without_rows_is_for_a_sink_where_what_cannot_be_computed_waits() -> None:
    world, _ = opened("caught-up", transactional=False)
    assert world.until(Tick.DONE) is Tick.DONE
    assert not any(one.mutations.startswith("filled") for one in world.store.ledger)
