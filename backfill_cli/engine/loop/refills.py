"""Refills beside the loop: a process compares, and what it found is applied at a barrier, over what changed since.

From before the comparison takes its copy of the sink, the change files of each commit are kept (as links, beside
the staging folders): what they say of a key that differs prevails over what the comparison found at an earlier
checkpoint. So the epoch makes the sink equal to the upstream at the position that it is at, and moves no position.

The comparison runs in a process of its own, as `verify` does: it cannot hold up a barrier or end the run, a pause
or a cancel ends it at once. After a crash it begins again, and what was applied no longer differs.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from shlex import quote
from typing import Protocol

from backfill_cli.cdc.net import net
from backfill_cli.contracts import JobDefinition, JobStore, SinkTable, own
from backfill_cli.engine.job.converging import converging
from backfill_cli.engine.loop.ports import RefillEpoch
from backfill_cli.engine.staging.files import folder_made, listed, sync, write_changes
from backfill_cli.engine.staging.scratch import sweep as sweep_copies
from backfill_cli.errors import RETRIED, BackfillError, Hint, Transient, command
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import Backoff
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.refill import Difference, Refill, RefillPart, RefillProgress, RefillState
from backfill_cli.model.schema import names_of
from backfill_cli.model.units import spell_number
from backfill_cli.spark.api import DataFrame, F, Session, SparkSession
from backfill_cli.spark.names import quoted

FOUND, ERROR, SAID = "found.json", "error.json", "said"
"""In a comparison's folder: what it found, why it failed, its stderr."""

RATE = "rate"
"""In its folder, too: the rows per second that it may read, as JSON. Without this file nothing limits it."""

FOLDERS = "refill-*"
PART_ROWS = 500_000
"""Rows of a difference that one epoch applies, at most: it is one commit of the sink."""

JAVA = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
"""What would make the comparison use this process's Java."""

ENDS_S = 10.0


@dataclass(frozen=True, slots=True)
class Kept:
    """What a commit changed in the table. files: inserts and changes, absolute."""

    epoch: int
    inserts: tuple[str, ...]
    changes: tuple[str, ...]
    partial: tuple[str, ...]
    truncated: bool
    schema: str


class Comparison(Protocol):
    """A comparison under way."""

    def ended(self) -> int | None:
        """Its exit code once it has ended."""
        ...

    def progress(self) -> Mapping[str, object] | None:
        """What it said last."""
        ...

    def kill(self) -> None:
        """It is gone, with all that it started."""
        ...


Compare = Callable[[Refill, Path], Comparison]
"""Begins one, whose folder exists."""


class NotPutBack(BackfillError):
    """The refill that was to put a table back has ended otherwise: the table is to be set aside again."""


class _Ahead:
    """The next part, staged in a thread as of the commits so far, so that the barrier has little left to do.

    base: the newest commit that it is over. done: called once it is, in another thread.
    """

    def __init__(self, base: int, make: Callable[[], StagedTable], done: Callable[[], None]) -> None:
        self.base, pool = base, ThreadPoolExecutor(1, "refill-ahead")
        self.made = pool.submit(make)
        self.made.add_done_callback(lambda _: done())
        pool.shutdown(wait=False)


@dataclass
class _Active:
    """The refill at work. kept: what was committed since before its comparison. applied: how many parts were.

    flies: the epoch of the part that is staged and not yet in the sink; None if there is none of this comparison.
    rate: rows per second that it may read now. limited: whether it began with a limit, and follows its changes.
    """

    refill: Refill
    folder: Path
    comparison: Comparison
    rate: float | None = None
    limited: bool = False
    kept: list[Kept] = field(default_factory=list)
    difference: Difference | None = None
    parts: int = 1
    applied: int = 0
    ahead: "_Ahead | None" = None
    flies: int | None = None

    def holds_at(self, applied: Position) -> bool:
        """Whether what was found is right in a sink that has all changes up to there."""
        return self.difference is not None and (self.difference.up_to is None or self.difference.up_to <= applied)


