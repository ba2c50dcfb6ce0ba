"""The one prepared epoch that the sink is committing in the background, until the commit is known.

The loop prepares an epoch and lets it fly; at each step it checks whether it has landed.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Generic

from backfill_cli.engine.loop.epoch import Epoch
from backfill_cli.engine.loop.ports import Job, Ports, commit_of
from backfill_cli.engine.loop.promises import Promises
from backfill_cli.errors import Fatal, UsageError
from backfill_cli.failpoint import hit
from backfill_cli.strategies import S


class Flight(Generic[S]):
    """epoch: prepared and not known to be committed, or None. commit_ms: how long the last commit took."""

    def __init__(self, job: Job, ports: Ports, sink_schemas: Mapping[str, str]) -> None:
        self._job, self._ports = job, ports
        self._promises = Promises(job, ports.store, ports.sink, ports.stager)
        self._sink_schemas = sink_schemas
        self._widens = False  # whether the epoch adds columns to the sink
        self._before = 0  # the epoch that the sink holds
        self.epoch: Epoch[S] | None = None
        self.committing: Future[None] | None = None
        self.commit_ms = 0
        self.begun_ms = 0  # by the steady clock

    def begin(self, epoch: Epoch[S], before: int) -> None:
        """Starts the flight of a prepared epoch; the sink commits it on top of epoch `before`."""
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

        Raises what the commit raised; a Fatal error or UsageError only after the epoch was withdrawn.
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
            self._promises.take_back(epoch.checkpoint, refusal)
            raise
        self.epoch = None
        return epoch

    def _commit(self, epoch: Epoch[S]) -> None:
        """Runs in the background."""
        began_ms = self._ports.steady_ms()
        commit = commit_of(self._job, epoch.checkpoint, self._before, self._ports.stager)
        if self._widens:
            self._ports.sink.prepare(self._job.name, commit.tables, into_existing=True)
        hit("before-commit")
        self._ports.sink.commit(commit)
        hit("after-commit")
        self.commit_ms = self._ports.steady_ms() - began_ms
