"""An epoch between staging and mark: the checkpoint that a barrier commits, its line of the ledger, its commit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Generic

from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop.pace import Sizes
from backfill_cli.engine.loop.ports import Job, Ports, commit_of
from backfill_cli.engine.loop.recovery import filling_of, take_back, unfilled
from backfill_cli.errors import BadData, Fatal, UsageError
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord
from backfill_cli.model.committing import Committing
from backfill_cli.model.derived import Filling
from backfill_cli.model.job import Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.units import spell_count
from backfill_cli.strategies import S


@dataclass(frozen=True, slots=True)
class Epoch(Generic[S]):
    """state: the strategy's, once this is committed. barrier_ms: when its barrier was, by the steady clock.

    paced: whether a rate limited its reads of the snapshot. fills: it has no rows, and brings derived tables
    further.
    """

    checkpoint: Checkpoint
    plan: EpochPlan
    record: EpochRecord
    state: S
    barrier_ms: int
    paced: bool = False
    fills: bool = False


def quarantined(before: Mapping[str, int], tables: Iterable[SinkTable], staged: Staged) -> Mapping[str, int]:
    """Rows quarantined since the job began, by the sink's table: those `before`, plus those just staged."""
    counts = {t.target: staged.tables[t.name].rows for t in tables if t.side and t.name in staged.tables}
    if not counts:
        return before
    return {**before, **{target: before.get(target, 0) + rows for target, rows in counts.items()}}


def left_of(plan: EpochPlan, staged: Staged) -> EpochPlan:
    """The plan, with what is left pending when its window ended before its planned end."""
    if plan.window is None or staged.window is None or plan.window.up_to <= staged.window.up_to:
        return plan
    behind_ms = max(0, plan.window.up_to_ms - staged.window.up_to_ms)
    return replace(
        plan,
        pending_after=plan.pending_after + 1,
        lag_after_ms=plan.lag_after_ms + behind_ms,
        oldest_pending_ms=staged.window.up_to_ms,
    )


def spelled(plan: EpochPlan) -> str:
    """What staging the plan means, for display: `reading 8 parts of the snapshot and 3 upstream commits`."""
    parts = []
    if plan.reads:
        splits = len({(read.table, read.split) for read in plan.reads})
        parts.append(f"{spell_count(splits, 'part')} of the snapshot")
    if plan.window is not None:
        epochs = plan.window.epochs
        parts.append(spell_count(epochs, "upstream commit") if epochs else "the change log")
    return f"reading {' and '.join(parts)}" if parts else "advancing without rows"


def leaves_more(epoch: Epoch[S], sizes: Sizes) -> bool:
    """Whether the barrier after this epoch need not wait for the interval."""
    if epoch.state.phase == Phase.SNAPSHOT:
        return not epoch.paced or sizes.full(epoch.record.changes_read)
    return epoch.plan.pending_after > 0 or epoch.record.phase == Phase.SNAPSHOT


