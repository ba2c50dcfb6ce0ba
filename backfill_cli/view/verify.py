"""What `verify` does meanwhile, on stderr, and its result, as text and as JSON."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote

from backfill_cli.errors import Hint, VerifyMismatch, command
from backfill_cli.model.units import (
    spell_count,
    spell_duration,
    spell_epoch,
    spell_moment,
    spell_share,
    spell_so_far,
)
from backfill_cli.model.verify import DifferentRow, TableVerdict, VerifyProgress, VerifyReport, to_fix
from backfill_cli.view.console import CLEARED, LINE_S, answer, answer_json, interactive, say, shown_lines, wrapped
from backfill_cli.view.model import spell_not_compared

READ_AGAIN = (
    "the upstream was read again, as the job reads it: a value that backfill misreads is equal on both sides"
)

RANGES_SHOWN = 10  # of 64; JSON has them all

READ_BY_DUCKDB = "the upstream was read by DuckDB, not as the job reads it, in the job's files and by its schema"


def show_verify(report: VerifyReport, as_json: bool) -> None:
    """Print a verdict to stdout. Raises VerifyMismatch when a table differs."""
    if as_json:
        answer_json(report)
    else:
        answer(verify_text(report))
    if not report.equal:
        hint = (
            command(f"wait {report.job} --for caught-up") + ", then verify again: the sink is converging"
            if report.converging
            else fix_hint(report)
            or command(f"drop {report.job} --confirm {report.job}") + ", then start into a new table"
        )
        raise VerifyMismatch(f"job {report.job!r}: {_mismatch(report)} at commit {report.epoch}", hint)


def _mismatch(report: VerifyReport) -> str:
    """`a, b differ from their upstream, and c differs from its SELECT`."""
    said = []
    for derived, of in ((False, "upstream"), (True, "SELECT")):
        named = [table.target for table in report.tables if not table.equal and table.derived == derived]
        if named:
            differs = f"differs from its {of}" if len(named) == 1 else f"differ from their {of}{'s' * derived}"
            said.append(f"{', '.join(named)} {differs}")
    return ", and ".join(said)


def fix_hint(report: VerifyReport) -> Hint:
    """What to type to make the sink equal; empty if a fix would be refused."""
    if not report.fixable:
        return Hint()
    if report.keys:
        (table,) = report.tables
        return command(f"refill {report.job} --table {quote(table.table)} --range {quote(report.keys)}")
    only = "".join(f" --table {quote(table)}" for table in to_fix(report))
    fix = f"verify {report.job}{only} --fix"
    if report.fix is not None and report.fix.epoch is not None:
        return "another program writes to the sink: stop it, then " + command(fix)
    if report.fix is not None:
        return command(f"{fix} --confirm {report.job}")
    do = f"{fix} --confirm {report.job}"
    if report.live:
        return command(f"stop {report.job} --wait", do, f"resume {report.job}")
    return "to see what would make it equal: " + command(fix) + "; to do it: " + command(do)


def _headline(report: VerifyReport) -> str:
    """`upstream and sink are equal`; where derived tables alone differ, or were asked for, of these."""
    compared = [table for table in report.tables if table.filled]
    wrong = [table for table in compared if not table.equal]
    if not compared:
        return "nothing was compared"
    if wrong and not all(table.derived for table in wrong):
        return "upstream and sink differ"
    if not wrong and not all(table.derived for table in compared):
        return "upstream and sink are equal"
    told = wrong or compared
    if len(told) == 1:
        return f"derived table {told[0].table} {'differs from' if wrong else 'is equal to'} its SELECT"
    return f"{len(told)} derived tables {'differ from' if wrong else 'are equal to'} their SELECTs"


def verify_text(report: VerifyReport) -> str:
    """A verdict in lines: the job, its tables, and for each that differs, the ranges and the first rows."""
    part = "" if report.sample is None else f" in a sample of {spell_share(report.sample)} of the keys"
    part += f" in the keys {report.keys}" if report.keys else ""
    part += spell_not_compared(sum(report.not_compared.values()))
    took = spell_duration(report.seconds)
    lines = [f"job {report.job}, commit {spell_epoch(report.epoch)}: {_headline(report)}{part} (took {took})"]
    for table in report.tables:
        lines += _table_lines(table)
        if table.table in report.recalled:
            when = spell_moment(report.recalled[table.table])
            lines.append(f"  compared at {when} by an interrupted verify; the sink's file has not changed since")
        changed = report.not_compared.get(table.table, 0)
        if changed:
            lines.append(f"  {changed:,} of its keys have changed upstream since, and were not compared")
    if report.left_out:
        lines.append(f"not compared, because not requested: {', '.join(report.left_out)}")
    if report.aside:
        lines.append(f"not compared, because set aside or being put back: {', '.join(report.aside)}")
    if report.keys:
        lines.append("a range: keys outside it were not compared and may differ")
    if report.sample is not None:
        lines.append("a sample: keys outside it were not compared and may differ")
    if report.fix is not None:
        lines += _told_of(report)
    if any(not table.derived for table in report.tables):
        lines.append(wrapped(READ_BY_DUCKDB if report.independent else READ_AGAIN, 0))
    return "\n".join(lines)


def _told_of(report: VerifyReport) -> list[str]:
    assert report.fix is not None
    if not report.fix.tables:
        return ["nothing to fix"]
    if report.fix.epoch is not None:
        return fix_lines(report, f"was fixed, as commit {report.fix.epoch}")
    return [*fix_lines(report, "would be fixed"), "nothing was changed"]


def fix_lines(report: VerifyReport, what: str) -> list[str]:
    """A line for each table that a fix changes."""
    assert report.fix is not None
    return [
        f"table {one.target} {what}: filled anew, as somebody dropped it"
        if one.gone
        else f"table {one.target} {what}: {one.inserted:,} missing inserted, {one.replaced:,} changed replaced, "
        f"{one.removed:,} extra removed"
        for one in report.fix.tables
    ]


def _table_lines(table: TableVerdict) -> Iterator[str]:
    name = table.table if table.table == table.target else f"{table.table} → {table.target}"
    kind, to = ("derived table", " to its SELECT") if table.derived else ("table", "")
    if not table.filled:
        yield f"{kind} {name}: not filled yet, so it was not compared"
        return
    if table.equal:
        rows = spell_count(table.rows_upstream, "row") if table.derived else f"{table.rows_upstream:,} rows"
        yield f"{kind} {name}: equal{to}, {rows} compared"
        return
    if table.gone:
        rows = spell_count(table.rows_upstream, "row")
        yield f"{kind} {name}: gone: somebody has dropped its table; its SELECT has {rows}"
        return
    by = "by its SELECT" if table.derived else "upstream"
    held = "in the table" if table.derived else "in the sink"
    yield (
        f"{kind} {name}: different, {table.rows_upstream:,} rows {by}, {table.rows_sink:,} {held}: "
        f"{table.missing:,} missing, {table.extra:,} extra, {table.changed:,} changed"
    )
    for part in table.different[:RANGES_SHOWN]:
        counts = f"{part.rows_upstream:,} rows upstream, {part.rows_sink:,} in the sink"
        yield f"  {part.name}: {counts}" + (f"; columns {', '.join(part.columns)}" if part.columns else "")
    if len(table.different) > RANGES_SHOWN:
        yield f"  and {len(table.different) - RANGES_SHOWN} more ranges of {table.ranges}"
    # a row that is missing or extra has a line; one that is changed has one for each column
    shown = len({row.key for row in table.rows if row.column is not None})
    shown += sum(row.column is None for row in table.rows)
    if 0 < shown < table.missing + table.extra + table.changed:
        yield f"  the first {f'{shown:,} ' if shown > 1 else ''}of them:"
    for row in table.rows:
        yield f"  {_row(row, by, held)}"


def _row(row: DifferentRow, by: str, held: str) -> str:
    key = ", ".join(f"{column} = {_value(value)}" for column, value in row.key) or "its row"
    upstream, sink = _value(row.upstream), _value(row.sink)
    if row.column is None:
        return f"{key}: {row.upstream} {by}, {row.sink} {held}"
    return f"{key}: {row.column} is {upstream} {by}, {sink} {held}"


def _value(value: str | None) -> str:
    return "NULL" if value is None else repr(value)


def progress_text(at: VerifyProgress) -> str:
    """`orders: 42%, at least 3s left: comparing table orders`: what a narrow terminal cuts off comes last.

    At least: rows that differ are searched for again, and compared again after a fix. These steps report their
    own share, so that the share of the whole never goes back.
    """
    of = " of this step" if at.alone else ""
    told = [f"{min(at.share, 0.99) * 100:.0f}%{of}"] if at.share else []
    if at.left_s is not None and at.left_s >= 1:
        told.append(f"at least {spell_duration(at.left_s)} left")
    return ": ".join([at.job, *([", ".join(told)] if told else []), at.doing])


@contextmanager
def shown(now_s: Callable[[], float] = time.monotonic) -> Iterator[Callable[[VerifyProgress], None]]:
    """Yields the function that takes the progress, from several threads.

    On a terminal it is one line, overwritten each time, cut at the terminal's width and gone at the end; elsewhere
    a plain line when a new step begins, and every 10 s, with its time. What is held up stays on a line of its own;
    the lines that follow say how much is left. now_s: a monotonic clock.
    """
    drawn, turn = interactive(sys.stderr), threading.Lock()
    holds, doing, since_s, told_s = "", "", 0.0, 0.0

    def clear() -> None:
        if drawn:
            print(CLEARED, end="", file=sys.stderr, flush=True)

    def tell(at: VerifyProgress) -> None:
        nonlocal holds, doing, since_s, told_s
        with turn:
            if at.holds != holds:
                holds = at.holds
                clear()
                say(f"{at.job}: until this verify has ended (Ctrl-C ends it): {holds}")
            if drawn:
                width = shutil.get_terminal_size().columns - 1
                print(f"{CLEARED}{shown_lines(progress_text(at))[:width]}", end="", file=sys.stderr, flush=True)
            elif at.doing != doing or now_s() - told_s >= LINE_S:
                told_s = now_s()
                doing, since_s = at.doing, since_s if at.doing == doing else told_s
                say(spell_so_far(progress_text(at), told_s - since_s))

    try:
        yield tell
    finally:
        with turn:
            clear()


def tell_before(report: VerifyReport) -> None:
    """Print what is about to be changed."""
    if interactive(sys.stderr):
        print(CLEARED, end="", file=sys.stderr)
    for line in fix_lines(report, "is about to be fixed"):
        say(line)
