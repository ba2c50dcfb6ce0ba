"""What every sink refuses, in the same words: a table that a job cannot have, rows, a marker that does not fit.

target, place: the table as the sink names it to people.
"""

import json
import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

from backfill_cli.contracts.sink import EpochCommit, SinkTable
from backfill_cli.errors import (
    RESTORE,
    START_OVER,
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
from backfill_cli.model.checkpoint import Marker, Owner

REPEAT = "correct what the message names, then repeat the command"
"""The hint where the sink's system refuses to rename or create something; nothing has changed."""
DEPENDENT = "drop what depends on it first, or omit --with-rows to keep the tables"
RENAME = in_config("rename it: tables.target, or the transform's select")
IF_BEGUN = "; if the job has already begun, then " + START_OVER
"""After a hint that names the transform, where a column can also be one that a job gains: its transform stays."""
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
        f"change the table's column {column!r}, or cast it to the table's type in the transform" + IF_BEGUN,
    )


def same_target(first: str, second: str, target: str) -> UsageError:
    return UsageError(
        f"tables {first!r} and {second!r} have the same target, {target}",
        in_config("give one of them another target: tables.target"),
    )


def gone(place: str, job: str, epoch: int | None = None) -> StateConflict:
    """epoch: the last one that the table held, where that is known."""
    until = "" if epoch is None else f" up to commit {epoch}"
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


def as_json(value: Any) -> str:
    """The beginning of a value, as its record has it and not as Python shows it; bytes in hexadecimal."""
    shown = f"\\x{value.hex()}" if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, default=str)
    return shown[:100]


def duplicate_keys(table: SinkTable, twice: Iterable[tuple[str, int]], where: str = "the snapshot") -> BadData:
    """twice: keys as text, each with its number of occurrences. where: which rows were checked."""
    named = "; ".join(f"({value}) {count} times" for value, count in twice)
    return BadData(
        f"table {table.name!r}: the key ({', '.join(table.key)}) is not unique in {where}: {named}",
        START_OVER + ", either with columns in the table's key that tell these rows apart, or with a `where` that "
        "excludes some of them",
    )


def no_row_to_fill(table: SinkTable, lacking: Iterable[Sequence[str]]) -> BadData:
    """A change leaves columns unchanged in a row that the sink does not have.

    lacking: for each such change as text: its key, the columns that it leaves, and the values of `table.place`.
    """
    named = "; ".join(_lacking(*one) for one in lacking)
    message = (
        f"table {table.name!r}: a change leaves columns unchanged, but {table.target} has no row with the key "
        f"({', '.join(table.key)}) that it applies to: {named}"
    )
    if table.place is None:
        return BadData(message, "rows were deleted from the sink: restore them, or " + START_OVER)
    return BadData(
        message,
        "the topic begins after the row's insert, or somebody deleted the row from the sink: insert it into "
        f"{table.target}, with the values that these columns have in the source, and resume the job; or "
        + START_OVER
        + ", with an export of the table as [upstream.snapshot] and the topic as [upstream.changes]",
    )


def _lacking(key: str, columns: str, *place: str) -> str:
    of = f" of the record at partition {place[0]}, offset {place[1]}" if place else ""
    return f"({key}){of}, without {columns}"


def is_due(commit: EpochCommit, table: str, marker: Marker | None, holder: str) -> bool:
    """Whether the epoch still has to be applied to this table; false for a repeat of the same attempt.

    holder: what holds the tables, for messages ("file"). Raises Held for an older token, StateConflict when the
    marker is not at the preceding epoch, or is missing: the job was dropped, or the holder replaced.
    """
    if marker is None:
        raise marker_gone(commit, table, holder)
    if (marker.epoch, marker.attempt) == (commit.epoch, commit.attempt):
        return False
    refuse_old_token(commit.job, table, commit.token, marker)
    if marker.epoch != commit.prev_epoch or marker.epoch >= commit.epoch:
        raise _restored(commit, table, marker, holder)
    return True


def refuse_old_token(job: str, table: str, token: int, marker: Marker) -> None:
    """Raises Held for a runner whose token is older than the marker's."""
    if marker.token > token:
        raise Held(
            f"job {job!r} was taken over by another runner, which has written to table {table!r}",
            command(f"status {job}"),
        )


def marker_gone(commit: EpochCommit, table: str, holder: str) -> StateConflict:
    """The error for a table that has no marker although the job continues."""
    return StateConflict(
        f"job {commit.job!r}: the sink has no record of commits to table {table!r}, but the catalog is at commit "
        f"{commit.prev_epoch}: the job was dropped from the sink, or its {holder} was deleted or replaced",
        RESTORE,
    )


def _restored(commit: EpochCommit, table: str, marker: Marker, holder: str) -> StateConflict:
    if marker.epoch == commit.epoch:
        what = f"holds another attempt of commit {marker.epoch} ({marker.attempt}, not {commit.attempt})"
    else:
        side = "the sink" if marker.epoch < commit.prev_epoch else "the catalog"
        what = (
            f"is at commit {marker.epoch}, the catalog goes from {commit.prev_epoch} to {commit.epoch}: {side} "
            f"was restored from an older copy, or its {holder} was replaced"
        )
    return StateConflict(
        f"job {commit.job!r}: table {table!r} of the sink {what}",
        "continue from what the sink holds: "
        + command(f"resume {commit.job} --from-sink job.toml")
        + "; or "
        + START_OVER,
    )


def other_target(name: str, refused: str = "") -> Hint:
    """Where the target of a derived table is taken. name: its own, and its target unless the config has one."""
    return in_config(f"name another target: derived.target = {in_toml(other_name(name, refused))}")


def other_name(name: str, refused: str = "") -> str:
    """`revenue_2`, or `"a b_2"` of a quoted one; `revenue_3` where what was refused is `revenue_2`, and so on."""
    stem, end = (name[:-1], '"') if name.endswith('"') else (name, "")
    last = re.escape(re.split(r'[."`]', stem)[-1])
    tried = re.search(rf'(?:^|[."`]){last}_([1-9][0-9]{{0,8}})["`]?$', refused, re.IGNORECASE)
    return f"{stem}_{int(tried[1]) + 1 if tried else 2}{end}"


def in_toml(text: str) -> str:
    """A basic string of TOML, for a hint: a literal one, in single quotes, ends at the text's own."""
    return json.dumps(text, ensure_ascii=False)
