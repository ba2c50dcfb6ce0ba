"""One seeded schedule: changes, commands, failures and crashes at every step, over the real loop and recovery."""

from collections import Counter
from copy import copy
from dataclasses import replace

from backfill_cli import failpoint
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.engine.loop.process import Heartbeat, Wake
from backfill_cli.errors import BadData, HistoryGone, StateConflict, Transient
from backfill_cli.model.job import Control

from .seeded_job import SETTINGS, SeededJob
from .world import Crash

STEPS = 60


class Schedule(SeededJob):
    """All that one seed decides. `run` raises AssertionError where a law does not hold."""

    def run(self) -> None:
        failpoint.handler = self._maybe_crash
        try:
            for _ in range(self.runners):
                try:
                    if self._runner(STEPS):
                        break
                except Crash:
                    self.seen["crash"] += 1
                self._checked()
                self._mistreat()
            self._finish()
        finally:
            failpoint.handler = failpoint._kill_when_named

    def _runner(self, steps: int) -> bool:
        """Run one process for a while. True when it ended by itself."""
        try:
            self.loop = self._open()
            heartbeat = Heartbeat("j", self.loop.heartbeat, 10**9, Wake())
            for _ in range(steps):
                self._happen()
                tick = self._stepped(self.loop)
                self._checked()
                if tick in (Tick.DONE, Tick.STOPPED):
                    return tick == Tick.DONE
                if self.random.random() < 0.1:
                    self._beaten(heartbeat)
                self._others_step()
                if not self.quiet and self.random.random() < 0.005:
                    self.others.append(self.loop)  # frozen for longer than its lease; it will go on
                    break
        except Transient:
            return False
        except BadData as refusal:
            self._taken_back(refusal)
        except HistoryGone:
            self.seen["history gone"] += 1
            self._checked()
            assert self._regain_history(), "nothing was taken"
        finally:
            self.loop = None
        return False

    def _stepped(self, loop: Orchestrator) -> Tick:
        """One step; a loop with nothing in hand takes every command, and gives up no earlier than the limit."""
        free = loop._flight.epoch is None and loop._ahead is None
        heard = {c.id for c in self.store.inbox}
        self.seen["command in time"] += free and bool(heard)
        self.looks.append((self.now, self._commits()))
        try:
            tick = loop.step()
            self._settled(loop)
        except Transient:
            since = loop._backoff.since_ms
            assert since is not None
            assert self.steady - since >= SETTINGS.retry_limit_ms, "gave up before the limit"
            raise
        assert not free or heard.isdisjoint(c.id for c in self.store.inbox), "deaf to a command"
        return tick

    def _settled(self, loop: Orchestrator) -> None:
        """What the upstream had when the loop says that it was all in the sink, is there: `wait` ends by it."""
        settled = loop._meter._settled_ms
        if settled is None or settled == self.told:
            return
        self.told = None
        before = [commits for at, commits in self.looks if at < settled]
        if before:
            self.seen["settled"] += 1
            assert not self._lacks(before[-1]), "said to be in the sink, and is not"
            self.looks = self.looks[len(before) - 1 :]

    def _beaten(self, heartbeat: Heartbeat) -> None:
        """A heartbeat meets a full disk as often as not: the run goes on."""
        try:
            heartbeat.beat()
        except Transient as exc:
            raise AssertionError("a heartbeat that fails in passing ended the run") from exc

    def _others_step(self) -> None:
        """A runner that was taken over goes on where it was: the catalog or the sink's fence ends it."""
        if not self.others or self.random.random() < 0.7:
            return
        other, before = self.others[-1], (dict(self.sink.rows), self.sink.committed("j"), self.store.committed)
        try:
            ended = other.step() in (Tick.DONE, Tick.STOPPED)
        except self.ends_fenced:
            ended = True
            self.seen["taken over"] += 1
        if ended:
            self.others.remove(other)
        assert before == (self.sink.rows, self.sink.committed("j"), self.store.committed), "a fenced runner wrote"
        self._checked()

    def _taken_back(self, refusal: BadData) -> None:
        """The sink can never take the prepared epoch: it is prepared no more, unless one of two tables has it."""
        prepared = self.store.prepared
        if prepared is None:
            self.seen["refused"] += 1
            return
        promised = (prepared.epoch, prepared.attempt)
        assert promised in [(m.epoch, m.attempt) for m in self.sink.committed("j").values()], "it is stuck"
        assert f"commit {prepared.epoch} is in" in refusal.message
        self.seen["half refused"] += 1
        self.sink.cured.add(prepared.attempt)

    # -- what people and disks do to a job that does not run -----------------------------------------------------

    def _mistreat(self) -> None:
        if self.random.random() < 0.25:
            sink = copy(self.sink)
            sink.checkpoints = list(self.sink.checkpoints)
            self.backups.append((replace(self.store, inbox=[]), sink))
        if self.random.random() < 0.25:
            self._damage_staging()
        if self.backups and self.random.random() < 0.25:
            self._restore_one_side()

    def _damage_staging(self) -> None:
        """The prepared epoch's files are gone: no table has it: planned anew; some have it: stop, naming them."""
        prepared = self.store.prepared
        folder = self.stager.folder(prepared.epoch, prepared.attempt) if prepared else ""
        if prepared is None or folder not in self.stager.files:
            return
        lost = self.stager.files.pop(folder)
        promised = (prepared.epoch, prepared.attempt)
        has = [table for table, m in self.sink.committed("j").items() if (m.epoch, m.attempt) == promised]
        if has and len(has) < len(self.tables):
            self._refused(f"commit {prepared.epoch} is in {', '.join(has)} but not in the other")
            self.stager.files[folder] = lost
            self.seen["damaged"] += 1
        elif not has:
            self.seen["dropped"] += 1

    def _restore_one_side(self) -> None:
        """Catalog or sink as it was some time ago: stop and say which, change nothing, guess nothing."""
        mine = self.store, self.sink
        older, sink = self.random.choice(self.backups)
        if self.random.random() < 0.5:
            self.store = replace(older, token=self.store.token)
        else:
            self.sink = copy(sink)
        if not self._agree():
            self._refused(f"the sink is {'newer' if self.sink is mine[1] else 'older'} than the catalog")
            self.seen["restored"] += 1
        token = self.store.token
        self.store, self.sink = mine
        self.store.token = token

    def _agree(self) -> bool:
        """Whether every table is at the committed epoch, or at the prepared one."""
        prepared, committed = self.store.prepared, self.store.committed.epoch
        promised = (prepared.epoch, prepared.attempt) if prepared else None
        markers = self.sink.committed("j").values()
        return all(m.epoch == committed or (m.epoch, m.attempt) == promised for m in markers)

    def _refused(self, why: str) -> None:
        """A new runner stops with this conflict, and has changed neither side."""
        before = self.store.committed, self.store.prepared, dict(self.sink.rows)
        try:
            self._open()
        except StateConflict as conflict:
            said = conflict.message
        except (Crash, Transient):
            return
        else:
            raise AssertionError(f"it went on although {why}")
        assert self._says(said, why), said
        assert (self.store.committed, self.store.prepared, dict(self.sink.rows)) == before

    def _says(self, said: str, why: str) -> bool:
        """Whether a runner that stopped with these words stopped for that reason."""
        return why in said

    # -- the end -------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """The world calms down: the job must end caught up, equal to its upstream."""
        self.quiet = self.sink.calm = self.upstream.calm = True
        self.others = []
        self._regain_history()
        self.store.inbox = []
        self.store.control = Control()
        for _ in range(20):
            if self._runner(2_000):
                break
        else:
            raise AssertionError("never caught up although nothing changed any more")
        self._ended()


def run_all(kind: type[Schedule], seeds: range) -> Counter[str]:
    """What happened in these schedules: crashes, restored sides, … each compared with the law after it."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        schedule = kind(seed)
        try:
            schedule.run()
        except BaseException as exc:
            exc.add_note(f"replay: {kind.__name__}({seed}).run()")
            raise
        happened.update(schedule.seen)
    return happened
