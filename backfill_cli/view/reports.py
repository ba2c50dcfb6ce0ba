"""The output of `plan`, `doctor`, `cutover`, `config show` and `history`, as text and as JSON."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backfill_cli.catalog import wall_clock_ms
from backfill_cli.errors import Hint, command
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.cutover import CutoverReport, Found, LiveName
from backfill_cli.model.reports import Check, PlannedTable, PlanReport, Status
from backfill_cli.model.units import (
    spell_clock,
    spell_count,
    spell_duration,
    spell_moment,
    spell_number,
    spell_size,
)
from backfill_cli.view.columns import column_lines, derived_lines
from backfill_cli.view.console import (
    RED,
    RESET,
    answer,
    answer_json,
    coloured,
    interactive,
    say,
    told_hint,
    wrapped,
)
from backfill_cli.view.model import (
    JobView,
    VerifiedView,
    spell_eta,
    spell_headroom,
    spell_planned,
    spell_skipped,
    spell_verified,
)


def show_plan(report: PlanReport, as_json: bool) -> None:
    """Print a plan to stdout."""
    if as_json:
        answer_json(report)
    else:
        answer(plan_text(report))


def plan_text(report: PlanReport) -> str:
    """A plan in lines: the job, the change log, its tables with their columns, refusals, warnings and notes.

    The last one says whether it can start, and what to type, if that is not to follow at once.
    """
    facts = [
        ("job", report.job),
        ("strategy", f"{report.strategy}: {report.why}"),
        ("change log", _change_log(report)),
        (
            "time",
            f"about {spell_eta(report.estimate_s)}, {report.estimated_by}"
            if report.estimate_s
            else f"N/A: {report.estimated_by}",
        ),
    ]
    if report.converging_until:
        until = f"{report.converging_until} of the change log; before, rows can be of different times"
        facts.append(("consistent", f"from {until}"))
    if report.retention:
        facts.append(("retention", f"the upstream must keep {report.retention}"))
    if report.deadline:
        facts.append(("finish by", spell_planned(report.deadline)))
    if report.headroom:
        facts.append(("headroom", spell_headroom(report.headroom, wall_clock_ms())))
    facts += [("guard", f"{guard.name}: {guard.said}") for guard in report.guards]
    if len(report.tables) > 1:
        holds = "hold" if report.constraints_hold else "do not hold"
        facts.append(("constraints", f"across tables {holds} at every commit: {report.constraints_why}"))
    lines = [wrapped(one, 2) for one in report.exists]
    lines += ["what follows is what a new job would do", ""] if report.exists else []
    lines += [wrapped(f"{name:<12}{value}", 12) for name, value in facts]
    for table in report.tables:
        lines += ["", *_table_lines(table, report.spell_amount([table]))]
    for table in report.side_tables:
        lines += ["", f"table {table.target}: for rows that cannot be read", *column_lines(table)]
    for derived in report.derived:
        lines += ["", *derived_lines(derived)]
    said = [f"start would refuse: {one}" for one in report.refused]
    said += [wrapped(f"warning: {one}", 9) for one in report.warnings]
    said += [wrapped(f"note: {one}", 6) for one in report.notes]
    if said:
        lines += ["", *said]
    if report.refused:
        lines += ["", spell_count(len(report.refused), "problem")]
    elif report.then:
        lines += ["", f"{'running already' if report.running else 'ready'}: {report.then}"]
    return "\n".join(lines)


def _change_log(report: PlanReport) -> str:
    if not report.follows:
        return "none: the config names no changes"
    if report.pending_epochs is None:
        return f"from {report.position}"
    size = f" ({spell_size(report.pending_bytes)})" if report.pending_bytes else ""  # a topic does not report it
    return f"from {report.position}; {spell_count(report.pending_epochs, 'upstream commit')} waiting{size}"


def _table_lines(table: PlannedTable, amount: str) -> list[str]:
    name = table.name if table.name == table.target else f"{table.name} → {table.target}"
    head = f"table {name}: {spell_count(table.splits, 'part')}, {amount}; key {', '.join(table.key)}"
    head += "" if table.rate is None else f"; at most {spell_number(table.rate)} rows/s"
    left = (
        ""
        if not table.left_out
        else f"  left out: {spell_count(table.left_out, 'column')} that no derived table uses"
    )
    return [head, *column_lines(table), *([left] if left else [])]


GREEN, YELLOW = "\x1b[32m", "\x1b[33m"
COLOURS = {Status.OK: GREEN, Status.WARNING: YELLOW, Status.FAILED: RED}
CHECKS = 16
"""As wide as the longest name of our own checks."""

GATES = 21
"""As wide as the longest gate name, plus two spaces."""


@dataclass(frozen=True, slots=True)
class Checks:
    """ok: whether none failed."""

    ok: bool
    checks: Sequence[Check]


def show_checks(checks: Iterable[Check], as_json: bool) -> bool:
    """Print the checks to stdout. Returns whether none failed."""
    found = []
    for check in checks:
        found.append(check)
        if not as_json:
            _lead(check.status.value, COLOURS[check.status])
            answer(check_text(check))
    well = all(check.status is not Status.FAILED for check in found)
    if as_json:
        answer_json(Checks(well, found))
        return well
    counts = {status: sum(check.status is status for check in found) for status in Status}
    say(", ".join(f"{count} {status}" for status, count in counts.items() if count))
    return well


def _lead(word: str, colour: str) -> str:
    """Print the first word of a line, in its colour; the rest may hold names from outside, and is text."""
    word = word.ljust(8)
    print(f"{colour}{word}{RESET}" if coloured(sys.stdout) else word, end="")
    return word


def check_text(check: Check) -> str:
    """What follows the status: the name and the finding, with the fix below, as in an error."""
    said = check.said.replace("\n", "\n  ")
    status = check.status.value.ljust(8)
    line = wrapped(f"{status}{check.name:<{CHECKS}}{said}", len(status) + CHECKS).removeprefix(status)
    return f"{line}\n        Try: {told_hint(check.fix, sys.stdout, len(status))}" if check.fix else line


def show_cutover(report: CutoverReport, typed: Callable[[Hint], Hint], as_json: bool) -> None:
    """Print it to stdout. typed: a hint, its commands as the user would type them."""
    report = replace(report, gates=tuple(replace(gate, fix=typed(gate.fix)) for gate in report.gates))
    if as_json:
        answer_json(report)
        return
    for gate in report.gates:
        word = _lead("open" if gate.open else "closed", GREEN if gate.open else RED)
        said = wrapped(f"{word}{gate.name:<{GATES}}{gate.said}", len(word) + GATES).removeprefix(word)
        answer(said + (f"\n        Try: {gate.fix}" if gate.fix else ""))
    for name in report.names:
        answer(_name_text(name))
    for statement in report.by_hand if report.open else ():
        answer(f"        {statement}")
    answer(str(typed(Hint.of(_end_text(report)))))


FOUND = {Found.NOTHING: "not there", Found.TABLE: "a table", Found.VIEW: "a view"}


def _name_text(name: LiveName) -> str:
    if name.now.found is not Found.OURS:
        return f"{name.live}  is {FOUND[name.now.found]}"
    since = f" since {spell_moment(name.now.since_ms)}" if name.now.since_ms is not None else ""
    before = f"; what was there before is kept as {name.now.kept}" if name.now.kept else ""
    made = name.now.made or f"a view of {name.target}"
    return f"{name.live}  is {made}{since}{before}"


def _end_text(report: CutoverReport) -> Hint | str:
    job = report.job
    if report.by_hand:
        way = "run these statements where people's names are" if report.open else "nothing to run yet"
        return f"job {job}: {way}; the sink writes folders and cannot change names"
    if report.reversed:
        return f"job {job}: the cutover is reversed; its tables are kept, and the job continues"
    if report.changed:
        until = min(name.now.until_ms or 0 for name in report.names)
        return f"job {job}: cut over; can be reversed until {spell_moment(until)}: " + command(
            f"cutover {job} --reverse"
        )
    if report.cut_over:
        return f"job {job}: already cut over; nothing to do"
    return f"job {job}: not cut over; every gate is open" if report.open else f"job {job}: not cut over"


SETTINGS = ("OPTION", "FROM", "VALUE")


def show_settings(rows: Sequence[tuple[str, str, Any]]) -> None:
    """(option, origin, value), columns aligned, the longest last; nothing is cut off."""
    told = [SETTINGS, *((option, origin, _value(value)) for option, origin, value in rows)]
    widths = [max(len(row[column]) for row in told) for column in range(2)]
    for option, origin, value in told:
        answer(f"{option:<{widths[0]}}  {origin:<{widths[1]}}  {value}".rstrip())


def _value(value: Any) -> str:
    """As JSON, which is nearly TOML; empty for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False)


