"""The laws of strategy chain under seeded schedules: a log that lets go of what is acknowledged."""

import os
from typing import Any

import pytest

from backfill_cli.contracts import Capabilities, Current
from backfill_cli.engine.spool.taker import Taker, TakerSettings
from backfill_cli.engine.spool.upstream import SpooledUpstream
from backfill_cli.errors import Held, StateConflict
from backfill_cli.model.checkpoint import Recovered
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.chain import ChainStrategy

from .chain_world import ChainStager, MemorySpool, MemoryTakes, TakenByTheTaker, VolatileLog
from .memory_sink import MemorySink
from .memory_store import Leased
from .schedule import Schedule, run_all
from .seeded_job import SETTINGS

SCHEDULES = int(os.environ.get("BACKFILL_SCHEDULES", "7000")) // 4
CHUNK = 500


class ChainSchedule(Schedule):
    """The snapshot pinned, or read as it is now; the log volatile; the taker beside the loop, at any moment."""

    upstream: VolatileLog
    stager: ChainStager
    strategy: ChainStrategy
    ends_fenced = (*Schedule.ends_fenced, StateConflict)  # the new runner swept the spool

    def _world(self) -> Pin:
        current = self.random.random() < 0.5
        self.upstream = VolatileLog(self.random, lambda: self.now, current=current)
        self.upstream.fill()
        if current:  # its state is that of the log's begin: all rows are of the snapshot
            self.upstream.capabilities = Capabilities(Current(TakenByTheTaker()), True, True)
        self.spool = MemorySpool()
        self.stager = ChainStager(self.upstream, self.random, spool=self.spool)
        self.sink = MemorySink(self.stager, self.random)
        self.takers: dict[int, Taker] = {}
        pin = self.upstream.pin()
        self.strategy = ChainStrategy(pin.splits, current=current)
        self.stager.meanwhile = self._taken_meanwhile
        self.taken = START
        return pin

    def _connected(self, recovered: Recovered) -> tuple[Any, ChainStager]:
        store = Leased(lambda: self.store, self.store.token)
        takes = MemoryTakes(self.upstream, self.spool)
        most = self.random.choice((None, None, 3))
        settings = TakerSettings(SETTINGS.interval_ms, most, False, SETTINGS.retry_limit_ms)
        taker = Taker(self.upstream, self.spool, store, takes, settings, lambda: self.now, lambda: self.steady)  # type: ignore[arg-type]
        facade = SpooledUpstream(self.upstream, self.upstream, taker, self.spool)  # type: ignore[arg-type]
        facade.take_up(recovered.committed, store.spooled())
        self.takers[id(facade)] = taker
        self.stager.taker = self.taker = taker
        return facade, self.stager

    def _taken_meanwhile(self) -> None:
        """While an epoch is staged the upstream changes, and its log is taken."""
        if not self.quiet and self.random.random() < 0.3:
            self.upstream.change()
        if self.random.random() < 0.5:
            self._beside(self.taker)

    def _beside(self, taker: Taker) -> None:
        """The taker's thread has its turn. While it runs and nothing fails, the log keeps nothing for long."""
        running, taken = taker.running, taker.position if taker.running else START
        end = Position.of({"log": len(self.upstream.log)}) if self.upstream.log else START
        assert taken <= end
        due = running and (taker._due_ms is None or taker._due_ms <= self.steady)
        taker.beside()
        if due and taker._failed is None and taker.waits is None and not taker.full:
            assert taker.position == end <= self.upstream.acknowledged, "the log keeps what could be taken"
        self.seen["taken beside"] += running and taker.position != taken

    def _happen(self) -> None:
        super()._happen()
        if self.loop is not None and self.random.random() < 0.3:
            self._beside(self.taker)

    def _others_step(self) -> None:
        """A frozen runner's taker goes on, too: the catalog refuses its entry; what it knew it may acknowledge."""
        if self.others and self.random.random() < 0.5:
            other = self.others[-1]
            taker, entries = self.takers[id(other._ports.upstream)], self.store.spool_entries
            taker.beside()
            assert self.store.spool_entries is entries, "a fenced runner's entry"
            self._checked()
            self.seen["fenced taker"] += isinstance(taker._failed, Held)
        mine = self.taker
        self.stager.taker = self.takers[id(self.others[-1]._ports.upstream)] if self.others else mine
        super()._others_step()
        self.stager.taker = self.taker = mine

    def _kept(self) -> list[Position]:
        return [self.held, *(entry.window.up_to for entry in self.store.spool_entries)]

    def _law(self) -> None:
        if not self.sink.checkpoints:
            assert self.sink.rows == {}
            return
        last = self.sink.checkpoints[-1]
        state = self.strategy.thaw(last.state, {}, Control())
        if last.phase != Phase.SNAPSHOT and not state.converging:
            assert self.sink.rows == self.upstream.at(last.position), "sink = f(upstream at the phantom)"
            self.seen["drained"] += 1
        elif not self.upstream.current and last.position == START:
            read = {
                k: v for (_, s), p in self.sink.splits.items() for k, v in self.upstream.splits[int(s)][: p.rows]
            }
            assert self.sink.rows == read, "snapshot phase: the consumed prefix of each split"

    def _lose_history(self) -> None:
        """It loses what is acknowledged, always; nothing else."""

    def _regain_history(self) -> bool:
        return False

    def _ended(self) -> None:
        self.seen["current"] += self.upstream.current
        assert self.sink.rows == self.upstream.now()
        assert self.spool.sealed == {}, "something is left in the spool"
        assert self.store.spool_entries == [], "the catalog knows entries that are gone"


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_whatever_happens_the_sink_is_the_upstream_at_a_phantom(first: int) -> None:
    happened = run_all(ChainSchedule, range(first, first + CHUNK))
    for what, least in (
        ("crash", 10),
        ("drained", 10),
        ("taken beside", 10),
        ("current", 10),
        ("fenced taker", 1),
    ):
        assert happened[what] > least, f"{what}: {happened[what]}: the schedules do not try it"
