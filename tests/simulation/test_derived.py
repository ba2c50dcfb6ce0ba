"""Derived tables of a job that runs, under kills: each that was filled is its SELECT at every checkpoint.

Real are the loop, the commit as it is asked for, recovery and what it fills. The sink is in memory: it fills and
keeps as its contract says, from the changes of each commit alone, so that one commit too few, or one twice, stays
to be seen. The SELECT of the law is computed from the tables as they are.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from backfill_cli import failpoint
from backfill_cli.contracts import EpochCommit, JobDefinition, SinkExtras, SinkTable
from backfill_cli.engine.loop.checkpoints import promised
from backfill_cli.engine.loop.ports import Job
from backfill_cli.errors import StateConflict
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import ANEW, EpochRecord, Marker
from backfill_cli.model.codec import encode
from backfill_cli.model.job import REDEFINES, Barrier, Mutations, Phase, Verb, until_redefined

from .shop_world import ShopSink
from .test_joined import JoinSchedule, sink_table
from .world import Rows

DERIVED = {"d1": ("a", "b", 3), "d2": ("b", "c", 4), "d3": ("a", "a", 5)}
"""Two tables and a number: how many rows of both have a value with this remainder."""
SCHEDULES = 60


def selected(rows: Mapping[str, Rows], sql: str) -> Rows:
    """The law's right side."""
    one, two, by = sql.split()
    return dict(Counter(value % int(by) for table in {one, two} for value in rows.get(table, {}).values()))


@dataclass
class DerivedSink(ShopSink):
    """fills: how often each was filled."""

    fills: Counter[str] = field(default_factory=Counter)
    extras: ClassVar[SinkExtras] = SinkExtras()

    def claim(self, name: str) -> None:
        token = max((marker.token for marker in self.markers.values()), default=0)
        self.markers.setdefault(name, Marker(0, token, ""))

    def renew(self, name: str) -> None:
        if self.markers[name].epoch:
            self.markers[name] = replace(self.markers[name], epoch=0, attempt=ANEW)

    def derive(self, commit: EpochCommit, now: dict[str, Rows], due: Sequence[str]) -> list[str]:
        kept: list[str] = []
        begun = any(self.markers[one.name].begun for one in commit.derived if one.name in self.markers)
        fills = begun or commit.saved.checkpoint.phase is not Phase.SNAPSHOT
        for one in commit.derived:
            if (marker := self.markers.get(one.name)) is None:
                raise StateConflict(f"{one.name}: its marker is gone")
            if (marker.epoch, marker.attempt) == (commit.epoch, commit.attempt):
                continue
            if not marker.epoch:
                if fills:
                    now[one.name] = selected(now, one.sql)
                    self.fills[one.name] += 1
                    kept.append(one.name)
                continue
            if commit.epoch <= marker.epoch or commit.prev_epoch != marker.epoch:
                raise StateConflict(f"{one.name}: epoch {commit.epoch} after {marker.epoch}")
            now[one.name] = self._kept(one.name, one.sql, now, due)
            kept.append(one.name)
        return kept

    def _kept(self, name: str, sql: str, now: Mapping[str, Rows], due: Sequence[str]) -> Rows:
        one, two, by = sql.split()
        found = Counter(self.rows[name])
        for table in {one, two} & set(due):
            before, after = self.rows.get(table, {}), now[table]
            for key in before.keys() | after.keys():
                if before.get(key) != after.get(key):
                    found.subtract([before[key] % int(by)] if key in before else [])
                    found.update([after[key] % int(by)] if key in after else [])
        return {group: count for group, count in found.items() if count}


