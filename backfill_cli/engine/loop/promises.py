"""Withdraws a prepared epoch that the sink can never take, so that fixing the cause and `resume` continue the job.

Used by the loop and by recovery, once a commit has failed for good. Every step can be killed and repeated: the
next recovery applies the epoch again, and the sink refuses it again.
"""

from dataclasses import dataclass

from backfill_cli.contracts import JobStore, Sink, Stager
from backfill_cli.engine.loop.ports import Job
from backfill_cli.errors import START_OVER, BadData, Fatal, Hint, StateConflict, UsageError
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Promises:
    """Where a prepared epoch is promised, staged and kept."""

    job: Job
    store: JobStore
    sink: Sink
    stager: Stager

    def take_back(self, prepared: Checkpoint, refusal: Fatal | UsageError) -> None:
        """Withdraws the prepared epoch; the hint of `refusal`, which ends the run, then says how to continue.

        If the sink's hint is to start over, a resume would fail again. Does nothing after a StateConflict, where
        one side was restored. Raises BadData when some table has the epoch, Transient when sink or catalog cannot
        be read now.
        """
        if isinstance(refusal, StateConflict):
            return
        has, lacks = self._tables(prepared)
        if has:
            raise BadData(
                f"{refusal.message}\nepoch {prepared.epoch} is in {', '.join(has)} but not in {', '.join(lacks)}, "
                "so it can be neither finished nor taken back",
                START_OVER,
            ) from refusal
        self.store.unprepare(prepared.epoch)
        hit("promise-taken-back")
        self.stager.discard(prepared.epoch, prepared.attempt)
        refusal.hint = refusal.hint or Hint.of("fix the cause that the message names")
        refusal.hint = refusal.way_on(self.job.name)

    def _tables(self, prepared: Checkpoint) -> tuple[list[str], list[str]]:
        """The tables that have the epoch, and those that lack it."""
        markers = self.sink.committed(self.job.name)
        promised = (prepared.epoch, prepared.attempt)
        has = {name for name, marker in markers.items() if (marker.epoch, marker.attempt) == promised}
        names = [table.name for table in self.job.tables]
        return [name for name in names if name in has], [name for name in names if name not in has]
