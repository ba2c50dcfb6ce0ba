"""Which catalog owns a job, according to its sink: checked before anything is claimed, fenced or changed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.lease import runs_at, this_host
from backfill_cli.contracts import JobDefinition, Sink, SinkTable
from backfill_cli.contracts.refusals import TargetTaken, forgetting
from backfill_cli.errors import (
    START_OVER,
    BackfillError,
    Held,
    NoSuchJob,
    StateConflict,
    Transient,
    command,
    start_over,
)
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, Owner
from backfill_cli.model.codec import decode


def require_ours(job: str, catalog: Catalog, sink: Sink) -> Owner | None:
    """The job's owner according to the sink: this catalog, or none. Raises Held if another catalog owns it."""
    held = sink.owner(job)
    if held is None or _is(held, catalog):
        return held
    raise _of_another(job, held, catalog, sink)


def require_new(job: str, catalog: Catalog, sink: Sink) -> Owner | None:
    """As `require_ours`, for a job that this catalog does not know: the sink must not hold an epoch of it either.

    Raises StateConflict if it does: this catalog was lost, or restored from an older copy.
    """
    held = require_ours(job, catalog, sink)
    epoch = max((marker.epoch for marker in sink.committed(job).values()), default=0)
    if epoch:
        raise StateConflict(
            f"the sink holds job {job!r} up to commit {epoch}, but catalog {catalog.path} does not know the job",
            "rebuild it from the sink: "
            + command(f"resume {job} --from-sink job.toml")
            + "; or "
            + start_over(job, "--sink job.toml", "--with-rows"),
        )
    return held


def require_kept(job: str, catalog: Catalog, sink: Sink) -> Owner | None:
    """As `require_ours`, for a job that this catalog knows: the sink must still hold what is committed.

    Raises StateConflict if it has no record of it: preparing the sink would create empty tables in its place.
    """
    held = require_ours(job, catalog, sink)
    epoch = catalog.epoch(job)
    if epoch and not sink.committed(job):
        raise StateConflict(
            f"the sink has no record of job {job!r}, but the catalog has its commit {epoch}: the sink "
            "was deleted, moved or replaced, or a drop was interrupted",
            "restore the sink, or move it back, or " + START_OVER,
        )
    return held


def require_lost(job: str, catalog: Catalog, sink: Sink) -> Owner | None:
    """The job's owner: none, this catalog, or one that is lost. Raises Held for a catalog that still exists.

    Whether a catalog on another machine is lost cannot be told from here: whoever claims its job asserts it.
    """
    held = sink.owner(job)
    if held is None or _is(held, catalog) or not _is_there(held, job, catalog):
        return held
    raise _of_another(job, held, catalog, sink)


@contextmanager
def owners_sought(catalog: Catalog) -> Iterator[None]:
    """The error for a target of another job says how to forget that job: by its catalog, if that still has it."""
    try:
        yield
    except TargetTaken as error:
        if error.owner is not None and _is_there(error.owner, error.job, catalog):
            raise Held(error.message, forgetting(error.job, error.owner.option)) from error.__cause__
        raise


def take(job: str, catalog: Catalog, sink: Sink, held: Owner | None) -> None:
    """Records this catalog as the job's owner in the sink. held: what a `require…` function above returned."""
    sink.own(job, catalog.made(), held)


def forget_strays(job: JobDefinition, committed: Checkpoint, sink: Sink, tell: Callable[[str], None]) -> None:
    """The sink knows no table of the job that the job has not: one that left it, perhaps before a crash.

    Those that are to be dropped are: a marker shows that one is not yet, and that nobody else can have it.
    One that cannot be is told, and stays.
    """
    known = {table.name for table in job.tables} | {derived.name for derived in job.derived}
    strays = sink.committed(job.name).keys() - known
    gone = [table for told in committed.dropping.values() if (table := decode(SinkTable, told)).name in strays]
    if gone:
        try:
            sink.drop(gone)
        except Transient:
            raise
        except BackfillError as error:
            targets = ", ".join(table.target for table in gone)
            tell(f"{targets} stays in the sink, as it could not be dropped: {error.message}")
        hit("left-tables-dropped")
    if strays:
        sink.leave(job.name, sorted(strays))


@contextmanager
def owning(job: str, catalog: Catalog, sink: Sink) -> Iterator[None]:
    """An error, Ctrl-C too, leaves no job in the sink that this catalog owns and does not have."""
    try:
        yield
    except BaseException:
        with suppress(BackfillError):
            held = sink.owner(job)
            if held is not None and _is(held, catalog):
                sink.forget(job)
        raise


def _is(held: Owner, catalog: Catalog) -> bool:
    ours = catalog.identity()
    return ours is not None and ours.catalog == held.catalog


def _of_another(job: str, held: Owner, ours: Catalog, sink: Sink) -> Held:
    """The error that names the catalog which owns the job, with the next steps that work."""
    message = f"job {job!r} belongs to another catalog: {held}"
    forget = "forget the job: " + command(f"drop {job} --sink job.toml --confirm {job}")
    lost = "take the job over: " + command(f"resume {job} --from-sink job.toml") + "; or " + forget
    if _is_there(held, job, ours):
        here = held.option
        return Held(
            message,
            "work with that catalog: "
            + command(f"status {job} {here}")
            + "; or forget the job: "
            + command(f"drop {job} --confirm {job} {here}"),
        )
    if sink.saved(job) is None:
        lost = forget
    if held.host != this_host():
        return Held(message, f"work on that host, with {held.option}; if that catalog is lost, " + lost)
    return Held(f"{message}, and that catalog is gone", "if it was moved, name it: --catalog FILE; or " + lost)


def _is_there(held: Owner, job: str, ours: Catalog) -> bool:
    """Whether that catalog is where the sink says, on this machine, and has the job, or its runner is alive."""
    if held.host != this_host():
        return False
    there = Catalog(Path(held.path))
    try:
        identity = there.identity()
        if identity is not None and identity.catalog == held.catalog:
            there.job(job)
            return True
    except NoSuchJob:
        return False
    except BackfillError:
        return True  # it cannot be read now, but it is not lost
    return there.path != ours.path and runs_at(there.path, job)


@contextmanager
def start_over_named(job: str, catalog: Catalog) -> Iterator[None]:
    """An error that only starting over corrects has the command for it in its hint, if there is a job to drop."""
    try:
        yield
    except BackfillError as error:
        with suppress(BackfillError):  # the catalog cannot be read: the hint is the one without a command
            if error.hint.starts_over:
                try:
                    error.naming(job, catalog.definition(job).has_tables_to_itself)
                except NoSuchJob:
                    error.without_job()
        raise
