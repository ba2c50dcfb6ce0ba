"""Rows that a job has written into its sink, by table and by the phase in which it did."""

from collections.abc import Mapping

from backfill_cli.model.job import Phase
from backfill_cli.model.plan import StagedTable

ByTable = Mapping[str, Mapping[str, int]]
"""table → phase → rows inserted, upserted and deleted."""


def written(before: ByTable, tables: Mapping[str, StagedTable], phase: Phase) -> ByTable:
    """The counts with these tables' rows."""
    rows = {name: one.rows + one.changed + one.deleted for name, one in tables.items()}
    more = {name: count for name, count in rows.items() if count}
    return {**before, **{name: _more(before.get(name, {}), phase, count) for name, count in more.items()}}


def _more(before: Mapping[str, int], phase: Phase, count: int) -> Mapping[str, int]:
    return {**before, phase.value: before.get(phase.value, 0) + count}
