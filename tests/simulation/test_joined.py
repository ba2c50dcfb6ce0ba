"""Tables join and leave a job that runs, under kills, beside other commands: each checkpoint is right."""

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from backfill_cli import failpoint
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.engine.job.ownership import forget_strays
from backfill_cli.engine.loop.checkpoints import promised, with_table, without_table
from backfill_cli.engine.loop.meter import Meter
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.engine.loop.pace import Sizes
from backfill_cli.engine.loop.ports import Job, Ports
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.errors import Transient
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord
from backfill_cli.model.job import REDEFINES, Barrier, Command, Control, Mutations, Verb, until_redefined
from backfill_cli.model.pace import Sizer
from backfill_cli.strategies.snapshot import SnapshotStrategy

from .memory_sink import LazyCommit
from .memory_store import Leased
from .seeded_job import SETTINGS
from .shop_world import TABLES, Shop, ShopSink, ShopStager, ShopStore, is_read
from .world import Crash

SCHEDULES = int(os.environ.get("BACKFILL_SCHEDULES", "7000")) // 40
LEFT_OUT = {Verb.REFILL, Verb.CANCEL_REFILL, *REDEFINES}
DRAWN = {Verb.SET, Verb.ADD, Verb.REMOVE}
"""Of those that redefine a job. No table is set aside here, so none is put back."""


def sink_table(name: str) -> SinkTable:
    return SinkTable(name, name, ("k",), "{}")


