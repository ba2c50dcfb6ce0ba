"""What a new runner does with catalog, markers and staging: rules of docs/design.md."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_world import World
from simulation.world import Crash

from backfill_cli import failpoint
from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.engine.loop.ports import Job, StagedEpoch
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.errors import Held, StateConflict, Transient
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Marker, Progress, Recovered
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged
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
    markers: dict[str, Marker] = field(default_factory=dict)
    start: Recovered = field(default_factory=lambda: Recovered(Control(), committed, prepared, PREPARED))
    intact_files: bool = True
    trace: list[str] = field(default_factory=list)
    commits: list[EpochCommit] = field(default_factory=list)
    transactional = False
    partial = False

    def recover(self) -> Recovered:
        tables = tuple(SinkTable(t, t, ("k",), "narrow") for t in self.tables)
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
        only = set(self.tables) if commit.only is None else commit.only
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


# -- fencing -----------------------------------------------------------------------------------------------------


def test_the_takeover_fences_before_it_reads_catalog_or_marker() -> None:
    world = left(BEFORE, BEFORE)
    world.recover()
    assert world.trace[:3] == ["fence", "load", "markers"]


def test_case_40_a_runner_with_an_older_token_reads_and_changes_nothing() -> None:
    world = left(BEFORE, replace(BEFORE, token=TOKEN + 1))
    with pytest.raises(Held):
        world.recover()
    assert world.trace == ["fence"]


def test_case_40_a_commit_of_the_runner_before_is_refused_and_it_never_marks_or_acknowledges() -> None:
    world = World(rows=100)
    world.step()
    old, late = world.loop, world.commits[-1]
    world.open()  # fences, and keeps the promise itself
    rows = dict(world.sink.rows)
    world.sink.marker = replace(world.sink.marker, attempt="another", epoch=0)  # not even if the epoch is open
    late.finish()
    world.seen()
    with pytest.raises(Held):
        old.step()
    assert world.sink.rows == rows
    assert world.seen() == []


# -- nothing prepared --------------------------------------------------------------------------------------------


def test_where_nothing_was_promised_markers_at_the_committed_epoch_are_all_it_needs() -> None:
    world = left(BEFORE, BEFORE, start=NOTHING_PREPARED)
    assert world.recover() == NOTHING_PREPARED
    assert world.trace == ["fence", "load", "markers"]


def test_a_new_job_has_no_marker_yet() -> None:
    fresh = Recovered(Control(), replace(committed, epoch=0), None, 0)
    assert World3(start=fresh).recover() == fresh


# -- a promise is kept -------------------------------------------------------------------------------------------


def test_case_37_a_prepared_epoch_is_applied_again_from_the_same_files() -> None:
    world = left(BEFORE, BEFORE)
    world.recover()
    (commit,) = world.commits
    assert (commit.epoch, commit.attempt, commit.folder) == (PREPARED, "new", "200-new")
    assert (commit.prev_epoch, commit.token) == (COMMITTED, TOKEN)
    assert commit.staged == prepared.staged
    assert commit.unique == ("a",)
    assert commit.saved.checkpoint == prepared
    assert world.trace[3:] == ["columns wider", "commit a, b", "mark", "discard new"]


def test_case_37_an_epoch_whose_reply_was_lost_is_only_marked() -> None:
    world = left(AFTER, AFTER)
    world.recover()
    assert world.trace[3:] == ["mark", "discard new"]


@pytest.mark.parametrize(("a", "b", "lacks"), [(AFTER, BEFORE, "b"), (BEFORE, AFTER, "a")])
def test_case_20_a_table_that_has_the_epoch_is_left_alone(a: Marker, b: Marker, lacks: str) -> None:
    world = left(a, b)
    world.recover()
    assert [c.only for c in world.commits] == [{lacks}]


def test_case_03_what_was_committed_before_stays_beside_what_the_epoch_changed() -> None:
    world = left(BEFORE, BEFORE)
    found = world.recover()
    assert found.prepared is None
    assert found.committed.splits == {("a", "0"): ENDED, ("b", "0"): BEGUN}
    assert (found.committed.epoch, found.committed.state) == (PREPARED, '{"later": 1}')
    assert (found.committed.plan, found.committed.staged) == (None, None)
    assert found.last_epoch == PREPARED


def test_the_ledger_has_the_recovered_epoch() -> None:
    world = left(BEFORE, BEFORE)
    world.recover()
    assert world.record == EpochRecord(
        PREPARED, COMMITTED, Phase.SNAPSHOT, 999, 4, 2, 0, pending_epochs=4, mutations="recovered"
    )


def test_the_ledger_counts_the_upstream_epochs_of_a_recovered_window() -> None:
    window = ChangeWindow(START, Position.of({"log": 3}), 0, 9, 3)
    logged = replace(prepared, plan=EpochPlan(window=window), splits={})
    world = left(AFTER, AFTER, start=Recovered(Control(), committed, logged, PREPARED))
    world.recover()
    assert (world.record.upstream_epochs, world.record.phase) == (3, Phase.LOG_STORE)


def test_control_and_numbers_that_barriers_without_rows_used_outlive_the_recovery() -> None:
    paused = Control("ann", 5, 3.0)
    found = left(BEFORE, BEFORE, start=Recovered(paused, committed, prepared, 250)).recover()
    assert (found.control, found.last_epoch) == (paused, 250)


# -- damaged staging ---------------------------------------------------------------------------------------------


def test_case_42_damaged_staging_that_no_table_has_is_dropped_and_its_number_not_used_again() -> None:
    world = left(BEFORE, BEFORE, intact_files=False)
    found = world.recover()
    assert world.trace[3:] == [f"unprepare {PREPARED}"]
    assert found == Recovered(Control(), committed, None, PREPARED)


def test_case_42_damaged_staging_that_some_tables_have_stops_the_job_naming_them() -> None:
    world = left(AFTER, BEFORE, intact_files=False)
    with pytest.raises(StateConflict, match="is in a but not") as caught:
        world.recover()
    assert "damaged" in caught.value.message
    assert "drop" in caught.value.hint
    assert world.trace[3:] == []


def test_staging_that_every_table_has_is_not_needed_any_more() -> None:
    world = left(AFTER, AFTER, intact_files=False)
    assert world.recover().committed.epoch == PREPARED


def test_case_42_after_damage_the_loop_plans_the_epoch_anew_under_a_greater_number() -> None:
    world = World(rows=10)
    world.step()
    dead = world.store.prepared
    assert dead is not None
    world.stager.files.clear()
    world.open()
    world.steps(2)
    assert world.store.committed.epoch > dead.epoch
    assert world.sink.rows == dict(world.upstream.splits[0])


# -- one side was restored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [NOTHING_PREPARED, Recovered(Control(), committed, prepared, PREPARED)])
@pytest.mark.parametrize(("epoch", "what"), [(300, "newer"), (150, "newer"), (99, "older"), (0, "older")], ids=str)
def test_case_36_a_side_that_was_restored_stops_the_job_and_says_which(
    start: Recovered, epoch: int, what: str
) -> None:
    world = left(BEFORE, at(epoch, "x"), start=start)
    with pytest.raises(StateConflict, match=f"table 'b': the sink is {what} than the catalog") as caught:
        world.recover()
    assert f"{epoch}" in caught.value.message
    assert f"{COMMITTED}" in caught.value.message
    assert ("--from-sink" in caught.value.hint) == bool(
        epoch
    )  # a sink without a marker keeps nothing to continue from
    assert "backfill drop j --with-rows --confirm j" in caught.value.hint
    assert world.trace == ["fence", "load", "markers"]


def test_case_36_a_sink_that_lost_its_marker_is_older() -> None:
    with pytest.raises(StateConflict, match="older"):
        World3(markers={"a": BEFORE}).recover()


def test_case_39_the_prepared_number_under_another_attempt_is_not_the_prepared_epoch() -> None:
    world = left(BEFORE, at(PREPARED, "stranger"))
    with pytest.raises(StateConflict, match="newer"):
        world.recover()
    assert world.commits == []


markers = st.sampled_from((None, at(0, ""), at(99), BEFORE, AFTER, at(PREPARED, "other"), at(300, "x")))


@given(markers, markers, st.booleans(), st.booleans())
def test_every_meeting_of_markers_and_promise_is_kept_dropped_or_refused(
    a: Marker | None, b: Marker | None, promised: bool, intact: bool
) -> None:
    start = Recovered(Control(), committed, prepared if promised else None, PREPARED)
    found = {t: m for t, m in (("a", a), ("b", b)) if m is not None}
    world = World3(markers=dict(found), start=start, intact_files=intact)
    has = {t for t, m in found.items() if promised and m == AFTER}
    agree = all(t in has or found.get(t) == BEFORE for t in "ab")
    if not agree or (has and len(has) < 2 and not intact):
        with pytest.raises(StateConflict):
            world.recover()
        assert world.trace == ["fence", "load", "markers"]
        return
    kept = world.recover().committed.epoch == PREPARED
    assert kept == (promised and (intact or len(has) == 2))
    assert {m.epoch for m in world.markers.values()} == {PREPARED if kept else COMMITTED}


# -- recovery dies too -------------------------------------------------------------------------------------------


@pytest.fixture
def dies_at() -> Iterator[list[str]]:
    names: list[str] = []

    def die(name: str) -> None:
        if name in names:
            names.remove(name)
            raise Crash(name)

    failpoint.handler = die
    yield names
    failpoint.handler = failpoint._kill_when_named


POINTS = (
    "recovery-fenced",
    "recovery-before-commit",
    "table a",
    "table b",
    "recovery-committed",
    "recovery-done",
)


@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
def test_case_20_a_recovery_that_dies_at_any_point_twice_still_ends_in_the_same_place(
    first: str, second: str, dies_at: list[str]
) -> None:
    calm = left(BEFORE, BEFORE)
    expected = calm.recover()
    world = left(BEFORE, BEFORE)
    dies_at += [first, second]
    for _ in range(3):
        try:
            found = world.recover()
            break
        except Crash:
            continue
    assert world.start.committed == calm.start.committed
    assert world.markers == calm.markers
    assert found.committed == expected.committed
    applied = [t for commit in world.commits for t in sorted(commit.only or ())]
    assert set(applied) == {"a", "b"}


def test_a_sink_that_is_busy_leaves_the_promise_for_the_next_try() -> None:
    world = World(rows=10)
    world.step()
    world.sink.failures = [Transient("held")]
    with pytest.raises(Transient):
        world.open()
    assert world.store.prepared is not None
    world.open()
    assert world.store.committed.attempt == "a1"
