"""Schedules over two lake tables: others write, and take the job over, in the middle of a commit."""

from backfill_cli.contracts import EpochCommit
from backfill_cli.engine.loop.orchestrator import Orchestrator
from backfill_cli.errors import BadData, Held, StateConflict, Transient
from backfill_cli.model.upstream import Pin

from .delta_tables import DeltaTables
from .iceberg_tables import IcebergTables
from .lake_tables import STRANGERS, LakeTables
from .schedule_kinds import SnapshotSchedule
from .two_tables import EVEN, ODD
from .world import Crash

MOST_FILES = 30
EXPIRED = "does not show whether commit"


class LakeSchedule(SnapshotSchedule):
    """A pinned snapshot, then a log, into tables of one format."""

    sink: LakeTables
    kind: type[LakeTables]
    taking, mine = False, 0
    writing = cleaning = 0.1  # how often others do between two steps of a commit

    def _world(self) -> Pin:
        pin = super()._world()
        self.sink = self.kind(self.stager, self.random)
        self.sink.meanwhile = self._between
        self.tables = self.stager.names = (EVEN, ODD)
        self.seen_then: dict[str, object] = {}
        commit = self.kind.commit

        def watched(asked: EpochCommit) -> None:
            """Once another runner has fenced a table a commit that is under way changes nothing more in it."""
            self.seen_then = {}
            try:
                commit(self.sink, asked)
            finally:
                now = self._fenced(self.store.token)
                assert self.seen_then.items() <= now.items(), "a runner that was taken over wrote"

        self.sink.commit = watched  # type: ignore[method-assign]
        return pin

    def _fenced(self, token: int) -> dict[str, object]:
        """The tables that have the token, each with the job's rows and its marker."""
        markers = self.sink.committed("j").items()
        return {name: (self.sink.of_job(name), marker) for name, marker in markers if marker.token == token}

    def _open(self) -> Orchestrator:
        if not self.taking:
            self.mine = self.store.token + 1
        return super()._open()

    def _runner(self, steps: int) -> bool:
        try:
            return super()._runner(steps)
        except Held:
            assert self.store.token > self.mine, "held, and nobody took over"
            self.seen["taken over in a commit"] += 1
            return False
        except StateConflict as refusal:
            self._restored(refusal)
            return False

    def _others_step(self) -> None:
        self.taking, before = True, self.taking
        try:
            super()._others_step()
        finally:
            self.taking = before

    def _between(self, table: str) -> None:
        if self.quiet:
            return
        if self.random.random() < self.writing:
            others = {key: value for key, value in self.sink.held(table).items() if key >= STRANGERS}
            self.sink.stranger(table)
            assert others.keys() <= self.sink.held(table).keys()
            self.seen["written by others"] += 1
        if self.random.random() < self.cleaning:
            self.sink.clean(table)
        if not self.taking and self.loop is not None and self.random.random() < 0.04:
            self._take_over()

    def _take_over(self) -> None:
        """Another host's runner begins while this one stands still: fences, keeps the promise, and dies."""
        self.taking = True
        try:
            self._open()
        except StateConflict as refusal:
            _expired(refusal)
            return  # it fenced nobody
        except (Crash, Transient, BadData):
            pass  # where others wrote all the time it has not fenced every table
        finally:
            self.taking = False
        self.seen_then = self._fenced(self.store.token)

    def _law(self) -> None:
        super()._law()
        saved = self.sink.saved("j")
        if saved is None:
            assert not self.sink.checkpoints
            return
        last = self.sink.checkpoints[-1]
        assert (saved.checkpoint.epoch, saved.checkpoint.state) == (last.epoch, last.state)
        assert saved.checkpoint.splits == self.sink.splits
        assert len(self.sink.files) < MOST_FILES

    def _checked(self) -> None:
        try:
            self.sink.committed("j")
        except StateConflict as refusal:
            self._restored(refusal)
        if not self.sink.half_way:
            super()._checked()

    def _agree(self) -> bool:
        try:
            return super()._agree()
        except StateConflict as refusal:
            _expired(refusal)
            return False

    def _says(self, said: str, why: str) -> bool:
        """A table that does not show its epoch is refused for that, whatever else is wrong."""
        return super()._says(said, why) or EXPIRED in said

    def _restored(self, refusal: StateConflict) -> None:
        """Somebody restores the table, as the refusal says."""
        _expired(refusal)
        self.seen["expired over a death"] += 1
        self.sink.restore()


def _expired(refusal: StateConflict) -> None:
    """Iceberg's snapshots went that would say whether a runner that died had committed; no other conflict."""
    if EXPIRED not in refusal.message:
        raise refusal


class DeltaSchedule(LakeSchedule):
    kind = DeltaTables


class IcebergSchedule(LakeSchedule):
    kind = IcebergTables


class BusySchedule(IcebergSchedule):
    """Others write and clean up so often that a runner may not get to fence a table in all its tries."""

    writing = cleaning = 0.5


class LivingSchedule(IcebergSchedule):
    """No runner dies, so the tables always show their epoch, however much others write and clean up."""

    writing = cleaning = 0.3

    def _maybe_crash(self, name: str) -> None: ...

    def _take_over(self) -> None: ...

    def _restored(self, refusal: StateConflict) -> None:
        raise refusal
