"""A refill asked for: what can be said of it before anything is recorded; its end, if somebody waits for it."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from shlex import quote
from typing import TYPE_CHECKING, Any

from backfill_cli.catalog import Catalog, JobRow, wall_clock_ms
from backfill_cli.catalog.lease import actor
from backfill_cli.errors import BackfillError, Hint, StoppedEarly, UsageError, WaitTimedOut, command
from backfill_cli.model.aside import Standing
from backfill_cli.model.job import Verb
from backfill_cli.model.refill import Extent, Refill, RefillState
from backfill_cli.model.schema import columns_of, names_of, shown
from backfill_cli.model.units import nearest_first, spell_count, spell_duration, spell_known
from backfill_cli.model.verify import Asked

if TYPE_CHECKING:
    from backfill_cli.contracts import JobDefinition, SinkTable

POLL_S = 0.2


def _whole(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(_matched(r"[+-]?[0-9]+", text)[0])
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError
        return value

    return read


def _decimal(precision: int, scale: int) -> Callable[[str], Decimal]:
    """Refuses what would be rounded: another bound."""

    def read(text: str) -> Decimal:
        found = _matched(r"[+-]?0*([0-9]*)(?:\.([0-9]*?)0*)?", text)
        if len(found[1]) > precision - scale or len(found[2] or "") > scale:
            raise ValueError
        return Decimal(text)

    return read


def _date(text: str) -> date:
    return date.fromisoformat(_matched(_DAY, text)[0])


def _timestamp(zone: str) -> Callable[[str], datetime]:
    def read(text: str) -> datetime:
        return datetime.fromisoformat(_matched(f"{_DAY}(?:[ T]{_TIME}{zone})?", text)[0])

    return read


def _matched(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text)
    if found is None:
        raise ValueError
    return found


_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_TIMES = "'2026-01-01 00:00:00..2026-01-31 00:00:00'"

OF_TYPE: dict[str, tuple[Callable[[str], object], str]] = {
    "byte": (_whole(8), "1..100"),
    "short": (_whole(16), "1000..2000"),
    "integer": (_whole(32), "1000..2000"),
    "long": (_whole(64), "1000..2000"),
    "string": (str, "a..m"),
    "date": (_date, "2026-01-01..2026-01-31"),
    "timestamp": (_timestamp("(?:Z|[+-][0-9]{2}:[0-9]{2})?"), _TIMES),
    "timestamp_ntz": (_timestamp(""), _TIMES),
}
"""By type of the first key column: what reads a bound, of those that Spark's cast takes as they are, and bounds to
type."""


def refill(
    catalog: Catalog, row: JobRow, table: str | None, where: str | None, between: str | None
) -> tuple[Refill, int]:
    """The refill is recorded, and its command in the job's inbox. Returns it, and the command's id.

    between: `A..B`, bounds of the first key column, of which one can be left out. Raises UsageError for what
    cannot be refilled; then nothing has changed.
    """
    definition = catalog.definition(row.name)
    if table is not None and definition.standing(table) is Standing.ASIDE:
        return _put_back(catalog, row, definition, table, where, between)
    part = f" --where {quote(where)}" if where is not None else f" --range {quote(between)}" if between else ""
    found = _table(definition, table, part)
    found = _as_held(catalog, definition, found)
    extent = Extent((where or "").strip(), *_bounds(row.name, found, between))
    if where is not None:
        _require_condition(row.name, found, where)
    number, posted = catalog.refill(row.name, found.name, extent, actor(), wall_clock_ms(), row.lease)
    refilled = catalog.refills.of(row.name, number)
    assert refilled is not None
    return refilled, posted


def _put_back(
    catalog: Catalog, row: JobRow, definition: "JobDefinition", table: str, where: str | None, between: str | None
) -> tuple[Refill, int]:
    """The refill of all of a table that is set aside, and the command that puts it back first."""
    if where is not None or between is not None:
        option = "--where" if where is not None else "--range"
        raise UsageError(
            f"job {row.name!r}: table {table!r} is set aside, and all of it is put back: "
            f"{option} is of a part of it",
            command(f"refill {row.name} --table {quote(table)}"),
        )
    from backfill_cli.engine.job.aside import kept_of, read_anew

    (aside,) = [one for one in definition.aside if one.table == table]
    kept = kept_of(definition, table)
    # a topic goes on after the table's last commit: where its rows are right, it needs no comparison
    if definition.strategy != "source" or not aside.exact:
        whole = replace(definition, tables=(*definition.tables, *kept))
        _require_comparable(whole, table, read_anew(definition, table, kept))
    number, posted = catalog.put_back(row.name, table, actor(), wall_clock_ms(), row.lease)
    refilled = catalog.refills.of(row.name, number)
    assert refilled is not None
    return refilled, posted


def cancel(catalog: Catalog, row: JobRow, table: str | None) -> tuple[Refill, int]:
    """The pending refill of a table ends at the next barrier. Raises UsageError if there is none."""
    known = catalog.refills.pending(row.name)
    # of any table: also of one that the job no longer has
    definition = catalog.definition(row.name)
    left = table is not None and (
        definition.standing(table) is Standing.ASIDE or any(one.table == table for one in known)
    )
    name = table if left else _table(definition, table, " --cancel").name
    pending = [one for one in known if one.table == name]
    if not pending:
        raise UsageError(
            f"job {row.name!r}: no refill of table {name!r} is pending", command(f"status {row.name}")
        )
    (found,) = pending
    by, now_ms = actor(), wall_clock_ms()
    posted = catalog.post(row.name, Verb.CANCEL_REFILL, None, by, now_ms, row.lease, payload=str(found.id))
    return catalog.refills.of(row.name, found.id) or found, posted


def wait(catalog: Catalog, job: str, refill: Refill, limit_s: float) -> Refill:
    """The refill once it is done. Raises what `done` does, WaitTimedOut."""
    deadline = time.monotonic() + limit_s
    while (found := done(catalog, job, refill)) is None:
        if time.monotonic() > deadline:
            raise WaitTimedOut(
                f"job {job!r}: the refill of {refill} goes on: it was not done within {spell_duration(limit_s)}",
                command(f"status {job}"),
            )
        time.sleep(POLL_S)
    return found


def done(catalog: Catalog, job: str, refill: Refill) -> Refill | None:
    """The refill as it has ended; None while it has not.

    Raises what made it fail, StoppedEarly if it was cancelled.
    """
    now = catalog.refills.of(job, refill.id)
    if now is None or now.state is RefillState.CANCELLED:
        by = "" if now is None else f": {now.why.text}"
        known = catalog.definition(job)
        there = refill.table in {*(one.name for one in known.tables), *(one.table for one in known.aside)}
        again = command(f"refill {job} --table {quote(refill.table)}" if there else f"status {job}")
        raise StoppedEarly(f"job {job!r}: the refill of {refill} did not complete{by}", again)
    if now.state is RefillState.FAILED:
        raise BackfillError(f"job {job!r}: the refill of {refill} failed: {now.why.text}", now.why.hint)
    return now if now.state is RefillState.DONE else None


def compared(catalog: Catalog, row: JobRow, tables: Sequence[str], between: str) -> Asked:
    """The range of one table's keys that `verify` is to compare. Raises UsageError as `refill` does."""
    from backfill_cli.engine.verify.job import compared_of

    if len(tables) > 1:
        raise UsageError(
            f"--range is of one table, and --table names {', '.join(tables)}",
            command(f"verify {row.name} --table {quote(tables[0])} --range {quote(between)}"),
        )
    definition, _ = compared_of(catalog.definition(row.name), Asked(tuple(tables)))
    found = _table(definition, next(iter(tables), None), f" --range {quote(between)}", "verify")
    return Asked((found.name,), None, Extent("", *_bounds(row.name, found, between, "verify")))