HISTORY = (
    "TIME",
    "COMMIT",
    "PHASE",
    "ROWS",
    "CHANGES",
    "WRITTEN",
    "INSERTED",
    "UPSERTED",
    "DELETED",
    "STAGING",
    "SINK",
    "LAG",
    "PENDING",
    "COMMAND",
)
SPARED = ("INSERTED", "UPSERTED", "DELETED", "WRITTEN", "COMMIT", "PENDING", "STAGING", "SINK")
"""Left out in this order where a terminal is too narrow for the table."""


@dataclass(frozen=True, slots=True)
class History:
    """epochs: oldest first. verified: what the last verify found. skipped: see JobView."""

    job: str
    epochs: Sequence[EpochRecord]
    verified: VerifiedView | None
    skipped: Mapping[str, int]


def show_history(view: JobView, records: Sequence[EpochRecord], as_json: bool) -> None:
    """Print the epochs to stdout, oldest first, what was skipped, and what the last verify found."""
    job, found = view.name, view.verified
    if as_json:
        answer_json(History(job, records, found, view.skipped))
    elif records:
        said = f"\nskipped: {spell_skipped(view.skipped)}, since the job began" if view.skipped else ""
        said += "" if found is None else f"\nverified: {spell_verified(found)}"
        width = shutil.get_terminal_size().columns if interactive(sys.stdout) else None
        answer(history_table(records, wall_clock_ms(), width) + said)
    else:
        say(f"job {job}: nothing committed and no command given yet")


