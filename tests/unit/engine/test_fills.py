"""Derived tables are filled range by range: commits without rows follow, between which commands act."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from loop_world import SETTINGS, TABLE, World

from backfill_cli.contracts import EpochCommit
from backfill_cli.engine.loop.fills import Fills
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.errors import BadData
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.derived import Derived, Filling
from backfill_cli.model.job import Control, JobState, Phase, Verb

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


def opened(until: str) -> tuple[World, Derives]:
    world, derives = World(settings=replace(SETTINGS, until=until, fill_rows=1_000)), Derives()
    committed, commit = world.sink.committed, world.sink.commit

    def markers(job: str) -> Mapping[str, Marker]:
        return {**committed(job), "d": Marker(derives.done // RANGES, 1, "")}

    def into(one: EpochCommit) -> None:
        commit(one)
        derives.commit(one)

    sink: Any = world.sink
    sink.committed, sink.commit, sink.extras = markers, into, SimpleNamespace(derives=derives)
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


NAMES = tuple("abcde")


@dataclass
class OneByOne:
    """As a lake: a commit fills one derived table after the other, each of its own. tried: in that order.

    meanwhile: what happens while one is being filled. bad: of which rows cannot be computed.
    """

    filled: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    bad: set[str] = field(default_factory=set)
    meanwhile: Callable[[str], None] = lambda _name: None
    took_ms: Mapping[str, int] = field(default_factory=dict)

    def commit(self, commit: EpochCommit) -> None:
        refused = None
        for name in [name for name in NAMES if name not in self.filled]:
            if commit.fill_rows == 0 or commit.holds():
                break
            self.tried.append(name)
            self.meanwhile(name)
            if name in self.bad:
                refused = BadData(f"{name} cannot be computed")
            else:
                self.filled.append(name)
        if refused is not None:
            raise refused

    def filling(self, _job: str) -> Mapping[str, Filling]:
        return {}


def lake(until: str = "forever", **changes: Any) -> tuple[World, OneByOne]:
    world, derives = World(settings=replace(SETTINGS, until=until, fill_rows=1_000)), OneByOne(**changes)
    committed, commit = world.sink.committed, world.sink.commit

    def markers(job: str) -> Mapping[str, Marker]:
        return {**committed(job), **{name: Marker(int(name in derives.filled), 1, "") for name in NAMES}}

    def into(one: EpochCommit) -> None:
        if committed(one.job)[TABLE].epoch != one.epoch:
            commit(one)
        if one.saved.checkpoint.phase is not Phase.SNAPSHOT:
            derives.commit(one)

    sink: Any = world.sink
    sink.committed, sink.commit, sink.extras = markers, into, SimpleNamespace(derives=derives)
    sink.capabilities = replace(sink.capabilities, transactional=False)
    world.derived = tuple(replace(DERIVED, name=name, target=name) for name in NAMES)
    world.open()
    return world, derives


def at_the_second(world: World, derives: OneByOne, act: Callable[[], object]) -> None:
    def meanwhile(name: str) -> None:
        if name == "b":
            derives.meanwhile = lambda _name: None
            act()
            world.loop.step()

    derives.meanwhile = meanwhile


def test_a_commit_fills_all_and_none_without_rows_follows() -> None:
    world, derives = lake("caught-up")
    assert world.until(Tick.DONE) is Tick.DONE
    assert derives.tried == [*NAMES]
    assert not any(one.mutations.startswith("filled") for one in world.store.ledger)


@pytest.mark.parametrize("held", [Verb.PAUSE, Verb.THROTTLE])
def test_a_pause_acts_between_two_derived_tables_of_one_commit_and_each_is_filled_once(held: Verb) -> None:
    world, derives = lake()
    at_the_second(world, derives, lambda: world.post(held, 0.0 if held is Verb.THROTTLE else None))
    world.steps(9, SETTINGS.interval_ms)
    assert derives.filled == ["a", "b"]
    assert world.loop.progress().unfilled == ("c", "d", "e")
    if held is Verb.PAUSE:
        assert world.store.state is JobState.PAUSED
    world.post(*((Verb.RESUME,) if held is Verb.PAUSE else (Verb.THROTTLE, 10.0)))
    world.steps(4, SETTINGS.interval_ms)
    assert derives.tried == [*NAMES]
    assert "filled c and d and e" in [one.mutations for one in world.store.ledger]


@pytest.mark.parametrize("killed", [True, False])
def test_after_a_stop_or_a_kill_between_two_derived_tables_only_the_others_are_filled(killed: bool) -> None:
    class Killed(BaseException):
        pass

    def dies() -> None:
        derives.filled.append("b")
        raise Killed

    world, derives = lake()
    at_the_second(world, derives, dies if killed else lambda: world.loop.ask_stop())
    if killed:
        with pytest.raises(Killed):
            world.steps(9, SETTINGS.interval_ms)
    else:
        assert world.until(Tick.STOPPED) is Tick.STOPPED
    assert derives.filled == ["a", "b"]
    world.open()
    assert derives.tried == ["a", "b"], "recovery fills none: there no command acts"
    world.steps(4, SETTINGS.interval_ms)
    assert derives.tried == [*NAMES]
    assert world.loop.progress().unfilled == ()


def test_rows_that_cannot_be_computed_end_one_run_and_the_next_goes_on_to_what_corrects_them() -> None:
    world, derives = lake("caught-up", bad={"b"})
    with pytest.raises(BadData, match="b cannot be computed"):
        world.until(Tick.DONE)
    assert derives.filled == ["a", "c", "d", "e"]
    world.open()
    assert world.until(Tick.DONE) is Tick.DONE
    assert (derives.tried.count("b"), world.loop.progress().unfilled) == (2, ("b",))
    assert world.store.ledger[-1].mutations == "filled no derived table"
    (why,) = world.told
    assert why == world.loop.progress().uncomputed
    assert why.text == "b cannot be computed"
    world.settings = replace(world.settings, until="forever")
    world.open()
    world.steps(9, SETTINGS.interval_ms)
    assert derives.tried.count("b") == 3, "once in each run, until there are rows"
    derives.bad.clear()
    world.change()
    world.steps(4, SETTINGS.interval_ms)
    assert world.loop.progress().unfilled == ()
    assert world.loop.progress().uncomputed is None


def test_rows_that_cannot_be_computed_are_told_of_by_a_run_after_one_that_died_before() -> None:
    world, derives = lake("caught-up", bad={"b"})

    class Killed(BaseException):
        pass

    def dies() -> None:
        raise Killed

    derives.meanwhile = lambda _name: dies()
    with pytest.raises(Killed):
        world.until(Tick.DONE)
    derives.meanwhile = lambda _name: None
    world.open()
    assert world.until(Tick.DONE) is Tick.DONE
    assert derives.filled == ["a", "c", "d", "e"]
    assert [one.text for one in world.told] == ["b cannot be computed"]


def test_what_a_pause_held_is_filled_once_it_is_lifted_though_another_cannot_be_computed() -> None:
    world, derives = lake(bad={"a"})
    derives.bad = {*NAMES}
    with pytest.raises(BadData, match="cannot be computed"):
        world.steps(9, SETTINGS.interval_ms)
    derives.bad = {"a"}
    world.open()
    at_the_second(world, derives, lambda: world.post(Verb.PAUSE))
    world.steps(9, SETTINGS.interval_ms)
    assert derives.filled == ["b"]
    world.post(Verb.RESUME)
    world.steps(4, SETTINGS.interval_ms)
    assert derives.filled == ["b", "c", "d", "e"]
    assert world.loop.progress().unfilled == ("a",)


def test_rows_of_a_first_run_that_cannot_be_computed_end_it_though_it_was_paused_before() -> None:
    world, derives = lake(bad={"b"})
    world.post(Verb.THROTTLE, 0.0)
    at_the_second(world, derives, lambda: None)
    world.steps(3, SETTINGS.interval_ms)
    world.post(Verb.THROTTLE, 1_000.0)
    with pytest.raises(BadData, match="b cannot be computed"):
        world.steps(9, SETTINGS.interval_ms)
