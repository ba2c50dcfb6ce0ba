"""Tables that are set aside and put back, and refills: the catalog's part of it, and comparisons in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.loop.ports import NoRefills, RefillEpoch
from backfill_cli.engine.loop.refills import NotPutBack
from backfill_cli.errors import BackfillError
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord
from backfill_cli.model.job import Command, Control, JobState, Phase, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.refill import Extent, Refill, RefillPart, RefillState

from .memory_store import Leased
from .shop_world import Shop, ShopSink, ShopStager, ShopStore


@dataclass
class AsideStore(ShopStore):
    """asked: every refill that ever was, by its id."""

    refilled: dict[int, Refill] = field(default_factory=dict)

    def ask(self, table: str) -> int:
        number = len(self.refilled) + 1
        self.refilled[number] = Refill(number, table, Extent(), "sim", 0)
        return number

    def pending(self, table: str) -> list[Refill]:
        return [one for one in self.refilled.values() if one.table == table and one.pending]

    def refills(self) -> tuple[Refill, ...]:
        return tuple(one for one in self.refilled.values() if one.pending and one.since is not None)

    def note_refill(self, refill: Refill) -> None:
        if self.refilled[refill.id].pending:
            self._note(refill)

    def _note(self, refill: Refill) -> None:
        self.refilled[refill.id] = refill
        if refill.state is RefillState.DONE:
            left = tuple(one for one in self.definition.aside if one.refill != refill.id)
            self.definition = replace(self.definition, aside=left)

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        super().take(commands, control, state, record)
        for one in commands:
            if one.verb is Verb.REFILL:
                number = int(one.payload)
                self.refilled[number] = replace(self.refilled[number], since=record.epoch)
            elif one.verb is Verb.CANCEL_REFILL:
                self._end(int(one.payload), RefillState.CANCELLED)

    def _end(self, refill: int, state: RefillState) -> None:
        self.note_refill(self.refilled[refill].given_up("j", state, 0, Limit("ended")))

    def _mark(self, record: EpochRecord | None) -> None:
        plan = None if record is None or self.prepared is None else self.prepared.plan
        super()._mark(record)
        if plan is not None and plan.refill is not None and plan.refill.last:
            self._note(replace(self.refilled[plan.refill.refill], state=RefillState.DONE))

    def redefined(
        self,
        command: Command,
        record: EpochRecord,
        after: JobDefinition,
        control: Control,
        committed: Checkpoint,
        promise: Checkpoint | None,
    ) -> None:
        super().redefined(command, record, after, control, committed, promise)
        known = {*(table.name for table in after.tables), *(one.table for one in after.aside)}
        for one in self.refilled.values():
            if one.pending and one.table not in known:
                self._end(one.id, RefillState.CANCELLED)
        if (refill := Change.read(command.payload).refill) is not None:
            self.refilled[refill] = replace(self.refilled[refill], since=record.epoch)

    def refused(self, command: Command, record: EpochRecord) -> None:
        super().refused(command, record)
        if (refill := Change.read(command.payload).refill) is not None:
            self._end(refill, RefillState.FAILED)

    def set_aside(
        self, record: EpochRecord, after: JobDefinition, committed: Checkpoint, promise: Checkpoint | None
    ) -> None:
        assert record.epoch > self.last_epoch
        names = {table.name for table in after.tables}
        for one in self.refilled.values():
            if one.pending and one.table not in names and one.table in {aside.table for aside in after.aside}:
                self._end(one.id, RefillState.FAILED)
        self.definition, self.committed, self.prepared = after, committed, promise
        self.last_epoch = record.epoch if promise is None else max(record.epoch, promise.epoch)


class ShopRefills(NoRefills):
    """`ports.Refilling`: a comparison takes some barriers, and what is committed meanwhile prevails."""

    def __init__(
        self, shop: Shop, sink: ShopSink, store: Leased, stager: ShopStager, random: Random, job: JobDefinition
    ) -> None:
        self._shop, self._sink, self._store, self._stager, self._random = shop, sink, store, stager, random
        self._names = {table.name for table in job.tables}
        self._back = {one.refill: one.table for one in job.aside if one.refill is not None}
        self._asked = self._pending()
        self._found: tuple[int, dict[int, tuple[str, int]]] | None = None
        self._kept: dict[int, tuple[str, int]] = {}

    def _pending(self) -> list[Refill]:
        return [one for one in self._store.refills() if one.table in self._names]

    @property
    def pending(self) -> bool:  # type: ignore[override]
        return bool(self._asked)

    @property
    def filling(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(one.table for one in self._asked)

    @property
    def putting_back(self) -> bool:  # type: ignore[override]
        return any(one.id in self._back for one in self._asked)

    def told(self) -> None:
        first = self._asked[:1]
        self._asked = self._pending()
        if first != self._asked[:1]:
            self._found = None
        for refill in self._back.keys() - {one.id for one in self._asked}:
            self._require_back(refill)

    def _require_back(self, refill: int) -> None:
        if refill in self._back:
            table = self._back[refill]
            raise NotPutBack(f"{table} was not put back").of(table)

    def due(self, committed: Checkpoint, applied: Position, control: Control) -> bool:
        if not self._asked:
            return False
        refill = self._asked[0]
        if control.paused or committed.phase == Phase.SNAPSHOT:
            self._found = None
            return False
        if self._found is None:
            if self._random.random() < 0.5:
                at = self._sink.last or committed
                want = self._shop.at(refill.table, int(at.position.get(refill.table) or 0))
                held = self._sink.rows[refill.table]
                found = {key: ("U", value) for key, value in want.items() if held.get(key) != value}
                self._found = at.epoch, {**found, **dict.fromkeys(held.keys() - want.keys(), ("D", 0))}
                self._kept = {}
            elif not self._shop.calm and self._random.random() < 0.1:
                self._failed()
            return False
        if self._random.random() < 0.5:
            return False
        if not self._found[1]:
            self._store.note_refill(replace(refill, state=RefillState.DONE))
            self._back.pop(refill.id, None)
            self._asked, self._found = self._asked[1:], None
            return False
        return True

    def _failed(self) -> None:
        refill = self._asked[0]
        self._store.note_refill(refill.given_up("j", RefillState.FAILED, 0, Limit("it failed")))
        self._asked, self._found = self._asked[1:], None
        self._require_back(refill.id)

    def stage(self, epoch: int, committed: Checkpoint) -> RefillEpoch | None:
        assert self._found is not None
        refill, (_, found) = self._asked[0], self._found
        net = {key: self._kept.get(key, change) for key, change in found.items()}
        self._stager.made += 1
        attempt = f"r{self._stager.made}"
        self._stager.files[self._stager.folder(epoch, attempt)] = {refill.table: ({}, net)}  # type: ignore[assignment]
        staged = StagedTable((), (StagedFile("f", 1),), 0, len(net))
        return RefillEpoch(
            RefillPart(refill.id, len(net), 0, 0, last=True), Staged(attempt, {refill.table: staged})
        )

    def keep(self, checkpoint: Checkpoint) -> None:
        part = None if checkpoint.plan is None else checkpoint.plan.refill
        if part is not None:
            self._asked = [one for one in self._asked if one.id != part.refill]
            self._back.pop(part.refill, None)
            self._found = None
        elif self._found is not None and checkpoint.epoch > self._found[0]:
            folder = self._stager.folder(checkpoint.epoch, checkpoint.attempt)
            table = self._asked[0].table
            self._kept.update(self._stager.files.get(folder, {}).get(table, ({}, {}))[1])  # type: ignore[attr-defined]

    def refused(self, error: BackfillError) -> None:
        if self._found is not None:
            self._failed()