def history_table(records: Sequence[EpochRecord], now_ms: int, width: int | None = None) -> str:
    """A line per commit, columns aligned, numbers right-aligned. width: of the terminal, which it fits if it can;
    a last line names the columns that were left out."""
    rows = [HISTORY, *(history_row(one, now_ms) for one in records)]
    widest = {name: max(len(row[at]) for row in rows) for at, name in enumerate(HISTORY)}
    left_out: list[str] = []
    for name in SPARED:
        if width is None or sum(widest.values()) + 2 * (len(widest) - 1) <= width:
            break
        left_out.append(name)
        del widest[name]
    lines = [_aligned(dict(zip(HISTORY, row, strict=True)), widest) for row in rows]
    if left_out:
        lines.append(wrapped(f"left out, the terminal is too narrow: {', '.join(left_out)}", 2))
    return "\n".join(lines)


def _aligned(row: Mapping[str, str], widest: Mapping[str, int]) -> str:
    cells = (
        row[name].ljust(width) if name in ("TIME", "PHASE", "COMMAND") else row[name].rjust(width)
        for name, width in widest.items()
    )
    return "  ".join(cells).rstrip()


def history_row(record: EpochRecord, now_ms: int) -> tuple[str, ...]:
    return (
        spell_clock(record.committed_ms, now_ms),
        str(record.epoch),
        record.phase.value,
        f"{record.snapshot_rows:,}",
        f"{record.changes_read:,}",
        f"{record.rows_written:,}",
        *(
            "-" if rows is None else f"{rows:,}"
            for rows in (record.rows_inserted, record.rows_upserted, record.rows_deleted)
        ),
        spell_duration(record.stage_ms / 1000),
        spell_duration(record.commit_ms / 1000),
        "-" if record.lag_ms is None else spell_duration(record.lag_ms / 1000),
        f"{record.pending_epochs:,}",
        record.mutations or "-",
    )