class Refills:
    """The refills of one job, one after the other: `ports.Refilling`.

    root: the job's staging folder. folder_of: of an epoch and an attempt. spooled: whether changes are in a spool.
    opening: see `Stager.awaited`. ring: wakes the loop.
    """

    def __init__(
        self,
        definition: JobDefinition,
        store: JobStore,
        root: Path,
        folder_of: Callable[[int, str], str],
        session: Session,
        compare: Compare,
        retry_limit_ms: int,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        spooled: Callable[[], bool] = lambda: False,
        opening: Callable[[], str | None] = lambda: None,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        self._definition, self._store, self._root, self._folder_of = definition, store, root, folder_of
        self._tables = {table.name: table for table in definition.tables}
        self._putting_back = {one.refill: one.table for one in definition.aside if one.refill is not None}
        self._session, self._compare, self._spooled, self._opening = session, compare, spooled, opening
        self._ring = ring
        self._retry_limit_ms, self._now_ms, self._steady_ms = retry_limit_ms, now_ms, steady_ms
        self._backoff = Backoff()
        self._active: _Active | None = None
        for folder in root.glob(FOLDERS):  # of a runner that died: what it had found no longer counts
            shutil.rmtree(folder, ignore_errors=True)
        self._pending = self._asked()

    # -- what the loop uses --------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    @property
    def filling(self) -> tuple[str, ...]:
        return tuple(one.table for one in self._pending if one.extent.whole)

    @property
    def putting_back(self) -> bool:
        return any(one.id in self._putting_back for one in self._pending)

    def progress(self) -> RefillProgress | None:
        active = self._active
        told = None if active is None or active.difference is not None else active.comparison.progress()
        if active is None or told is None:
            return None
        at = "" if active.rate is None else f", at most {spell_number(active.rate)} rows/s"
        share, left_s = told["share"], told["left_s"]
        return RefillProgress(active.refill.id, f"{told['doing']}{at}", share, left_s)  # type: ignore[arg-type]

    def told(self) -> None:
        """A barrier took a command about refills."""
        self._pending = self._asked()
        self._backoff = Backoff()
        pending = {one.id for one in self._pending}
        if self._active is not None and self._active.refill.id not in pending:
            self._leave()
        for refill in self._putting_back.keys() - pending:
            self._require_back(refill)

    def paced(self, control: Control) -> None:
        """The comparison reads at the rate in force. One that began without a limit begins again with it."""
        active = self._active
        if active is None or active.difference is not None:
            return
        rate = control.pace_of(active.refill.table)
        if rate is not None and not active.limited:
            self._leave()
        elif rate != active.rate:
            try:
                _write_rate(active.folder, rate)
            except OSError:  # no room: it begins again
                self._leave()
            active.rate = rate

    def ready(self, applied: Position) -> bool:
        """Whether the comparison has ended, or the next part was staged ahead, since `due` last looked."""
        active = self._active
        if active is None or active.flies is not None:
            return False
        if active.difference is None:
            return active.comparison.ended() is not None
        return active.holds_at(applied) and (active.ahead is None or active.ahead.made.done())

    def due(self, committed: Checkpoint, applied: Position, control: Control) -> bool:
        """Whether what was found is to be applied at this barrier; begins and ends comparisons. Called at each."""
        if not self._pending:
            return False
        refill = self._pending[0]
        why = self._waits_for(committed, control, refill.table)
        if why is not None:
            self._leave()
            self._note(replace(refill, state=RefillState.WAITING, why=why))
            return False
        if self._steady_ms() < self._backoff.until_ms:
            return False
        if self._active is None and self._opening() is None:  # what starts Spark changes the environment meanwhile
            self._begin(refill, control.pace_of(refill.table))
        if self._active is None:
            return False
        active = self._active
        if active.difference is None and not self._compared(active):
            return False
        return self._is_due(active, committed, applied)

    def stage(self, epoch: int, committed: Checkpoint) -> RefillEpoch | None:
        """The next part, durable in a folder of the epoch; None if it could not be, and is tried again later."""
        active = self._active
        assert active is not None
        attempt = uuid.uuid4().hex[:12]
        folder = Path(self._folder_of(epoch, attempt))
        with ThreadPoolExecutor(1, "refill") as pool:
            made = pool.submit(self._staged, active, folder)
            error = made.exception()
        if error is not None:
            shutil.rmtree(folder, ignore_errors=True)
            self._failed(active.refill, _ours(error))
            return None
        part, table = made.result()
        active.flies = epoch
        return RefillEpoch(part, Staged(attempt, {active.refill.table: table}))

    def keep(self, checkpoint: Checkpoint) -> None:
        """A commit is in the sink; its staged files are about to be removed."""
        active, part = self._active, None if checkpoint.plan is None else checkpoint.plan.refill
        if part is not None:
            if active is not None and active.flies == checkpoint.epoch:  # not of one that a pause or cancel ended
                active.applied, active.ahead, active.flies = active.applied + 1, None, None
            if part.last:  # the mark in the catalog says so, too
                self._pending = tuple(one for one in self._pending if one.id != part.refill)
                self._putting_back.pop(part.refill, None)
                if active is not None and active.refill.id == part.refill:
                    self._leave()
            return
        if active is None or checkpoint.staged is None:
            return
        name = active.refill.table
        table = checkpoint.staged.tables.get(name, StagedTable())
        schema = checkpoint.sink_schemas.get(name, self._tables[name].schema)
        if not (table.inserts or table.changes or table.truncated):
            return
        source = Path(self._folder_of(checkpoint.epoch, checkpoint.attempt))
        to = active.folder / "since" / f"{own.EPOCH}={checkpoint.epoch}"
        try:
            folder_made(to)
            inserts, changes = (
                tuple(_linked(source / file.path, to / f"{kind}-{at}.parquet") for at, file in enumerate(files))
                for kind, files in (("i", table.inserts), ("c", table.changes))
            )
        except (OSError, Transient) as exc:  # no room for copies: compared again, later
            self._failed(active.refill, _ours(exc))
            return
        active.kept.append(Kept(checkpoint.epoch, inserts, changes, table.partial, table.truncated, schema))

    def refused(self, error: BackfillError) -> None:
        """The sink refused a part for good; the epoch was taken back."""
        if self._active is not None and self._active.flies is not None:
            self._fail(self._active.refill, error)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Nothing of a refill goes on after the block; what is pending stays so."""
        try:
            yield
        finally:
            self._leave()

    def _asked(self) -> tuple[Refill, ...]:
        """Those that are pending, of tables that the job has."""
        return tuple(one for one in self._store.refills() if one.table in self._tables)

    # -- one refill ----------------------------------------------------------------------------------------------

    def _waits_for(self, committed: Checkpoint, control: Control, table: str) -> Limit | None:
        """Why nothing may be compared or applied now."""
        if control.paused:
            return Limit("the job is paused")
        if control.pace == 0:
            return Limit("the rate is 0", hint=command(f"throttle {self._definition.name} --rate none"))
        if control.pace_of(table) == 0:
            lift = command(f"throttle {self._definition.name} --table {quote(table)} --rate none")
            return Limit(f"the rate of table {table} is 0", hint=lift)
        if committed.phase == Phase.SNAPSHOT:
            return Limit("the snapshot comes first")
        if converging(self._definition, committed):
            return Limit("changes from the time of the copy come first")
        if self._spooled():
            return Limit("what is in the spool comes first")
        return None

    def _begin(self, refill: Refill, rate: float | None) -> None:
        folder = self._root / f"refill-{refill.id}-{uuid.uuid4().hex[:8]}"
        now = replace(refill, state=RefillState.COMPARING, began_ms=self._now_ms(), why=Limit(""))
        try:
            folder_made(folder)
            if rate is not None:
                _write_rate(folder, rate)
            comparison = self._compare(refill, folder)
        except (OSError, Transient) as exc:
            self._failed(refill, _ours(exc))
            return
        self._note(now)
        self._active = _Active(now, folder, comparison, rate=rate, limited=rate is not None)

    def _compared(self, active: _Active) -> bool:
        """Whether the comparison has ended well."""
        code = active.comparison.ended()
        if code is None:
            return False
        try:
            active.difference = decode(Difference, (active.folder / FOUND).read_text("utf-8"))
        except OSError:
            self._failed(active.refill, _error_of(active.folder, code))
            return False
        active.parts = max(1, -(-active.difference.rows // PART_ROWS))
        self._backoff = Backoff()
        return True

    def _is_due(self, active: _Active, committed: Checkpoint, applied: Position) -> bool:
        """Ends the refill where nothing is to be applied; begins again where the comparison no longer holds."""
        found, name = active.difference, active.refill.table
        assert found is not None
        if not active.holds_at(applied):
            return False
        later = [one for one in active.kept if one.epoch > found.epoch]
        if not found.rows or any(one.truncated for one in later):  # all rows are of changes since then
            why = Limit(f"not compared: {found.why}" if found.why else "")
            done = replace(active.refill, state=RefillState.DONE, ended_ms=self._now_ms(), why=why)
            self._note(done)
            self._putting_back.pop(done.id, None)
            self._end()
            return False
        schema = committed.sink_schemas.get(name, self._tables[name].schema)
        if schema != found.schema or any(one.schema != schema for one in later):
            self._leave()
            return False
        if active.refill.state is not RefillState.APPLYING:
            active.refill = replace(active.refill, state=RefillState.APPLYING)
            self._note(active.refill)
        if active.ahead is None:
            active.ahead = self._begun_ahead(active, found)
        if not active.ahead.made.done():
            return False
        error = active.ahead.made.exception()
        if error is not None:
            self._failed(active.refill, _ours(error))
        return error is None

    def _begun_ahead(self, active: _Active, found: Difference) -> _Ahead:
        later = tuple(one for one in active.kept if one.epoch > found.epoch)
        base = later[-1].epoch if later else found.epoch
        number, parts, folder = active.applied, active.parts, active.folder
        table = replace(self._tables[active.refill.table], schema=found.schema)

        def make() -> StagedTable:
            if parts == 1 and not later:
                return _as_found(found, folder)
            spark = self._session()
            rows = spark.read.parquet(*(str(folder / file) for file in found.files))
            if parts > 1:
                hashed = F.pmod(F.xxhash64(*map(quoted, table.key)), F.lit(parts))
                rows = rows.where(hashed == F.lit(number))
            return _written(spark, rows, later, table, folder / "ahead" / str(number), folder)

        return _Ahead(base, make, self._ring)

    def _staged(self, active: _Active, folder: Path) -> tuple[RefillPart, StagedTable]:
        """The part that was staged ahead, with what was committed since; links to its files if that is nothing."""
        found, ahead, name = active.difference, active.ahead, active.refill.table
        assert found is not None
        assert ahead is not None
        staged, last = ahead.made.result(), active.applied + 1 >= active.parts
        counts = (found.inserted, found.replaced, found.removed) if last else (0, 0, 0)
        part, later = RefillPart(active.refill.id, *counts, last), [k for k in active.kept if k.epoch > ahead.base]
        path = folder / name / "changes"
        if later:
            spark = self._session()
            rows = spark.read.parquet(*(str(active.folder / file.path) for file in staged.changes))
            table = replace(self._tables[name], schema=found.schema)
            written = _written(spark, rows, later, table, path, folder, staged.partial)
            sync(folder)
            return part, written
        folder_made(path)
        for at, file in enumerate(staged.changes):
            _linked(active.folder / file.path, path / f"{at}.parquet")
        sync(folder)
        return part, replace(staged, changes=listed(path, folder))

    def _failed(self, refill: Refill, error: BackfillError) -> None:
        """Tried again after a while, if the failure may pass and has not lasted too long."""
        self._leave()
        steady_ms = self._steady_ms()
        self._backoff = self._backoff.failed(steady_ms, Limit(error.message, hint=error.hint))
        if not isinstance(error, Transient) or self._backoff.spent(steady_ms, self._retry_limit_ms):
            self._fail(refill, error)
            return
        self._note(replace(refill, state=RefillState.WAITING, why=Limit(error.message, hint=error.hint)))

    def _fail(self, refill: Refill, error: BackfillError) -> None:
        self._leave()
        why = Limit(error.message, hint=error.hint)
        self._note(refill.given_up(self._definition.name, RefillState.FAILED, self._now_ms(), why))
        self._end()
        self._require_back(refill.id)

    def _require_back(self, refill: int) -> None:
        """Raises NotPutBack if this refill, which has ended otherwise, was to put a table back."""
        if refill in self._putting_back:
            table = self._putting_back[refill]
            raise NotPutBack(f"{table} was not put back").of(table)

    def _note(self, refill: Refill) -> None:
        """Recorded if it says something new."""
        if refill != self._pending[0]:
            self._store.note_refill(refill)
            self._pending = (refill, *self._pending[1:])

    def _end(self) -> None:
        """The first refill is over."""
        self._pending, self._backoff = self._pending[1:], Backoff()
        self._leave()

    def _leave(self) -> None:
        """The comparison and what it found are gone."""
        active, self._active = self._active, None
        if active is not None:
            active.comparison.kill()
            shutil.rmtree(active.folder, ignore_errors=True)
            sweep_copies(self._root)


def _as_found(found: Difference, folder: Path) -> StagedTable:
    """The difference as the comparison wrote it."""
    files = tuple(StagedFile(file, (folder / file).stat().st_size) for file in found.files)
    return StagedTable(changes=files, changed=found.inserted + found.replaced, deleted=found.removed)


def _written(
    spark: SparkSession,
    rows: DataFrame,
    later: Sequence[Kept],
    table: SinkTable,
    path: Path,
    folder: Path,
    lacking: Sequence[str] = (),
) -> StagedTable:
    """`overlaid` as files. lacking: columns that `rows` can leave out."""
    more = [column for one in later for column in one.partial]
    columns = tuple(dict.fromkeys((*lacking, *more)))
    done, _ = write_changes(overlaid(spark, rows, later, table, columns), path, folder)
    return replace(done, partial=columns)


def overlaid(
    spark: SparkSession, rows: DataFrame, later: Sequence[Kept], table: SinkTable, lacking: Sequence[str]
) -> DataFrame:
    """The difference as net changes at the newest commit: what `later` commits changed of its keys prevails.

    rows: `(own.OP, [own.UNSENT,] row…)`, unique by key. lacking: columns that a row here or there can leave out.
    """
    names = [quoted(name) for name in names_of(table.schema)]
    none = F.lit(None).cast("array<string>")

    def numbered(frame: DataFrame) -> DataFrame:
        if own.OP not in frame.columns:
            frame = frame.withColumn(own.OP, F.lit("U"))
        if lacking and own.UNSENT not in frame.columns:
            frame = frame.withColumn(own.UNSENT, none)
        carried = [F.col(own.UNSENT)] if lacking else []
        return frame.select(own.OP, F.col(own.EPOCH).cast("long").alias(own.SEQ), *carried, *names)

    first = numbered(rows.withColumn(own.EPOCH, F.lit(0)))
    # As few reads as there are forms of files, however many commits: each has its number in its folder's name.
    forms = (
        (file for one in later for file in one.inserts),
        (file for one in later for file in one.changes if one.partial),
        (file for one in later for file in one.changes if not one.partial),
    )
    read = [
        numbered(spark.read.option("basePath", str(Path(files[0]).parents[1])).parquet(*files))
        for files in map(tuple, forms)
        if files
    ]
    if not read:
        return first.drop(own.SEQ)
    keys = rows.select(*(quoted(name) for name in table.key))
    since = reduce(lambda some, more: some.unionByName(more), read).join(keys, list(table.key), "left_semi")
    return net(first.unionByName(since.select(*first.columns)), table.key, lacking)


def _write_rate(folder: Path, rate: float | None) -> None:
    """What is compared there may read this much from now on; None: no limit."""
    new = folder / f"{RATE}.new"
    new.write_text(json.dumps(rate), "utf-8")
    os.replace(new, folder / RATE)


def _linked(source: Path, to: Path) -> str:
    """The file under another name, which stays when the first is removed."""
    try:
        os.link(source, to)
    except OSError:  # a file system without links
        shutil.copyfile(source, to)
    return str(to)


def _error_of(folder: Path, code: int) -> BackfillError:
    """Why a comparison ended without a result."""
    lines: list[str] = []
    try:
        told = json.loads((folder / ERROR).read_text("utf-8"))
    except OSError:
        lines = (
            (folder / SAID).read_text("utf-8", "replace").strip().splitlines() if (folder / SAID).exists() else []
        )
        said = f": {lines[-1][:300]}" if lines else ""
        return Transient(f"the comparison ended with exit code {code}{said}", RETRIED)
    kind = Transient if told["transient"] else BackfillError
    return kind(told["message"], Hint.read(told["hint"]))


def _ours(exc: BaseException) -> BackfillError:
    if isinstance(exc, BackfillError):
        return exc
    last = (str(exc).strip().splitlines() or [""])[-1]
    return Transient(f"{type(exc).__name__}: {last}", RETRIED)


class Process:
    """A comparison in a process of its own: `Comparison`. ended: called when it has, in another thread."""

    def __init__(self, job: str, catalog: Path, refill: Refill, folder: Path, ended: Callable[[], None]) -> None:
        words = [job, str(catalog), refill.table, encode(refill.extent), str(folder)]
        with (folder / SAID).open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "backfill_cli.engine.refill.compare", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name not in JAVA},
            )
        self._said: Mapping[str, object] | None = None
        self._ended = ended
        self._thread = threading.Thread(target=self._listen, name="refill", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                self._said = json.loads(line)
        self._process.wait()
        self._ended()

    def ended(self) -> int | None:
        return self._process.poll()

    def progress(self) -> Mapping[str, object] | None:
        return self._said

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._thread.join(ENDS_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