class DerivedSchedule(JoinSchedule):
    """As its base; derived tables join, are replaced and leave, too."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sink: DerivedSink = DerivedSink(self.stager, self.random)
        self.drifted: dict[str, int] = {}
        """Of which somebody changed rows of a table, and how often they were filled by then."""
        job = self.store.definition
        there = [name for name, reads in DERIVED.items() if {*reads[:2]} <= {one.name for one in job.tables}]
        self.store.definition = self._with(job, {name: DERIVED[name] for name in there[:1]})

    def _with(self, job: JobDefinition, told: Mapping[str, tuple[str, str, int]]) -> JobDefinition:
        sections = [{"name": name, "sql": f"{one} {two} {by}"} for name, (one, two, by) in told.items()]
        return replace(job, config=json.dumps({"derived": sections}))

    def _told(self) -> dict[str, tuple[str, str, int]]:
        parts = {one.name: one.sql.split() for one in self.store.definition.derived}
        return {name: (one, two, int(by)) for name, (one, two, by) in parts.items()}

    def _job(self, definition: JobDefinition) -> Job:
        for one in definition.derived:  # as prepare_derived, of a run that begins
            self.sink.claim(one.name)
        job = super()._job(definition)
        return replace(job, derived=definition.derived, beside=tuple(map(sink_table, job.aside)))

    def _command(self, often: float) -> None:
        before = len(self.store.inbox)
        super()._command(often)
        waits = any(one.verb in REDEFINES for one in self.store.inbox)
        if len(self.store.inbox) == before or waits or self.random.random() < 0.6:
            return
        verb = self.random.choice((Verb.ADD, Verb.ADD, Verb.REMOVE))
        names = tuple(self.random.sample(sorted(DERIVED), self.random.randrange(1, 3)))
        again = {name: (*DERIVED[name][:2], self.random.randrange(2, 7)) for name in names}
        config = encode(tuple((name, *told) for name, told in again.items())) if verb is Verb.ADD else ""
        with_rows = verb is Verb.REMOVE and self.random.random() < 0.5
        self._post(verb, Change(config, derived=names, with_rows=with_rows).stored)

    def _redefined(self) -> None:
        _, asked = until_redefined(self.store.commands())
        assert asked is not None
        change, job = Change.read(asked.payload), self.store.definition
        read = {table for one, two, _ in self._told().values() for table in (one, two)}
        if not change.derived and (asked.verb is not Verb.REMOVE or change.table not in read):
            super()._redefined()
            return
        recovered = self.store.load()
        barrier = Barrier.next(recovered.last_epoch, self.now, Mutations(recovered.control, (asked,)))
        record = EpochRecord(barrier.epoch, barrier.prev_ms, recovered.committed.phase, barrier.epoch)
        told = self._told()
        comes = {name: (one, two, by) for name, one, two, by in json.loads(change.config or "[]")}
        there = {*(one.name for one in job.tables), *(one.table for one in job.aside)}
        refused = not change.derived or recovered.prepared is not None
        if asked.verb is Verb.ADD:
            refused |= any(not {*reads[:2]} <= there or told.get(name) == reads for name, reads in comes.items())
        else:
            refused |= not set(change.derived) <= told.keys()
        if refused:
            self.store.refused(asked, record)
            self.seen["derived refused"] += 1
            return
        committed = recovered.committed
        if asked.verb is Verb.ADD:
            for name in change.derived:
                if name not in told:  # somebody dropped what was there, or it is taken back
                    self.sink.leave("j", [name])
                    self.sink.rows.pop(name, None)
                    self.kept.pop(name, None)
                    self.dropped.discard(name)
                self.sink.claim(name)
            failpoint.hit("derived-prepared")
            for name in change.derived:
                self.sink.renew(name)
            failpoint.hit("derived-renewed")
            after = self._with(job, told | comes)
        else:
            after = self._with(job, {name: one for name, one in told.items() if name not in change.derived})
            if change.with_rows:
                gone = {name: encode(SinkTable(name, name, (), "{}", derived=True)) for name in change.derived}
                committed = replace(committed, dropping={**committed.dropping, **gone})
        promise = promised(recovered, committed, record.epoch, self.now, self.store.token)
        self.store.redefined(asked, record, after, recovered.control, committed, promise)
        self.seen[f"derived {asked.verb.value}"] += 1
        self.seen["derived replaced"] += bool(comes.keys() & told.keys())
        for name in change.derived if asked.verb is Verb.REMOVE else ():
            self.drifted.pop(name, None)
            if change.with_rows:
                self.dropped.add(name)
            elif name in self.sink.rows:
                self.kept[name] = dict(self.sink.rows[name])
        failpoint.hit("redefined")
        self._strays()

    def _judge(self) -> None:
        super()._judge()
        markers = self.sink.markers
        for one in self.store.definition.derived:
            reads = set(one.sql.split()[:2])
            if reads & self.wrong:
                self.drifted[one.name] = self.sink.fills[one.name]
            if self.drifted.get(one.name, -1) != self.sink.fills[one.name]:
                self.drifted.pop(one.name, None)
            marker = markers.get(one.name, Marker(0, 0, ""))
            if not marker.begun:
                assert one.name not in self.sink.rows, f"{one.name} is there, and was not filled"
            if not marker.epoch or one.name in self.drifted:
                continue
            assert self.sink.rows[one.name] == selected(self.sink.rows, one.sql), one
            held = {markers[t.name].epoch for t in self.store.definition.tables if t.name in reads}
            assert held <= {0, marker.epoch}, "at the commit of the tables that it reads"
            self.seen["derived held"] += 1

    def _finish(self) -> None:
        super()._finish()
        derived = self.store.definition.derived
        for one in derived:
            assert self.sink.markers[one.name].epoch, f"{one.name} was never filled"
        for one in derived[:1]:  # somebody drops it, and nothing of the upstream follows
            del self.sink.rows[one.name]
            self.sink.renew(one.name)
            fills = self.sink.fills[one.name]
            assert self._runner(2_000)
            self._judge()
            assert self.sink.fills[one.name] == fills + 1
            assert self.sink.markers[one.name].epoch
            self.seen["derived dropped"] += 1


def run_all(seeds: range) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        try:
            happened.update(DerivedSchedule(seed).run())
        except BaseException as exc:
            exc.add_note(f"replay: DerivedSchedule({seed}).run()")
            raise
    return happened


def test_a_derived_table_is_its_select_at_each_checkpoint_whatever_joins_leaves_and_dies() -> None:
    seen = run_all(range(SCHEDULES))
    for what in ("crash", "aside", "derived add", "derived replaced", "derived remove", "derived dropped"):
        assert seen[what] > 10, seen
    assert seen["derived held"] > 1_000, seen
