"""What `verify` says, as text and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict

from backfill_cli.catalog.moments import spell_epoch
from backfill_cli.errors import VerifyMismatch
from backfill_cli.model.units import spell_duration
from backfill_cli.model.verify import DifferentRow, TableVerdict, VerifyReport
from backfill_cli.view.console import answer, answer_json
from backfill_cli.view.model import SCHEMA

INDEPENDENT_OF = (
    "independent of the staged files, the catalog's counts and how the sink applied them; not of how this version "
    "reads the upstream: a value that it misreads looks equal"
)

READ_BY_DUCKDB = (
    "the upstream was read by DuckDB; not independent of which files the job pinned, and of their schema"
)


def show_verify(report: VerifyReport, as_json: bool) -> None:
    """Print a verdict to stdout. Raises VerifyMismatch when a table differs."""
    if as_json:
        answer_json({"schema": SCHEMA, "equal": report.equal, **asdict(report)})
    else:
        answer(verify_text(report))
    if not report.equal:
        different = [table.target for table in report.tables if not table.equal]
        hint = (
            f"backfill wait {report.job} --for caught-up, then verify again: the sink is converging"
            if report.converging
            else f"backfill drop {report.job} --confirm {report.job}, then start into a new table"
        )
        raise VerifyMismatch(
            f"job {report.job!r}: {', '.join(different)} differs from its upstream at epoch {report.epoch}", hint
        )


def verify_text(report: VerifyReport) -> str:
    """A verdict in lines: the job, its tables, for each that differs the ranges and the first rows."""
    equal = "upstream and sink are equal" if report.equal else "upstream and sink differ"
    lines = [
        f"job {report.job}, epoch {spell_epoch(report.epoch)}: {equal} (took {spell_duration(report.seconds)})"
    ]
    for table in report.tables:
        lines += _table_lines(table)
        changed = report.not_compared.get(table.table, 0)
        if changed:
            lines.append(f"  {changed:,} of its keys changed upstream since then, and were not compared")
    lines.append(READ_BY_DUCKDB if report.independent else INDEPENDENT_OF)
    return "\n".join(lines)


def _table_lines(table: TableVerdict) -> Iterator[str]:
    name = table.table if table.table == table.target else f"{table.table} → {table.target}"
    if table.equal:
        yield f"table {name}: equal, {table.rows_upstream:,} rows"
        return
    yield f"table {name}: different, {table.rows_upstream:,} rows upstream, {table.rows_sink:,} in the sink"
    for part in table.different:
        counts = f"{part.rows_upstream:,} rows upstream, {part.rows_sink:,} in the sink"
        yield f"  {part.name}: {counts}; columns {', '.join(part.columns)}"
    for row in table.rows:
        yield f"  {_row(row)}"


def _row(row: DifferentRow) -> str:
    key = ", ".join(f"{column} = {_value(value)}" for column, value in row.key)
    upstream, sink = _value(row.upstream), _value(row.sink)
    if row.column is None:
        return f"{key}: {row.upstream} upstream, {row.sink} in the sink"
    return f"{key}: {row.column} is {upstream} upstream, {sink} in the sink"


def _value(value: str | None) -> str:
    return "NULL" if value is None else repr(value)