def _table(definition: "JobDefinition", name: str | None, part: str = "", verb: str = "refill") -> "SinkTable":
    """part: the options that say which part of it, as they were typed."""
    known = {table.name: table for table in definition.tables if not table.side}
    again = f"{verb} {definition.name} --table"
    if name is None and len(known) > 1:
        raise UsageError(
            f"job {definition.name!r} has {spell_count(len(known), 'table')}: {', '.join(known)}",
            command(f"{again} {quote(next(iter(known)))}{part}"),
        )
    if name is not None and name not in known:
        raise UsageError(
            f"job {definition.name!r}: table {name!r} does not exist{spell_known(name, list(known))}",
            command(f"{again} {quote(nearest_first(name, list(known))[0])}{part}"),
        )
    return next(iter(known.values())) if name is None else known[name]


def _as_held(catalog: Catalog, definition: "JobDefinition", table: "SinkTable") -> "SinkTable":
    """The table with the columns that it has in the sink. Raises UsageError for a job that cannot be compared."""
    _require_comparable(definition, table.target)
    # From the catalog: the sink itself may be busy with a commit.
    return replace(table, schema=catalog.sink_schemas(definition.name).get(table.name, table.schema))


def _require_comparable(definition: "JobDefinition", target: str, way: Hint | None = None) -> None:
    """way: what to do instead, if there is more to say than for a table that is right."""
    from backfill_cli.config import from_stored
    from backfill_cli.engine.job.fixable import never
    from backfill_cli.engine.job.resources import Resources

    if (told := never(definition)) is not None:
        why, instead = told
        raise UsageError(f"job {definition.name!r}: no table of it can be refilled: {why}", way or instead)
    with Resources(from_stored(definition.config)) as resources:
        if resources.sink.extras.copied is None:
            raise UsageError(
                f"job {definition.name!r}: table {target!r} cannot be refilled: the sink cannot be read",
                way or "start another job, into another table: " + command("plan"),
            )


