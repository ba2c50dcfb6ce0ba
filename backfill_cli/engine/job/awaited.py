"""What a job is once the commands that wait to redefine it are taken: the next command follows them."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from backfill_cli.catalog import Catalog, waits_first
from backfill_cli.config import from_stored
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.aside import tables_of
from backfill_cli.engine.job.asked import config_after
from backfill_cli.engine.job.join import joined
from backfill_cli.engine.job.leave import having_left, without_aside
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import present
from backfill_cli.errors import BackfillError, SinkInUse, command
from backfill_cli.model.aside import Standing, with_sections
from backfill_cli.model.change import Change
from backfill_cli.model.job import REDEFINES, Verb


@dataclass(frozen=True, slots=True)
class Awaited:
    """job: once the commands are taken that wait to redefine it.

    stays: the sink's tables that leave it by these, keep their rows, and are not its again. goes: those that are
    dropped. left: those that leave it, also where they join again: what they have is not what they will have.
    """

    job: JobDefinition
    stays: frozenset[str] = frozenset()
    goes: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()

    @property
    def free(self) -> frozenset[str]:
        """The sink's tables that are not the job's then."""
        return self.stays | self.goes

    def schemas(self, catalog: Catalog) -> Mapping[str, str]:
        """What the sink's tables have by now, of those that do not join first."""
        had = {one.target for one in catalog.definition(self.job.name).tables} - self.left
        told = catalog.sink_schemas(self.job.name)
        return {one.name: told[one.name] for one in self.job.tables if one.target in had and one.name in told}

    def require_gone(self, target: str, add: str) -> None:
        """No rows of a table that leaves are in the target of one that joins.

        add: the command that takes them over. Raises SinkInUse.
        """
        if target in self.stays:
            raise SinkInUse(
                f"table {target} keeps its rows as it leaves job {self.job.name!r}, by a command that waits",
                "for what joins to be written over them: " + command(f"{add} --into-existing"),
            )


def as_asked(name: str, catalog: Catalog) -> Awaited:
    """The job as the next command finds it: that follows those which wait.

    Raises Held where one waits that no other one follows.
    """
    job, row = catalog.definition(name), catalog.job(name)
    found = Awaited(job)
    for one in row.waiting:
        if one.verb is Verb.PUT_BACK:
            raise waits_first(name, one, row.live)
        if one.verb in REDEFINES:
            with suppress(BackfillError):  # its barrier refuses it, too
                found = _taken(found, one.verb, Change.read(one.payload), catalog)
    return found


def _taken(before: Awaited, verb: Verb, change: Change, catalog: Catalog) -> Awaited:
    """The job once its barrier has taken this command. Raises what refuses it."""
    job = before.job
    after = _redefined(job, verb, change, catalog, before.free)
    had, has = _targets(job), _targets(after)
    stays, goes, gone = before.stays - has, before.goes, had - has
    left = before.left | gone
    return Awaited(after, *((stays, goes | gone) if change.with_rows else (stays | gone, goes)), left)


def _targets(job: JobDefinition) -> frozenset[str]:
    """Where the sink has its tables, also those that are set aside, and its derived tables."""
    return frozenset((*(one.target for one in tables_of(job)), *(one.target for one in job.derived)))


def _redefined(
    job: JobDefinition, verb: Verb, change: Change, catalog: Catalog, free: Collection[str]
) -> JobDefinition:
    """free: see `Awaited`."""
    file = change.file or job.config_file
    if verb is Verb.SET:
        config, sections = present(job, from_stored(change.config)).stored(), change.sections
        return replace(job, config=config, config_file=file, aside=with_sections(job.aside, sections))
    if verb is Verb.REMOVE and not change.derived and job.standing(change.table) is Standing.ASIDE:
        return without_aside(job, change.table)
    whole = config_after(job, change)
    if verb is Verb.REMOVE and not change.derived:
        return having_left(job, change.table, whole)
    if change.derived:
        return replace(job, config=whole.stored(), config_file=file)
    with (
        Resources(whole) as resources,
        Resources(whole.of_tables({change.table}), opening=resources.opening) as its,
    ):
        return joined(job, change, catalog, resources, its, try_it=True, free=free).definition