class JoinSchedule:
    """All that one seed decides. `run` raises AssertionError where a law does not hold."""

    def __init__(self, seed: int) -> None:
        self.random, self.now, self.posted = Random(seed), 10**9, 0
        self.shop = Shop(self.random, lambda: self.now)
        for _ in range(self.random.randrange(20)):
            self.shop.change()
        self.stager = ShopStager(self.shop, self.random)  # type: ignore[arg-type]
        self.stager.during = lambda: None if self.quiet else self._command(0.1)
        self.sink, pin = ShopSink(self.stager, self.random), self.shop.pin()
        start = SnapshotStrategy(pin.splits).start(pin, Control())
        job = JobDefinition("j", "", "{}", pin, "forever", "snapshot", (sink_table(TABLES[0]),))
        first = SnapshotStrategy(pin.splits).freeze(start)
        self.store = ShopStore(Checkpoint(0, 0, 0, "", first, start.phase, start.position), definition=job)
        self.quiet = False
        self.kept: dict[str, dict[int, int]] = {}  # what tables held as they left, their rows staying
        self.dropped: set[str] = set()  # tables that left with their rows
        self.seen: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        failpoint.handler = self._maybe_crash
        try:
            for _ in range(self.random.randrange(4, 12)):
                try:
                    self._runner(40)
                except Crash:
                    self.seen["crash"] += 1
                self._judge()
            self._finish()
        finally:
            failpoint.handler = failpoint._kill_when_named
        return self.seen

    def _maybe_crash(self, _name: str) -> None:
        if not self.quiet and self.random.random() < 0.05:
            raise Crash

    # -- one process ---------------------------------------------------------------------------------------------

    def _runner(self, steps: int) -> bool:
        """Whether it ended by itself, caught up."""
        try:
            self.store.token += 1
            self.store.control = replace(self.store.control, stop=False)
            self._strays()
            loop = self._loop()
            for _ in range(steps):
                self._happen()
                tick = loop.step()
                self._judge()
                if tick is Tick.REDEFINED:
                    self._redefined()
                    loop = self._loop()
                elif tick in (Tick.DONE, Tick.STOPPED):
                    return tick is Tick.DONE
        except Transient:
            assert not self.quiet
        return False

    def _strays(self) -> None:
        self.sink.prepare("j", self.store.definition.tables, into_existing=True)
        forget_strays(self.store.definition, self.store.committed, self.sink, lambda _said: None)  # type: ignore[arg-type]

    def _loop(self) -> Orchestrator:
        job = Job("j", self.store.token, self.store.definition.tables, "{}")
        store = Leased(lambda: self.store, self.store.token)
        for _ in range(100):
            try:
                recovered = recover(job, store, self.sink, self.stager, self.now)  # type: ignore[arg-type]
                break
            except Transient:
                self._judge()
        clock, submit = (lambda: self.now), lambda f: LazyCommit(f, self.random)
        ports = Ports(self.shop, self.sink, store, self.stager, None, submit, clock, clock)  # type: ignore[arg-type]
        settings = replace(SETTINGS, until="caught-up" if self.quiet else "forever")
        strategy = SnapshotStrategy(self.store.definition.pin.splits)
        loop = Orchestrator(job, ports, strategy, settings, recovered, Meter("j", 1))
        loop._sizes = Sizes(SETTINGS.target_ms, *(Sizer(self.random.randrange(1, 12)) for _ in range(2)))
        return loop

    def _redefined(self) -> None:
        """As engine.loop.redefine does it; what it computes is the same code."""
        recovered = self.store.load()
        _, asked = until_redefined(self.store.commands())
        assert asked is not None
        barrier = Barrier.next(recovered.last_epoch, self.now, Mutations(recovered.control, (asked,)))
        record = EpochRecord(barrier.epoch, barrier.prev_ms, recovered.committed.phase, barrier.epoch)
        change, job, control = Change.read(asked.payload), self.store.definition, recovered.control
        names, name = [table.name for table in job.tables], change.table
        wrong = {Verb.ADD: name in names, Verb.REMOVE: name not in names or len(names) == 1}.get(asked.verb, False)
        if wrong or (recovered.prepared is not None and asked.verb is not Verb.SET):
            before = (self.store.definition, self.store.committed, self.store.prepared, dict(self.sink.rows))
            self.store.refused(asked, record)
            now = (self.store.definition, self.store.committed, self.store.prepared, dict(self.sink.rows))
            assert now == before
            self.seen["refused"] += 1
            return
        committed, after = recovered.committed, job
        if asked.verb is Verb.ADD:
            self.sink.leave("j", [name])
            pin, more = self.shop.pinned(name), (sink_table(name),)
            self.sink.rows.pop(name, None)  # somebody dropped what was there
            self.kept.pop(name, None)
            self.dropped.discard(name)
            self.sink.prepare("j", more, into_existing=False)
            after = replace(job, pin=job.pin.joined(pin), tables=(*job.tables, *more))
            committed = with_table(committed, control, SnapshotStrategy(after.pin.splits), pin, more, "")
        elif asked.verb is Verb.REMOVE:
            gone = [table for table in job.tables if table.name == name]
            after = replace(job, pin=job.pin.without(name), tables=tuple(t for t in job.tables if t not in gone))
            left = (SnapshotStrategy(after.pin.splits), name, job.tables, gone, change.with_rows)
            committed = without_table(committed, control, *left)
        failpoint.hit("redefinition-checked")
        promise = promised(recovered, committed, record.epoch, self.now, self.store.token)
        self.store.redefined(asked, record, after, change.paced(control), committed, promise)
        self.seen[asked.verb.value] += 1
        if change.with_rows:
            self.dropped.add(name)
            self.seen["with rows"] += 1
        elif asked.verb is Verb.REMOVE:
            self.kept[name] = dict(self.sink.rows[name])
        failpoint.hit("redefined")
        self._strays()

    # -- the world -----------------------------------------------------------------------------------------------

    def _happen(self) -> None:
        self.now += self.random.choice((0, 1, 300, 1500))
        if not self.quiet:
            if self.random.random() < 0.4:
                self.shop.change()
            self._command(0.15)

    def _command(self, often: float) -> None:
        if self.random.random() >= often:
            return
        redefining = not any(one.verb in REDEFINES for one in self.store.inbox) and self.random.random() < 0.5
        verb = self.random.choice([one for one in Verb if (one in DRAWN if redefining else one not in LEFT_OUT)])
        table = "" if verb in (Verb.SET,) or not redefining else self.random.choice(TABLES)
        change = Change("{}", table=table, with_rows=verb is Verb.REMOVE and self.random.random() < 0.5)
        self.posted += 1
        rate = self.random.choice((None, 0.0, 1.0, 20.0))
        payload = change.stored if redefining else ""
        self.store.inbox.append(Command(self.posted, verb, "sim", self.now, rate, payload=payload))

    # -- laws ----------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """What the sink holds is what its own marker's checkpoint says, table by table."""
        store, sink = self.store, self.sink
        held = (store.committed, *(() if store.prepared is None else (store.prepared,)))
        for table in store.definition.tables:
            marker = sink.markers.get(table.name)
            at = next((one for one in held if marker is not None and one.epoch == marker.epoch), None)
            if at is None or marker is None or not marker.epoch:
                continue
            splits = {**store.committed.splits, **at.splits}
            position = int(at.position.get(table.name) or 0)
            if is_read(store, splits, table.name):
                assert sink.rows[table.name] == self.shop.at(table.name, position), table.name
            else:
                assert position == store.definition.pin.position.get(table.name), "its log stands"
                read = {
                    key: value
                    for split in store.definition.pin.splits
                    if split.table == table.name
                    for key, value in self.shop.parts[table.name, split.id][
                        : splits[table.name, split.id].rows if (table.name, split.id) in splits else 0
                    ]
                }
                assert sink.rows[table.name] == read, f"{table.name}: the consumed prefix of each split"
        assert all(sink.rows[name] == rows for name, rows in self.kept.items()), "a table that left is touched"

    def _finish(self) -> None:
        """The world calms down: the job ends caught up, each of its tables equal to its upstream."""
        self.quiet = self.shop.calm = self.sink.calm = True
        self.store.inbox, self.store.control = [], Control()
        for _ in range(20):
            if self._runner(2_000):
                break
        else:
            raise AssertionError("never caught up although nothing changed any more")
        self._judge()
        assert self.sink.markers.keys() == {table.name for table in self.store.definition.tables}
        for name in self.sink.markers:
            assert self.sink.rows[name] == self.shop.at(name, len(self.shop.logs[name])), name
        assert self.dropped.isdisjoint(self.sink.rows), "rows that were to be dropped are there"


def run_all(seeds: range) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        try:
            happened.update(JoinSchedule(seed).run())
        except BaseException as exc:
            exc.add_note(f"replay: JoinSchedule({seed}).run()")
            raise
    return happened


@pytest.mark.parametrize("first", range(0, SCHEDULES, 175))
def test_every_table_of_a_job_is_right_at_each_checkpoint_whatever_joins_and_leaves(first: int) -> None:
    run_all(range(first, first + 175))


def test_schedules_do_what_they_are_for() -> None:
    seen = run_all(range(50_000, 50_040))
    assert all(seen[what] > 10 for what in ("crash", "add", "remove", "set", "with rows", "refused")), seen
