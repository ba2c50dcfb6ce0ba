"""The errors for a table that a job cannot have as its target, the same for every sink.

target, place: the table as the sink names it to people.
"""

from collections.abc import Container

from backfill_cli.contracts.sink import SinkTable
from backfill_cli.errors import (
    RESTORE,
    BadData,
    Fatal,
    Held,
    Hint,
    SinkInUse,
    StateConflict,
    Transient,
    UsageError,
    command,
    in_config,
    retried,
    shell,
    start_over,
)
from backfill_cli.model.checkpoint import Owner

DEPENDENT = "drop what depends on it first, or omit --with-rows to keep the tables"
RENAME = in_config("rename it: tables.target, or the transform's select")
LESS_OFTEN = retried("let the table's other writers commit less often")


def require_key(table: SinkTable, columns: Container[str]) -> None:
    """Raises UsageError if a column of the key is not among the table's columns."""
    missing = [name for name in table.key if name not in columns]
    if missing:
        raise UsageError(
            f"table {table.name!r}: its key column {missing[0]!r} is not among its columns",
            f'add it to the transform: select = ["`{missing[0]}`", …]',
        )


def rows_of_others(target: str) -> SinkInUse:
    return SinkInUse(
        f"table {target} exists, with rows that are not this job's",
        "name another target; or drop that table if it is no longer needed; or keep its rows, including "
        "those that the upstream lacks, and write into it by key: "
        + command("start --config job.toml --into-existing"),
    )


def other_type(column: str, target: str, held: str, wanted: str) -> BadData:
    """held, wanted: types, in the sink's words."""
    return BadData(
        f"column {column!r} of {target} is {held}, the job writes {wanted}",
        f"cast it to the table's type in the transform, or change the table's column {column!r}",
    )


def same_target(first: str, second: str, target: str) -> UsageError:
    return UsageError(
        f"tables {first!r} and {second!r} have the same target, {target}",
        in_config("give one of them another target: tables.target"),
    )


def gone(place: str, job: str, epoch: int | None = None) -> StateConflict:
    """epoch: the last one that the table held, where that is known."""
    until = "" if epoch is None else f" up to epoch {epoch}"
    return StateConflict(
        f"{place} is gone, but it held rows of job {job!r}{until}",
        RESTORE,
    )


class TargetTaken(Held):
    """Another job has the target. owner: that job's catalog, if the sink recorded it."""

    def __init__(self, message: str, hint: Hint | str, job: str, owner: Owner | None) -> None:
        super().__init__(message, hint)
        self.job, self.owner = job, owner


def forgetting(job: str, where: str) -> Hint:
    """The hint where another job has the target. where: the option by which it is found."""
    return "name another target, or forget that job: " + command(f"drop {job} --confirm {job} {where}")


def belongs_to(target: str, job: str, table: str, owner: Owner | None, beside: str = "") -> TargetTaken:
    """job, table: who has the target. beside: ends the message. The hint is for a catalog that is lost."""
    return TargetTaken(
        f"{target} belongs to job {job!r} (its table {table!r}){f' of catalog {owner}' if owner else ''}{beside}",
        forgetting(job, "--sink job.toml"),
        job,
        owner,
    )


def taken(job: str, owner: Owner) -> Held:
    return Held(f"another catalog has just taken job {job!r}: {owner}", command(f"status {job} {owner.option}"))


def written_too_often(target: str, what: str) -> Transient:
    """what: the commit that did not succeed because of other writers' commits."""
    return Transient(f"{target}: other writers commit too often for {what}", LESS_OFTEN)


def no_record(job: str) -> StateConflict:
    """The sink has no state of a job that the catalog has."""
    return StateConflict(
        f"the sink has no record of job {job!r}: it was dropped there, or its folder was removed",
        "restore it, or " + start_over(job, "--without-sink"),
    )


def newer_layout(place: str, layout: int, ours: int) -> Fatal:
    """The job's state in the sink has a layout that this version does not know."""
    return Fatal(
        f"a newer backfill wrote {place} (layout {layout}; this one knows {ours})",
        shell("pip install --upgrade backfill-cli"),
    )
