"""A cutover as people see it: the state of each gate, what each name is now; or one JSON document."""

import sys
from collections.abc import Callable
from dataclasses import asdict, replace

from backfill_cli.catalog.moments import spell_moment
from backfill_cli.model.cutover import CutoverReport, Found, Gate, LiveName
from backfill_cli.view.console import RED, RESET, answer, answer_json, coloured, wrapped
from backfill_cli.view.model import SCHEMA

GREEN = "\x1b[32m"
NAMES = 21
"""As wide as the longest gate name, plus two spaces."""


def show_cutover(report: CutoverReport, typed: Callable[[str], str], as_json: bool) -> None:
    """Print it to stdout. typed: a hint, its commands as the user would type them."""
    report = replace(report, gates=tuple(replace(gate, fix=typed(gate.fix)) for gate in report.gates))
    if as_json:
        answer_json({"schema": SCHEMA, "open": report.open, "cut_over": report.is_cut_over, **asdict(report)})
        return
    for gate in report.gates:
        _show(gate)
    for name in report.names:
        answer(_name_text(name))
    for statement in report.by_hand if report.open else ():
        answer(f"        {statement}")
    answer(typed(_end_text(report)))


def _show(gate: Gate) -> None:
    word = "open    " if gate.open else "closed  "
    colour = GREEN if gate.open else RED
    print(f"{colour}{word}{RESET}" if coloured(sys.stdout) else word, end="")
    said = wrapped(f"{word}{gate.name:<{NAMES}}{gate.said}", len(word) + NAMES).removeprefix(word)
    answer(said + (f"\n        Try: {gate.fix}" if gate.fix else ""))


def _name_text(name: LiveName) -> str:
    if name.now.found is not Found.OURS:
        return f"{name.live}  is {name.now.found}"
    since = f" since {spell_moment(name.now.since_ms)}" if name.now.since_ms is not None else ""
    before = f"; what was there before is kept as {name.now.kept}" if name.now.kept else ""
    made = name.now.made or f"a view of {name.target}"
    return f"{name.live}  is {made}{since}{before}"


def _end_text(report: CutoverReport) -> str:
    job = report.job
    if report.by_hand:
        way = "run these statements where people's names are" if report.open else "nothing to run yet"
        return f"job {job}: {way}; the sink writes folders and cannot change names"
    if report.reversed:
        return f"job {job}: the cutover is reversed; its tables are kept, and the job continues"
    if report.changed:
        until = min(name.now.until_ms or 0 for name in report.names)
        reverse = f"backfill cutover {job} --reverse"
        return f"job {job}: cut over; can be reversed until {spell_moment(until)}: {reverse}"
    if report.is_cut_over:
        return f"job {job}: already cut over; nothing to do"
    return f"job {job}: not cut over; every gate is open" if report.open else f"job {job}: not cut over"
