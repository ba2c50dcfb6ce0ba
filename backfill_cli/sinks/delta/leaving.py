"""Which tables can be deleted when a job's tables are dropped: only those that a job filled, not by name alone."""

from collections.abc import Sequence

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import StateConflict
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta.edge import Where, delta_place
from backfill_cli.lake.state import JobRecord, jobs
from backfill_cli.sinks.delta.marks import MarkedTable, marks_of
from backfill_cli.sinks.delta.places import Template, where_of


def going(state: Blobs, template: Template, tables: Sequence[SinkTable]) -> list[Where]:
    """The places of those of the tables that exist.

    Raises StateConflict for a table that no job has claimed, and for one that replaced a claimed one: it has rows,
    but its log has no number of the job.
    """
    records = jobs(state)
    found = [(table, where) for table in tables if (where := where_of(template, table)).exists()]
    for table, where in found:
        if not any(_is_of(state, record, table, where) for record in records):
            raise StateConflict(
                f"{where.shown}, the place of table {table.name!r}, now has a table that the job did not fill; "
                "nothing is dropped",
                "restore the job's table there; or omit --with-rows, and delete by hand what is no longer needed",
            )
    return [where for _, where in found]


def _is_of(state: Blobs, record: JobRecord, table: SinkTable, where: Where) -> bool:
    claim = record.claims.get(table.name)
    if claim is None or claim.place != delta_place(where):
        return False
    held = MarkedTable(record.job, table.name, claim, where, marks_of(state, record.job, claim))
    return held.is_numbered() or not where.open().get_add_actions().num_rows
