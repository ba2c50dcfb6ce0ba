"""Catalog, sink and staging of one job as a dead runner left them, and a new runner's recovery."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backfill_cli import failpoint
from backfill_cli.contracts import EpochCommit, SinkCapabilities, SinkTable, StagedEpoch
from backfill_cli.engine.loop.ports import Job
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.errors import Held
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Marker, Progress, Recovered
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import START, Position
from backfill_cli.model.split import SplitProgress, SplitStatus

TOKEN = 7
COMMITTED, PREPARED = 100, 200
BEGUN = SplitProgress(SplitStatus.CONSUMING, 5, 5, COMMITTED)
ENDED = SplitProgress(SplitStatus.CONSUMED, 9, 9, PREPARED)
READ = SnapshotRead("a", "0", 5, 9)

committed = Checkpoint(
    COMMITTED, 90, 6, "old", "{}", Phase.SNAPSHOT, START, {("a", "0"): BEGUN, ("b", "0"): BEGUN}
)
prepared = Checkpoint(
    PREPARED,
    COMMITTED,
    6,
    "new",
    '{"later": 1}',
    Phase.LOG_STORE,
    Position.of({"log": 3}),
    {("a", "0"): ENDED},
    EpochPlan(reads=(READ,), closes_snapshot=("a",), pending_after=4),
    Staged("new", {}, ((READ, 4),), 2),
    sink_schemas={"a": "wider"},
)


@dataclass
class World3:
    """Catalog, sink and staging of one job, as a dead runner left them: each table has its own marker."""

    tables: tuple[str, ...] = ("a", "b")
    side: tuple[str, ...] = ()
    markers: dict[str, Marker] = field(default_factory=dict)
    start: Recovered = field(default_factory=lambda: Recovered(Control(), committed, prepared, PREPARED))
    intact_files: bool = True
    trace: list[str] = field(default_factory=list)
    commits: list[EpochCommit] = field(default_factory=list)
    capabilities: SinkCapabilities = field(
        default_factory=lambda: SinkCapabilities(transactional=True, partial=True)
    )

    def recover(self) -> Recovered:
        tables = tuple(SinkTable(t, t, ("k",), "narrow", side=t in self.side) for t in self.tables)
        return recover(Job("j", TOKEN, tables, "{}"), self, self, self, 999)  # type: ignore[arg-type]

    # -- sink

    def fence(self, job: str, token: int) -> None:
        self.trace.append("fence")
        if any(m.token > token for m in self.markers.values()):
            raise Held("a newer runner has the job")
        self.markers = {t: replace(m, token=token) for t, m in self.markers.items()}

    def committed(self, job: str) -> Mapping[str, Marker]:
        self.trace.append("markers")
        return self.markers

    def prepare(self, job: str, tables: tuple[SinkTable, ...], into_existing: bool) -> None:
        self.trace.append(f"columns {tables[0].schema}")

    def commit(self, commit: EpochCommit) -> None:
        only = {table.name for table in commit.tables} if commit.only is None else commit.only
        self.trace.append(f"commit {', '.join(sorted(only))}")
        assert self.intact_files
        self.commits.append(commit)
        for table in sorted(only):
            self.markers[table] = Marker(commit.epoch, commit.token, commit.attempt)
            failpoint.hit(f"table {table}")

    # -- catalog

    def load(self) -> Recovered:
        self.trace.append("load")
        return self.start

    def mark(self, record: EpochRecord, progress: Progress | None) -> None:
        self.trace.append("mark")
        self.record = record
        done = self.start.prepared
        assert done is not None
        splits = {**self.start.committed.splits, **done.splits}
        now = replace(done, splits=splits, plan=None, staged=None)
        self.start = replace(self.start, committed=now, prepared=None)

    def unprepare(self, epoch: int) -> None:
        self.trace.append(f"unprepare {epoch}")
        self.start = replace(self.start, prepared=None)

    # -- staging

    def folder(self, epoch: int, attempt: str) -> str:
        return f"{epoch}-{attempt}"

    def intact(self, epoch: int, staged: Staged) -> bool:
        return self.intact_files

    def current_folder(self, epoch: int, staged: Staged) -> str:
        return f"{epoch}-{staged.attempt}/renamed"

    def discard(self, epoch: int, attempt: str) -> None:
        self.trace.append(f"discard {attempt}")

    def stage(self, *_: object) -> StagedEpoch:
        raise AssertionError("recovery reads nothing from the upstream")


def at(epoch: int, attempt: str = "old") -> Marker:
    return Marker(epoch, 6, attempt)


BEFORE, AFTER = at(COMMITTED), at(PREPARED, "new")


def left(a: Marker, b: Marker, **more: object) -> World3:
    return World3(markers={"a": a, "b": b}, **more)  # type: ignore[arg-type]


NOTHING_PREPARED = Recovered(Control("ann", 1, 5.0), committed, None, 150)
