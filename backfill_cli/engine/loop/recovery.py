"""What a new runner does before its first barrier: fence, compare sink and catalog, keep the promise.

Also how a promise is withdrawn that the sink can never keep, here or in the loop. Every step can be killed and
repeated: fencing and committing are idempotent by token, epoch and attempt.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from backfill_cli.contracts import EpochCommit, JobStore, SavedJob, Sink, SinkTable, Stager
from backfill_cli.engine.loop.checkpoints import promised
from backfill_cli.engine.loop.ports import REFILLED, Job, commit_of, record_of
from backfill_cli.errors import START_OVER, BadData, Fatal, Hint, StateConflict, UsageError, command
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Marker, Recovered
from backfill_cli.model.committing import Committing
from backfill_cli.model.derived import Derived, Filling
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged


def recover(
    job: Job,
    store: JobStore,
    sink: Sink,
    stager: Stager,
    now_ms: int,
    mutations: str = "recovered",
    fill_rows: int | None = None,
    tell: Callable[[Committing], None] = lambda _at: None,
) -> Recovered:
    """Brings sink and catalog to the same epoch; returns what the loop starts with (nothing prepared).

    mutations: the ledger's entry for an epoch that was promised. fill_rows, tell: see `EpochCommit`. What waits to
    be filled is for the loop, but for what the promised commit fills in its transaction. Fences first, so that a
    commit of an older runner either is in the marker already or will never be. Raises StateConflict when one side
    was restored to an older point, or when staged files are damaged and only some tables have the epoch; Fatal
    when the sink can never take the promised epoch, which is withdrawn.
    """
    sink.fence(job.name, job.token)
    hit("recovery-fenced")
    start = store.load()
    markers = _markers(job, sink)
    prepared = start.prepared
    promise = None if prepared is None else (prepared.epoch, prepared.attempt)
    has = {name for name, marker in markers.items() if (marker.epoch, marker.attempt) == promise}
    late = tuple(t for t in _may_be_late(job, start.committed) if markers[t.name].epoch == 0)
    aside = has | {table.name for table in late}
    _require_agreement(job, {n: m for n, m in markers.items() if n not in aside}, start.committed.epoch)
    if late:
        _level(job, late, start.committed, sink)
    kept = start
    if prepared is not None:
        record = _record(job, prepared, now_ms, mutations)
        kept = _keep_promise(job, start, prepared, record, has, store, sink, stager, now_ms, fill_rows, tell)
    if kept.prepared is not None:
        record = _record(job, kept.prepared, now_ms, mutations)
        kept = _keep_promise(job, kept, kept.prepared, record, set(), store, sink, stager, now_ms, fill_rows, tell)
    if kept is not start:
        hit("recovery-done")
    return kept


def unfilled(job: Job, sink: Sink) -> tuple[str, ...]:
    """The derived tables that a later commit fills, by their markers."""
    markers = sink.committed(job.name) if job.derived else {}
    return tuple(one.name for one in job.derived if markers.get(one.name, Marker(0, 0, "")).epoch == 0)


def filling_of(job: Job, sink: Sink) -> Mapping[str, Filling]:
    """How far those of them are of which some ranges are filled."""
    derives = sink.extras.derives if job.derived else None
    return {} if derives is None else derives.filling(job.name)


def _markers(job: Job, sink: Sink) -> Mapping[str, Marker]:
    found = sink.committed(job.name)
    return {t.name: found.get(t.name, Marker(0, 0, "")) for t in job.tables}


def _may_be_late(job: Job, committed: Checkpoint) -> list[SinkTable]:
    """Tables that may have been created after the job's first commit: they never received a row."""
    return [
        t
        for t in job.tables
        if committed.epoch and (t.name in committed.joined or (t.side and t.target not in committed.quarantined))
    ]


def _level(job: Job, late: tuple[SinkTable, ...], committed: Checkpoint, sink: Sink) -> None:
    """New tables are at the committed epoch, like the job's other tables: they had no rows in it."""
    sink.prepare(job.name, late, into_existing=True)
    sink.commit(
        EpochCommit(
            job=job.name,
            epoch=committed.epoch,
            prev_epoch=0,
            token=job.token,
            attempt=committed.attempt,
            tables=late,
            folder="",
            staged=Staged(committed.attempt),
            unique=(),
            saved=SavedJob(job.definition, committed),
        )
    )
    hit("recovery-levelled")


def _keep_promise(
    job: Job,
    start: Recovered,
    prepared: Checkpoint,
    record: EpochRecord,
    has: set[str],
    store: JobStore,
    sink: Sink,
    stager: Stager,
    now_ms: int,
    fill_rows: int | None,
    tell: Callable[[Committing], None],
) -> Recovered:
    """Applies the prepared epoch again from the same files, to the tables that lack it.

    record: for the ledger. has: the tables that have it. What is prepared then tells the sink the definition.
    """
    lacks = {table.name for table in job.tables} - has
    assert prepared.staged is not None
    if lacks and not stager.intact(prepared.epoch, prepared.staged):
        return _drop(job, start, prepared, has, store)
    behind = [] if lacks else _behind(job, prepared, sink)
    if behind and not stager.intact(prepared.epoch, prepared.staged):
        assert sink.extras.derives is not None
        sink.extras.derives.renew(job.name, behind)  # what they would be computed from is gone: they are filled
        behind = []
    if lacks or behind:
        commit = commit_of(job, prepared, start.committed.epoch, stager, only=frozenset(lacks))
        commit = replace(commit, folder=stager.current_folder(prepared.epoch, prepared.staged))
        # where a fill is one SELECT, commands are to act before it
        fill_rows = fill_rows if sink.capabilities.transactional else 0
        commit = replace(commit, fill_rows=fill_rows, tell=tell)
        try:
            sink.prepare(job.name, commit.tables, into_existing=True)
            hit("recovery-before-commit")
            sink.commit(commit)
        except (Fatal, UsageError) as refusal:
            if take_back(job, store, sink, stager, prepared, refusal) or not isinstance(refusal, BadData):
                raise
            # a derived table cannot be computed: what corrects the rows can only follow
        hit("recovery-committed")
    splits = {**start.committed.splits, **prepared.splits}
    committed = replace(prepared, splits=splits, plan=None, staged=None)
    kept = replace(start, committed=committed, prepared=None, last_epoch=max(start.last_epoch, prepared.epoch))
    telling = _telling(job, kept, sink, now_ms)
    if telling is None:
        store.mark(record, None)
    else:
        store.prepare(telling, record, None)
        hit("recovery-tells")
    stager.discard(prepared.epoch, prepared.attempt)
    return replace(kept, prepared=telling)


