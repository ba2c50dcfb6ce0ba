"""What one run did, printed at its end: five lines, or `run` in the JSON. The numbers come from the ledger."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backfill_cli.model.checkpoint import Totals
from backfill_cli.model.units import spell_duration
from backfill_cli.view.quarantine import spell_count, spell_quarantined


@dataclass(frozen=True, slots=True)
class Tally:
    """What was done, according to the ledger. quarantined: sink table → rows that could not be read."""

    totals: Totals = field(default_factory=Totals)
    quarantined: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows_written(self) -> int:
        """Rows written to the job's tables; quarantined rows are counted separately."""
        return self.totals.rows_written - self.rejected

    @property
    def rejected(self) -> int:
        return sum(self.quarantined.values())

    def since(self, before: "Tally") -> "Tally":
        more = {table: rows - before.quarantined.get(table, 0) for table, rows in self.quarantined.items()}
        return Tally(self.totals.since(before.totals), {table: rows for table, rows in more.items() if rows})


@dataclass(frozen=True, slots=True)
class RunView:
    """A run that has ended.

    run: what this run did. job: all that the catalog knows of the job, including earlier runs. seconds: from the
    command to the end, including Spark's start.
    """

    name: str
    run: Tally
    job: Tally
    seconds: float

    @property
    def rows_per_s(self) -> float | None:
        """Rows and changes read per second; None for a run that read none."""
        read = self.run.totals.snapshot_rows + self.run.totals.changes_read
        return read / self.seconds if read and self.seconds else None


def closing_lines(told: RunView) -> list[str]:
    """Rows, changes, rejected rows, time and commits, rate: for the run, and for the job where that is more."""

    def both(spell: Callable[[Tally], str]) -> str:
        run, job = spell(told.run), spell(told.job)
        return run if run == job else f"{run} (this run; all runs in the ledger: {job})"

    facts = {
        "rows": both(
            lambda one: f"{one.totals.snapshot_rows:,} read from the snapshot, {one.rows_written:,} written"
        ),
        "changes": both(lambda one: f"{one.totals.changes_read:,} read"),
        "rejected": both(lambda one: spell_quarantined(one.quarantined) or "none"),
        "time": f"{spell_duration(told.seconds)}, {both(lambda one: spell_count(one.totals.commits, 'commit'))}",
        "rows/s": _rate(told),
    }
    return [f"{(name + ':').ljust(9)} {said}" for name, said in facts.items()]


def _rate(told: RunView) -> str:
    if told.rows_per_s is None:
        return "N/A: nothing was read"
    rate = f"{told.rows_per_s:,.0f}" if told.rows_per_s >= 10 else f"{told.rows_per_s:.1f}"
    return (
        f"{'under 0.1' if rate == '0.0' else rate} rows and changes read per second, since the command was given"
    )


def run_json(told: RunView) -> dict[str, Any]:
    """The same for `--json`."""
    return {
        "job": told.name,
        **_numbers(told.run),
        "seconds": round(told.seconds, 3),
        "rows_per_s": None if told.rows_per_s is None else round(told.rows_per_s, 1),
        "all_runs": _numbers(told.job),
    }


def _numbers(tally: Tally) -> dict[str, Any]:
    totals = tally.totals
    return {
        "snapshot_rows": totals.snapshot_rows,
        "rows_written": tally.rows_written,
        "changes_read": totals.changes_read,
        "quarantined": dict(tally.quarantined),
        "commits": totals.commits,
    }
