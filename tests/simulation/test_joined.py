"""Tables join and leave a job that runs, fail, come back, are refilled, under kills: each checkpoint is right."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_cli import failpoint
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.engine.job.leave import without_aside
from backfill_cli.engine.job.ownership import forget_strays
from backfill_cli.engine.loop import aside as setting_aside
from backfill_cli.engine.loop import redefine
from backfill_cli.engine.loop.aside import not_put_back
from backfill_cli.engine.loop.checkpoints import having, promised, with_table, without_table
from backfill_cli.engine.loop.meter import Meter
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.engine.loop.pace import Sizes
from backfill_cli.engine.loop.ports import Job, Ports
from backfill_cli.engine.loop.recovery import recover, unfilled
from backfill_cli.engine.loop.refills import NotPutBack
from backfill_cli.errors import BackfillError, Transient, UsageError
from backfill_cli.model.aside import Aside, Standing, out, put_back
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Recovered
from backfill_cli.model.codec import encode
from backfill_cli.model.job import REDEFINES, Barrier, Command, Control, Mutations, Verb, until_redefined
from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import Sizer
from backfill_cli.model.position import Position
from backfill_cli.model.refill import RefillState
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.snapshot import SnapshotStrategy

from .aside_world import AsideStore, ShopRefills
from .memory_sink import LazyCommit
from .memory_store import Leased
from .seeded_job import SETTINGS
from .shop_world import TABLES, Shop, ShopSink, ShopStager, is_read
from .world import Crash

SCHEDULES = int(os.environ.get("BACKFILL_SCHEDULES", "7000")) // 40
LEFT_OUT = {Verb.REFILL, Verb.CANCEL_REFILL, *REDEFINES}
"""Of commands that change the control alone; those are drawn by themselves."""


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
        self.sink, names = ShopSink(self.stager, self.random), TABLES[: self.random.randrange(1, 4)]
        pin = reduce(Pin.joined, map(self.shop.pinned, names))
        start = SnapshotStrategy(pin.splits).start(pin, Control())
        job = JobDefinition("j", "", "{}", pin, "forever", "snapshot", tuple(map(sink_table, names)))
        first = SnapshotStrategy(pin.splits).freeze(start)
        self.store = AsideStore(Checkpoint(0, 0, 0, "", first, start.phase, start.position), definition=job)
        self.quiet, self.goes_on = False, self.random.random() < 0.5  # whether a log is kept from its beginning
        self.kept: dict[str, dict[int, int]] = {}  # what tables held as they left, their rows staying
        self.wrong: set[str] = set()  # tables of which somebody changed rows in the sink
        self.dropped: set[str] = set()  # tables that left with their rows
        self.done: set[int] = set()
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
            while True:
                self._again_aside()
                try:
                    return self._through(steps)
                except BackfillError as error:
                    if isinstance(error, Transient) or not error.table:
                        raise
                    if not isinstance(error, NotPutBack) and not self._without(error):
                        return False
        except Transient:
            assert not self.quiet
        return False

    def _through(self, steps: int) -> bool:
        loop = self._loop()
        for _ in range(steps):
            self._happen()
            tick = loop.step()
            self._judge()
            if tick is Tick.REDEFINED:
                self._redefined()
                self._again_aside()
                loop = self._loop()
            elif tick in (Tick.DONE, Tick.STOPPED):
                return tick is Tick.DONE
        return False

    def _without(self, error: BackfillError) -> bool:
        """Whether the job goes on without the table that the error is of."""
        job, table = self.store.definition, error.table
        assert table is not None
        assert table in {one.name for one in job.tables}
        if not job.others_in(table):
            self.seen["last"] += 1
            return False
        self._set_aside(table, Limit(error.message))
        return True

    def _again_aside(self) -> None:
        while True:
            job = self.store.definition
            found = not_put_back(
                job, [None if one.refill is None else self.store.refilled[one.refill] for one in job.aside]
            )
            if found is None:
                return
            self.seen["aside again"] += 1
            self._set_aside(*found)

    def _set_aside(self, table: str, cause: Limit) -> None:
        """As engine.loop.aside does it; what it computes is the same code."""
        job, recovered = self.store.definition, self.store.load()
        barrier = Barrier.next(recovered.last_epoch, self.now, Mutations(recovered.control))
        resources: Any = SimpleNamespace(sink=self.sink, with_retries=self._patiently)
        last, own = setting_aside._last_of(table, job, recovered, resources), [one.name for one in job.tables]
        one = Aside(
            table,
            "{}",
            "{}",
            encode(tuple(one for one in job.tables if one.name == table)),
            barrier.epoch,
            last.epoch,
            cause.text,
            position={log: at for log, at in last.position if log == table},
            began={log: at for log, at in job.pin.position if log == table},
            exact=last.epoch > 0 and is_read(self.store, last.splits, table) and table not in self.wrong,
        )
        definition = replace(
            job,
            pin=job.pin.without(table),
            tables=tuple(other for other in job.tables if other.name != table),
            aside=(*(o for o in job.aside if o.table != table), setting_aside._as_it_is(one, job)),
        )
        assert own != [table]
        left = setting_aside._left(recovered, SnapshotStrategy(definition.pin.splits), table, job.tables)
        promise = left.prepared or promised(left, left.committed, barrier.epoch, self.now, self.store.token)
        record = EpochRecord(barrier.epoch, barrier.prev_ms, left.committed.phase, barrier.epoch)
        failpoint.hit("aside-checked")
        self.store.set_aside(record, definition, left.committed, promise)
        self.kept[table] = dict(self.sink.rows[table])
        self.seen["aside"] += 1
        failpoint.hit("aside")
        self._strays()

    def _patiently(self, act: Callable[[], Any]) -> Any:
        for _ in range(100):
            try:
                return act()
            except Transient:
                self._judge()
        raise AssertionError("it does not pass")

    def _strays(self) -> None:
        self.sink.prepare("j", self.store.definition.tables, into_existing=True)
        forget_strays(self.store.definition, self.store.committed, self.sink, lambda _said: None)  # type: ignore[arg-type]

    def _loop(self) -> Orchestrator:
        definition = self.store.definition
        job = self._job(definition)
        store = Leased(lambda: self.store, self.store.token)
        for _ in range(100):
            try:
                recovered = recover(job, store, self.sink, self.stager, self.now)  # type: ignore[arg-type]
                break
            except Transient:
                self._judge()
        clock, submit = (lambda: self.now), lambda f: LazyCommit(f, self.random)
        refills = ShopRefills(self.shop, self.sink, store, self.stager, self.random, definition)
        ports = Ports(self.shop, self.sink, store, self.stager, None, submit, clock, clock, refills=refills)  # type: ignore[arg-type]
        settings = replace(SETTINGS, until="caught-up" if self.quiet else "forever")
        strategy = SnapshotStrategy(self.store.definition.pin.splits)
        loop = Orchestrator(job, ports, strategy, settings, recovered, Meter("j", 1), unfilled(job, self.sink))
        loop._sizes = Sizes(SETTINGS.target_ms, *(Sizer(self.random.randrange(1, 12)) for _ in range(2)))
        return loop

    def _job(self, definition: JobDefinition) -> Job:
        return Job("j", self.store.token, definition.tables, "{}", tuple(one.table for one in definition.aside))

    def _redefined(self) -> None:
        """As engine.loop.redefine does it; what it computes is the same code."""
        recovered = self.store.load()
        _, asked = until_redefined(self.store.commands())
        assert asked is not None
        barrier = Barrier.next(recovered.last_epoch, self.now, Mutations(recovered.control, (asked,)))
        record = EpochRecord(barrier.epoch, barrier.prev_ms, recovered.committed.phase, barrier.epoch)
        change, job, control = Change.read(asked.payload), self.store.definition, recovered.control
        name, standing = change.table, job.standing(change.table)
        refill = None if change.refill is None else self.store.refilled[change.refill]
        wrong = refill is not None and not refill.pending
        try:
            redefine._require_standing(job, asked.verb, change)
        except UsageError:
            wrong = True
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
        elif asked.verb is Verb.PUT_BACK:
            after, committed = self._back(job, change, recovered)
        elif asked.verb is Verb.REMOVE and standing is Standing.ASIDE:
            after = without_aside(job, name)
            if change.with_rows:
                self.sink.prepare("j", (sink_table(name),), into_existing=True)
                dropping = {name: encode(sink_table(name))}
                committed = replace(committed, dropping={**committed.dropping, **dropping})
        elif asked.verb is Verb.REMOVE:
            gone = [table for table in job.tables if table.name == name]
            after = replace(
                without_aside(job, name),
                pin=job.pin.without(name),
                tables=tuple(t for t in job.tables if t not in gone),
            )
            left = (SnapshotStrategy(after.pin.splits), name, job.tables, gone, change.with_rows)
            committed = without_table(committed, control, *left)
        failpoint.hit("redefinition-checked")
        promise = promised(recovered, committed, record.epoch, self.now, self.store.token)
        self.store.redefined(asked, record, after, change.paced(control), committed, promise)
        self.seen[asked.verb.value] += 1
        if change.with_rows:
            self.dropped.add(name)
            self.kept.pop(name, None)
            self.seen["with rows"] += 1
        elif asked.verb is Verb.REMOVE:
            self.kept[name] = dict(self.sink.rows[name])
        elif asked.verb is Verb.PUT_BACK:
            self.kept.pop(name)
        if asked.verb is Verb.REMOVE:
            self.wrong.discard(name)
        failpoint.hit("redefined")
        self._strays()

    def _back(self, job: JobDefinition, change: Change, recovered: Recovered) -> tuple[JobDefinition, Checkpoint]:
        """The job with a table that was set aside, and what is committed of it then."""
        name, before = change.table, redefine.aside_of(job, change.table)
        assert change.refill is not None
        self.sink.leave("j", [name])
        self.sink.prepare("j", (sink_table(name),), into_existing=True)
        pin = self.shop.pinned(name)
        if self.goes_on:
            pin = replace(pin, position=Position.of(before.began))
        aside = tuple(put_back(one, change.refill, self.goes_on) if one is before else one for one in job.aside)
        after = replace(job, pin=job.pin.joined(pin), tables=(*job.tables, sink_table(name)), aside=aside)
        strategy, committed = SnapshotStrategy(after.pin.splits), recovered.committed
        more = replace(pin, position=Position.of(before.position)) if self.goes_on else pin
        state = strategy.put_back(strategy.thaw(committed.state, committed.splits, recovered.control), more)
        return after, having(committed, strategy, state, pin.schema, (sink_table(name),), "")

    # -- the world -----------------------------------------------------------------------------------------------

    def _happen(self) -> None:
        self.now += self.random.choice((0, 1, 300, 1500))
        if not self.quiet:
            if self.random.random() < 0.4:
                self.shop.change()
            if self.random.random() < 0.05:
                self.shop.failing ^= {self.random.choice(TABLES)}
            self._command(0.15)

    def _command(self, often: float) -> None:
        if self.random.random() >= often:
            return
        if self.random.random() < 0.3:
            self._refill()
            return
        redefining = not any(one.verb in REDEFINES for one in self.store.inbox) and self.random.random() < 0.5
        drawn = (Verb.SET, Verb.ADD, Verb.REMOVE)
        verb = self.random.choice([one for one in Verb if (one in drawn if redefining else one not in LEFT_OUT)])
        table = "" if verb is Verb.SET or not redefining else self.random.choice(TABLES)
        change = Change("{}", table=table, with_rows=verb is Verb.REMOVE and self.random.random() < 0.5)
        self._post(verb, change.stored if redefining else "")

    def _post(self, verb: Verb, payload: str) -> None:
        self.posted += 1
        rate = self.random.choice((None, 0.0, 1.0, 20.0))
        self.store.inbox.append(Command(self.posted, verb, "sim", self.now, rate, payload=payload))

    def _refill(self) -> None:
        """A table is put back, or refilled after somebody changed its rows; or its refill is cancelled."""
        self._note_done()
        store, job = self.store, self.store.definition
        table = self.random.choice(job.commanded)
        if pending := store.pending(table):
            if self.random.random() < 0.2:
                self._post(Verb.CANCEL_REFILL, str(pending[0].id))
                self.seen["cancel"] += 1
        elif job.standing(table) is Standing.ASIDE:
            waits = [one.verb for one in store.inbox if one.verb in REDEFINES]
            if all(verb is Verb.PUT_BACK for verb in waits):
                self._post(Verb.PUT_BACK, Change("", table=table, refill=store.ask(table)).stored)
        elif job.standing(table) is Standing.IN and is_read(store, store.committed.splits, table):
            if self.random.random() < 0.7:
                key = self.random.randrange(12)
                self.sink.rows[table] = {k: v for k, v in self.sink.rows[table].items() if k != key}
                if self.random.random() < 0.5:
                    self.sink.rows[table][key] = -1
                self.wrong.add(table)
            self._post(Verb.REFILL, str(store.ask(table)))

    # -- laws ----------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """What the sink holds is what its own marker's checkpoint says, table by table."""
        store, sink = self.store, self.sink
        self._note_done()
        back = {one.table for one in store.definition.aside if not one.exact} | self.wrong
        for one in out(store.definition.aside):
            if one.exact:
                assert sink.rows[one.table] == self.shop.at(one.table, int(one.position[one.table])), one.table
        held = (store.committed, *(() if store.prepared is None else (store.prepared,)))
        for table in store.definition.tables:
            marker = sink.markers.get(table.name)
            at = next((one for one in held if marker is not None and one.epoch == marker.epoch), None)
            if at is None or marker is None or not marker.epoch or table.name in back:
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

    def _note_done(self) -> None:
        """A table that was refilled has the upstream's rows again."""
        done = {one.id for one in self.store.refilled.values() if one.state is RefillState.DONE}
        self.seen["refilled"] += len(done - self.done)
        self.wrong -= {self.store.refilled[one].table for one in done - self.done}
        self.done = done

    def _finish(self) -> None:
        """The world calms down: the job ends caught up, each of its tables equal to its upstream."""
        self.quiet = self.shop.calm = self.sink.calm = True
        self.store.inbox, self.store.control = [], Control()
        self.shop.failing.clear()
        for one in self.store.refilled.values():
            if one.pending and one.since is None:  # its command is gone
                self.store._end(one.id, RefillState.CANCELLED)
        for table in self.store.definition.commanded:
            if self.store.definition.standing(table) is Standing.ASIDE:
                self._post(Verb.PUT_BACK, Change("", table=table, refill=self.store.ask(table)).stored)
            elif table in self.wrong and not self.store.pending(table):
                self._post(Verb.REFILL, str(self.store.ask(table)))
        for _ in range(20):
            if self._runner(2_000):
                break
        else:
            raise AssertionError("never caught up although nothing changed any more")
        self._judge()
        assert not self.store.definition.aside
        assert not self.wrong
        tables = {table.name for table in self.store.definition.tables}
        assert self.sink.markers.keys() == tables | {one.name for one in self.store.definition.derived}
        for name in tables:
            assert self.sink.rows[name] == self.shop.at(name, len(self.shop.logs[name])), name
        assert self.dropped.isdisjoint(self.sink.rows), "rows that were to be dropped are there"


_SEEN = (
    *("crash", "add", "remove", "set", "with rows", "refused", "aside", "put-back", "refilled"),
    "cancel",
)


def run_all(seeds: range) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        try:
            happened.update(JoinSchedule(seed).run())
        except BaseException as exc:
            exc.add_note(f"replay: JoinSchedule({seed}).run()")
            raise
    return happened


@pytest.mark.parametrize("first", range(0, SCHEDULES, 50))
def test_every_table_of_a_job_is_right_at_each_checkpoint_whatever_joins_and_leaves(first: int) -> None:
    run_all(range(first, first + 50))


def test_schedules_do_what_they_are_for() -> None:
    seen = run_all(range(50_000, 50_040))
    assert all(seen[what] > 10 for what in _SEEN), seen
    assert seen["aside again"] > 2, seen