class Flight(Generic[S]):
    """epoch: prepared and not known to be committed, or None. commit_ms: how long the last commit took.

    unfilled: derived tables that a later commit fills, as of what the sink has; filling: how far those are of
    which some ranges are filled. kept_ms: by derived table, how long the last commit took to keep it. filled:
    which of them it has brought further. uncomputed: why those that are not filled wait for what corrects the rows
    that they read; None where they do not.
    """

    def __init__(
        self,
        job: Job,
        ports: Ports,
        sink_schemas: Mapping[str, str],
        unfilled: Sequence[str] = (),
        tried: Sequence[str] = (),
    ) -> None:
        """tried: those that an earlier run may have tried to fill."""
        self.unfilled = tuple(unfilled)
        self.filling: Mapping[str, Filling] = filling_of(job, ports.sink) if unfilled else {}
        self._fill_rows: int | None = None
        self._tell: Callable[[Committing], None] = lambda _at: None
        self._holds: Callable[[], bool] = lambda: False
        self._held = False
        self._tried = frozenset(tried)
        self.uncomputed: Limit | None = None
        self._job, self._ports = job, ports
        self._sink_schemas = sink_schemas
        self._widens = False  # whether the epoch adds columns to the sink
        self._before = 0  # the epoch that the sink holds
        self.epoch: Epoch[S] | None = None
        self.committing: Future[None] | None = None
        self.commit_ms = 0
        self.kept_ms: Mapping[str, int] = {}
        self.filled: Sequence[str] = ()
        self.begun_ms = 0  # by the steady clock

    def begin(
        self,
        epoch: Epoch[S],
        before: int,
        fill_rows: int | None,
        tell: Callable[[Committing], None],
        holds: Callable[[], bool],
    ) -> None:
        """Starts the flight of a prepared epoch; the sink commits it on top of epoch `before`.

        fill_rows, tell, holds: see `EpochCommit`.
        """
        self._fill_rows, self._tell, self._holds = fill_rows, tell, holds
        schemas = epoch.checkpoint.sink_schemas
        self._widens, self._sink_schemas = schemas != self._sink_schemas, schemas
        self._before, self.epoch, self.begun_ms = before, epoch, self._ports.steady_ms()

    @property
    def takes_ms(self) -> int:
        """How long a commit takes: the last one, or the one in progress if it has taken longer already."""
        lasting_ms = 0 if self.epoch is None else self._ports.steady_ms() - self.begun_ms
        return max(self.commit_ms, lasting_ms)

    @property
    def has_ended(self) -> bool:
        """Whether the commit has ended, well or not, and `landed` would tell."""
        return self.committing is not None and self.committing.done()

    def landed(self) -> Epoch[S] | None:
        """The epoch, once the sink has it. After a transient failure the next call starts the commit again.

        Raises what the commit raised; a Fatal error or UsageError only after the epoch was withdrawn. One of a
        refill ends only the refill.
        """
        epoch = self.epoch
        if epoch is None:
            return None
        if self.committing is None:
            self.committing = self._ports.commit(lambda: self._commit(epoch))
        if not self.committing.done():
            return None
        commit, self.committing = self.committing, None
        try:
            commit.result()
        except (Fatal, UsageError) as refusal:
            ports = self._ports
            withdrawn = take_back(self._job, ports.store, ports.sink, ports.stager, epoch.checkpoint, refusal)
            if epoch.fills and not withdrawn and isinstance(refusal, BadData) and self._was_told():
                self.epoch, why = None, Limit(refusal.message, hint=refusal.hint)
                ports.tell(why)  # that run can have ended before it was known
                self.uncomputed = None if self._held else why
                return epoch
            if epoch.plan.refill is None or not withdrawn:
                raise
            self.epoch = None
            ports.refills.refused(refusal)  # the job goes on without it
            return None
        self.epoch = None
        self.uncomputed = None
        return epoch

    def _was_told(self) -> bool:
        """Whether a run before this one may have ended with why these cannot be filled.

        The tables have the commit. What corrects these rows can only follow.
        """
        self._look()
        return self._tried.issuperset(self.unfilled)

    def _commit(self, epoch: Epoch[S]) -> None:
        """Runs in the background."""
        began_ms = self._ports.steady_ms()
        stager, fill_rows = self._ports.stager, self._fill_rows
        commit = commit_of(self._job, epoch.checkpoint, self._before, stager, fill_rows=fill_rows)
        self._held = False
        commit = replace(commit, tell=self._tell, holds=self._is_held)
        if self._widens:
            self._ports.sink.prepare(self._job.name, commit.tables, into_existing=True)
        hit("before-commit")
        self._ports.sink.commit(commit)
        hit("after-commit")
        derives = self._ports.sink.extras.derives if commit.derived else None
        self.kept_ms = {} if derives is None else derives.took_ms
        self._look()
        self.commit_ms = self._ports.steady_ms() - began_ms

    def _is_held(self) -> bool:
        """Noted: those that a commit was held from filling wait for no rows."""
        held = self._holds()
        self._held |= held
        return held

    def _look(self) -> None:
        """What the commit has filled, and what is left."""
        self.filled = ()
        if before := self.unfilled:
            how = self.filling
            self.unfilled = unfilled(self._job, self._ports.sink)
            self.filling = filling_of(self._job, self._ports.sink)
            further = {one for one in before if self.filling.get(one) != how.get(one)}
            self.filled = [one for one in before if one in further or one not in self.unfilled]
