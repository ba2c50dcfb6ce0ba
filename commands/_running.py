"""A job run in the foreground: shown while it runs, told what came of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.view.console import answer_json
from backfill_cli.view.live import Viewer, following
from backfill_cli.view.model import as_json as to_json
from backfill_cli.view.read import read_jobs

from ._detached import bounded_log

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.job import JobState


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where a run's metrics go: --metrics-file, --metrics-port; None for nowhere."""

    file: str | None
    port: str | None

    @property
    def words(self) -> list[str]:
        """As they are typed."""
        return [
            *(() if self.file is None else ("--metrics-file", str(Path(self.file).resolve()))),
            *(() if self.port is None else ("--metrics-port", self.port)),
        ]

    def kept(self, name: str, catalog: "Catalog") -> AbstractContextManager[None]:
        """They are there meanwhile. Raises UsageError where they cannot be, Held while a runner has the job."""
        if self.file is None and self.port is None:
            return nullcontext()
        from backfill_cli.view.metrics import measured

        if catalog.path.exists():
            catalog.lock_job(name).release()  # a runner that has the job has the port, too
        return measured(lambda: (read_jobs(catalog, name)[0], catalog.totals(name)), self.file, self.port)


def run_shown(
    name: str, catalog: "Catalog", as_json: bool, metrics: Metrics, run: "Callable[[Viewer], JobState]"
) -> None:
    """Run a job to its end with a view of it on stderr; the error that ends it passes through."""
    watched = following(name, lambda: read_jobs(catalog, name))
    with metrics.kept(name, catalog), bounded_log(), watched as viewer:
        run(viewer)
    if as_json:
        answer_json(to_json(read_jobs(catalog, name)))