def _behind(job: Job, prepared: Checkpoint, sink: Sink) -> list[Derived]:
    """Derived tables that lack the epoch which the tables have: where these share no transaction."""
    if not job.derived or sink.capabilities.transactional:
        return []
    markers, promise = sink.committed(job.name), (prepared.epoch, prepared.attempt)
    known = [(one, markers.get(one.name, Marker(0, 0, ""))) for one in job.derived]
    return [one for one, marker in known if marker.epoch and (marker.epoch, marker.attempt) != promise]


def _telling(job: Job, kept: Recovered, sink: Sink, now_ms: int) -> Checkpoint | None:
    """A commit without rows that follows, if the sink has the definition of before a table was set aside.

    It is kept with an epoch's first commit: one that was promised with that table may have been in the sink.
    """
    saved = sink.saved(job.name) if job.aside else None
    if saved is None or saved.definition == job.definition:
        return None
    return promised(kept, kept.committed, kept.last_epoch, now_ms, job.token)


def _drop(job: Job, start: Recovered, prepared: Checkpoint, has: set[str], store: JobStore) -> Recovered:
    """The staged files are damaged: plan again if no table has the epoch, otherwise stop."""
    if has:
        raise StateConflict(
            f"job {job.name!r}: commit {prepared.epoch} is in {', '.join(sorted(has))} but not in the other "
            "tables, and its staged files are damaged",
            "restore the staging folder, or " + START_OVER,
        )
    store.unprepare(prepared.epoch)
    return replace(start, prepared=None, last_epoch=max(start.last_epoch, prepared.epoch))


def _require_agreement(job: Job, markers: Mapping[str, Marker], committed: int) -> None:
    """Every marker is at the committed epoch; otherwise one side was restored."""
    for table, marker in sorted(markers.items()):
        if marker.epoch == committed:
            continue
        newer = marker.epoch > committed
        side = "sink is newer than the catalog" if newer else "sink is older than the catalog"
        rebuilt = "continue from what the sink holds: " + command(f"resume {job.name} --from-sink job.toml")
        raise StateConflict(
            f"job {job.name!r}, table {table!r}: the {side}: its last commit is {marker.epoch}, "
            f"the catalog's is {committed}; one of the two was restored",
            rebuilt + "; or " + START_OVER if marker.epoch else "restore the sink, or " + START_OVER,
        )


def _record(job: Job, prepared: Checkpoint, now_ms: int, mutations: str) -> EpochRecord:
    """The ledger's line for an epoch that recovery found or finished; durations are unknown."""
    assert prepared.plan is not None
    phase = Phase.SNAPSHOT if prepared.plan.reads else prepared.phase
    what = mutations if prepared.plan.refill is None else f"{REFILLED}, {mutations}"
    return record_of(prepared, job.tables, phase, now_ms, what)


def take_back(
    job: Job, store: JobStore, sink: Sink, stager: Stager, prepared: Checkpoint, refusal: Fatal | UsageError
) -> bool:
    """Withdraws the prepared epoch; the hint of `refusal`, which ends the run, then says how to continue.

    If the sink's hint is to start over, a resume would fail again. Returns False, and does nothing, after a
    StateConflict, where one side was restored, and where all tables have the epoch: what is refused is a derived
    table, and the tables go on without it. Raises BadData when some table has the epoch, Transient when sink or
    catalog cannot be read now.
    """
    if isinstance(refusal, StateConflict):
        return False
    promised = (prepared.epoch, prepared.attempt)
    has = [name for name, marker in _markers(job, sink).items() if (marker.epoch, marker.attempt) == promised]
    if len(has) == len(job.tables) and has:
        refusal.hint = refusal.way_on(job.name)
        return False
    if has:
        lacks = [table.name for table in job.tables if table.name not in has]
        stuck = BadData(
            f"{refusal.message}\ncommit {prepared.epoch} is in {', '.join(has)} but not in {', '.join(lacks)}, "
            "so it can be neither finished nor undone",
            START_OVER,
        )
        # without the table that refuses it, it can be finished
        stuck.table = refusal.table if refusal.table in lacks else None
        raise stuck from refusal
    store.unprepare(prepared.epoch)
    hit("promise-taken-back")
    stager.discard(prepared.epoch, prepared.attempt)
    refusal.hint = refusal.hint or Hint.of("fix the cause that the message names")
    refusal.hint = refusal.way_on(job.name)
    return True
