"""Where a job's tables are, and the folder beside them that holds what the sink remembers."""

from collections.abc import Sequence

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import UsageError
from backfill_cli.formats.delta.edge import Where
from backfill_cli.formats.lake.blobs import Blobs
from backfill_cli.formats.lake.state import FOLDER
from backfill_cli.formats.listing import place

TABLE = "{table}"


def where_of(template: str, table: SinkTable) -> Where:
    """The table's folder. A side table of ours is beside the job's own one where that has no {table}."""
    if TABLE in template:
        return Where.of(template, table.target)
    return Where.of(f"{_parent(template)}/{table.target}" if table.side else template, table.target)


def state_of(template: str) -> Blobs:
    """The folder that is the same for all tables which the option may name."""
    root = _parent(template.split(TABLE)[0] + "x") if TABLE in template else _parent(template)
    found = place(f"{root}/{FOLDER}", "")
    return Blobs(found.fs, found.folder)


def require_apart(template: str, tables: Sequence[SinkTable]) -> None:
    """Each table has a folder of its own. Raises UsageError naming two that share one."""
    seen: dict[str, str] = {}
    for table in tables:
        where = where_of(template, table)
        twin = seen.setdefault(where.uri, table.name)
        if twin != table.name:
            raise UsageError(
                f"tables {twin!r} and {table.name!r} have the same target, {where.shown}",
                'write {table} into sink.table: "lake/{table}"',
            )


def _parent(path: str) -> str:
    head = path.rstrip("/").rpartition("/")[0]
    return head or "/"
