"""A refill's comparison, as a process: its arguments are job, catalog, table, extent (JSON) and folder.

It has a Spark of its own, as `verify` beside a runner has: nothing in the runner waits for it, it can be killed at
any moment, and what it found counts once `found.json` is in its folder. Its progress is JSON on stdout. It
ends with its runner, whose end closes its stdin.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote

from pyspark.sql import DataFrame

from backfill_cli.catalog import Catalog
from backfill_cli.contracts import JobDefinition, Partitions, SinkTable, Source
from backfill_cli.engine.job.aside import read_anew
from backfill_cli.engine.job.fixable import never
from backfill_cli.engine.job.ownership import start_over_named
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop.refills import ERROR, FOUND
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.files import sync
from backfill_cli.engine.staging.scratch import folder_of
from backfill_cli.engine.verify.expected import CurrentRows, Expected
from backfill_cli.engine.verify.extent import bounds, comparing, pushed
from backfill_cli.engine.verify.job import Verification, config_of, history_named, require_drained
from backfill_cli.engine.verify.pacing import Slices, pacing_of
from backfill_cli.engine.verify.progress import Steps
from backfill_cli.engine.verify.table import compare, write_difference
from backfill_cli.errors import BackfillError, HistoryGone, Transient, UsageError, command
from backfill_cli.failpoint import hit
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.refill import Difference, Extent
from backfill_cli.model.verify import Asked, VerifyProgress
from backfill_cli.spark.failures import cause_in

BEHIND = 5
"""How much less of a busy machine it gets than its runner, whose tables stay live."""

AS_THEY_WERE = "its rows are right if nobody else has written to it since it was set aside"


@dataclass
class _Taken:
    """What makes the table equal, written as it is found."""

    folder: Path
    found: Difference = field(default_factory=lambda: Difference(0, ""))

    def __call__(self, table: SinkTable, changes: DataFrame) -> None:
        rows = self.folder / "rows"
        staged, told = write_difference(changes, table, rows, self.folder)
        files = tuple(file.path for file in staged.changes)
        rows_of = told["inserted"], told["replaced"], told["removed"]
        self.found = Difference(0, table.schema, None, files, *rows_of)


def difference(job: str, catalog: Catalog, table: str, extent: Extent, folder: Path) -> Difference:
    """What makes a part of a table equal to its upstream, at the sink's checkpoint, in files below `folder`."""
    definition = catalog.definition(job)
    config = config_of(definition)
    (held,) = [one for one in definition.tables if one.name == table]
    exact = any(one.table == table and one.exact for one in definition.aside)
    key = config.table(table).key[0]
    config = config.limited(table, pushed(extent, held, key))
    with (
        history_named(job),
        start_over_named(job, catalog),
        Resources(config) as resources,
        Steps(job, _tell, time.monotonic) as steps,
        folder_of(Path(config.job.staging) / job) as scratch,
    ):
        asked = Asked((table,))
        if why := _incomparable(definition, resources):
            if exact:
                return Difference(0, held.schema, why=f"{why}; {AS_THEY_WERE}")
            raise UsageError(f"job {job!r}: table {table!r}: {why}", read_anew(definition, table, (held,)))
        how = compare if extent.whole else comparing(extent, scratch / "matching")
        require_drained(definition, catalog, live=True)
        try:
            verification = Verification.of(definition, config, resources, True, asked, steps)
        except HistoryGone as gone:
            return _done_without(gone, definition, held, exact, resources.upstream)
        verification = replace(verification, comparing=how)
        upstream, spark, taken = resources.upstream, resources.spark, _Taken(folder)
        log = upstream.capabilities.log
        pace = pacing_of(folder)
        splits = tuple(split for split in definition.pin.splits if split.table == table)
        slices = None if pace is None else Slices(splits, pace)
        now = CurrentRows(spark, upstream, config, scratch, True, (table,), as_read=True, slices=slices)
        only = bounds(extent, held, key)
        rows = Expected(spark, upstream, config, definition.pin, pace=pace, only=only) if log is None else now
        with explaining(upstream, config), nullcontext("") if log is None else log.retained() as held_up:
            steps.holds(held_up)
            try:
                with _condition_told(job, table, extent):
                    report = verification.against(rows, taken)
            except HistoryGone as gone:
                return _done_without(gone, definition, held, exact, upstream)
    (verdict,) = report.tables
    return replace(taken.found, epoch=report.epoch, compared=verdict.rows_sink, up_to=now.up_to)


def _done_without(
    gone: HistoryGone, job: JobDefinition, table: SinkTable, exact: bool, upstream: Source
) -> Difference:
    """Nothing differs of a topic, which was asked, as the table was put back, for what it lacks.

    Raises HistoryGone for any other: of files, some that came while the table was aside may have been removed.
    """
    if not exact:
        raise gone
    if not isinstance(upstream.capabilities.reads, Partitions):
        why = "; of what came while it was set aside some may be gone, too"
        raise HistoryGone(gone.message + why, read_anew(job, table.name, (table,))) from gone
    return Difference(0, table.schema, why=f"{gone.message}; {AS_THEY_WERE}")


def _incomparable(job: JobDefinition, resources: Resources) -> str:
    """Why no rows of the job can be compared; empty if they can be."""
    if (told := never(job)) is not None:
        return told[0]
    return "the sink cannot be read" if resources.sink.extras.copied is None else ""


@contextmanager
def _condition_told(job: str, table: str, extent: Extent) -> Iterator[None]:
    """A failure of the condition names it: it cannot be computed for a row, or is none for these columns."""
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except PySparkException as exc:
        of_data = (exc.getSqlState() or "").startswith("22") or isinstance(exc, AnalysisException)
        if not (extent.where and of_data):
            raise
        again = command(f"refill {job} --table {quote(table)} --where 'CONDITION'")
        raise UsageError(f"--where {extent.where!r}: {cause_in(str(exc))}", again) from exc


def _tell(said: VerifyProgress) -> None:
    told = {"doing": said.doing, "share": None if said.alone else said.share, "left_s": said.left_s}
    print(json.dumps(told), flush=True)


def _end_with_runner() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(words: Sequence[str]) -> int:
    job, catalog, table, extent, place = words
    threading.Thread(target=_end_with_runner, name="runner", daemon=True).start()
    folder = Path(place)
    os.nice(BEHIND)
    try:
        found = difference(job, Catalog(Path(catalog)), table, decode(Extent, extent), folder)
    except BackfillError as error:
        transient = isinstance(error, Transient)
        told = {"transient": transient, "message": error.message, "hint": asdict(error.naming(job, False).hint)}
        (folder / ERROR).write_text(json.dumps(told), "utf-8")
        return error.exit_code
    sync(folder)
    hit("refill-compared")
    (folder / f"{FOUND}.new").write_text(encode(found), "utf-8")
    os.replace(folder / f"{FOUND}.new", folder / FOUND)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
