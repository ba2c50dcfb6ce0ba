"""The output of `plan`, as text and as JSON."""

from dataclasses import asdict

from backfill_cli.model.plan_report import PlannedTable, PlanReport
from backfill_cli.model.units import spell_size
from backfill_cli.view.console import answer, answer_json, wrapped
from backfill_cli.view.model import SCHEMA, spell_eta


def show_plan(report: PlanReport, as_json: bool) -> None:
    """Print a plan to stdout."""
    if as_json:
        answer_json({"schema": SCHEMA, **asdict(report)})
    else:
        answer(plan_text(report))


def plan_text(report: PlanReport) -> str:
    """A plan in lines: the job, the change log, its tables with their columns, refusals, warnings and notes."""
    facts = [
        ("job", report.job),
        ("strategy", f"{report.strategy}: {report.why}"),
        ("change log", _change_log(report)),
        (
            "time",
            f"about {spell_eta(report.estimate_s)}" if report.estimate_s else "N/A: number of rows not known",
        ),
    ]
    if report.converging_until:
        facts.append(("converging", f"until {report.converging_until}: the sink is consistent from there on"))
    if report.retention:
        facts.append(("retention", f"the upstream must keep {report.retention}"))
    if len(report.tables) > 1:
        holds = "hold" if report.constraints_hold else "do not hold"
        facts.append(("constraints", f"across tables {holds} at every checkpoint: {report.constraints_why}"))
    lines = [wrapped(f"{name:<12}{value}", 12) for name, value in facts]
    for table in report.tables:
        lines += ["", *_table_lines(table)]
    said = [f"start would refuse: {one}" for one in report.refused]
    said += [f"warning: {one}" for one in report.warnings] + [f"note: {one}" for one in report.notes]
    if said:
        lines += ["", *said]
    return "\n".join(lines)


def _change_log(report: PlanReport) -> str:
    if not report.follows:
        return "none: the config names no changes"
    if report.pending_epochs is None:
        return f"from {report.position}"
    size = f" ({spell_size(report.pending_bytes)})" if report.pending_bytes else ""  # a topic does not report it
    return f"from {report.position}; {_count(report.pending_epochs, 'upstream epoch')} waiting{size}"


def _table_lines(table: PlannedTable) -> list[str]:
    about = "about " if table.estimated else ""
    rows = "rows unknown until read" if table.rows is None else f"{about}{table.rows:,} rows"
    name = table.name if table.name == table.target else f"{table.name} → {table.target}"
    size = spell_size(table.size_bytes)
    head = f"table {name}: {_count(table.splits, 'split')}, {rows}, {size}; key {', '.join(table.key)}"
    width = max((len(column) for column, _ in table.columns), default=0)
    return [head, *(f"  {column:<{width}}  {kind}" for column, kind in table.columns)]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