def _bounds(
    job: str, table: "SinkTable", between: str | None, verb: str = "refill"
) -> tuple[str | None, str | None]:
    """As Spark casts them. Raises UsageError for bounds that are not of the first key column's type."""
    if between is None:
        return None, None
    first, dots, last = between.partition("..")
    name = table.key[0]
    kind = columns_of(table.schema)[name]["type"]
    read, example = OF_TYPE.get(kind if isinstance(kind, str) else "", (None, ""))
    sized = re.fullmatch(r"decimal\(([0-9]+),([0-9]+)\)", str(kind))
    if read is None and sized is not None:
        precision, scale = int(sized[1]), int(sized[2])
        read, example = _decimal(precision, scale), "1..9" if precision > scale else "0..0"
    again = f"{verb} {job} --table {quote(table.name)}"
    if read is None:
        otherwise = again if verb == "verify" else f"{again} --where {quote(_is_set(name))}"
        raise UsageError(
            f"--range {between!r}: column {name!r}, the first of the key of table {table.name!r}, has the type "
            f"{shown(kind)}, which has no bounds",
            command(otherwise),
        )
    values: list[Any] = []
    wrong = "" if dots and (first or last) else between
    for bound in (first, last):
        try:
            values.append(read(bound) if bound else None)
        except (ValueError, InvalidOperation):
            wrong = wrong or bound
    if not wrong and not _in_order(*values):
        wrong = last
    if wrong:
        raise UsageError(
            f"--range {between!r}: expected A..B, A.. or ..B: values of column {name!r} ({shown(kind)}), the "
            f"smaller one first; found {wrong!r}",
            command(f"{again} --range {example}"),
        )
    low, high = (None if value is None else str(value) for value in values)
    return low, high


def _in_order(low: Any, high: Any) -> bool:
    try:
        return low is None or high is None or bool(low <= high)
    except TypeError:  # only one of two times has a zone
        return False


def _require_condition(job: str, table: "SinkTable", where: str) -> None:
    """Raises UsageError for what is not a condition on the table's columns."""
    from backfill_cli.config.transforms import condition_faults

    faults = condition_faults(where, names_of(table.schema))
    if faults:
        raise UsageError(
            f"--where {where!r}: {'; '.join(faults)}",
            command(f"refill {job} --table {quote(table.name)} --where {quote(_is_set(table.key[0]))}"),
        )


def _is_set(column: str) -> str:
    """A condition in Spark's SQL, whatever the column's name is."""
    return f"`{column.replace('`', '``')}` IS NOT NULL"
