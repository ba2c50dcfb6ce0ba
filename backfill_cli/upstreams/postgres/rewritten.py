"""Whether ALTER TABLE gave rows other values than they had: the log tells nothing of that.

`ALTER COLUMN v TYPE text USING upper(v)` leaves names, types and numbers as they were. It writes the table's files
anew and touches the columns' catalog rows, both in one transaction; VACUUM FULL, CLUSTER and TRUNCATE do only the
one, SET NOT NULL and SET STATISTICS only the other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BadData
from backfill_cli.upstreams.postgres.client import asking

if TYPE_CHECKING:
    import psycopg

_SEEN = """
SELECT n, (SELECT jsonb_object_agg(f.oid, pg_relation_filenode(f.oid)) FROM pg_class f
           WHERE f.relkind = 'r' AND (f.oid = c.oid OR f.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))),
       jsonb_object_agg(a.attname, ARRAY[a.xmin::text, a.attgenerated::text])
FROM unnest(%s::text[]) n JOIN pg_class c ON c.oid = to_regclass(n)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped GROUP BY n, c.oid
"""


@dataclass(frozen=True, slots=True)
class Storage:
    """One table's. files: by oid, its own or a partition's, the number of its file. columns: by name who wrote the
    column's catalog row last, and whether it is generated.
    """

    files: Mapping[str, int | None]
    columns: Mapping[str, Sequence[str]]


def seen(connection: "psycopg.Connection[Any]", specs: Sequence[TableSpec]) -> dict[str, Storage]:
    """Each table's storage now."""
    with asking("reading its catalog"):
        rows = connection.execute(_SEEN, ([spec.name for spec in specs],)).fetchall()
    return {name: Storage(files or {}, columns) for name, files, columns in rows}


def require_same_values(before: Mapping[str, Storage], now: Mapping[str, Storage]) -> None:
    """Nothing that the log does not tell happened to the rows in between. Raises BadData naming the table."""
    for name, was in before.items():
        if name not in now:
            continue  # others say what became of it
        found = now[name]
        for column, (_, generated) in was.columns.items():
            if generated and column in found.columns and not found.columns[column][1]:
                raise _untold(name, f"column {column!r} was generated, and keeps values that the log never had")
        anew = [oid for oid, file in was.files.items() if found.files.get(oid, file) != file]
        if anew and _touched(was, found):
            columns = ", ".join(_touched(was, found))
            raise _untold(name, f"ALTER TABLE rewrote it, with column(s) {columns}: values may be others")


def _touched(was: Storage, now: Storage) -> list[str]:
    """The columns that are new, or whose catalog row is; generated ones are not ours."""
    before = {name: writer for name, (writer, _) in was.columns.items()}
    return [name for name, (writer, made) in now.columns.items() if before.get(name) != writer and not made]


def _untold(table: str, what: str) -> BadData:
    return BadData(
        f"table {table!r}: {what}, and the log does not tell which",
        "drop the job and start over",
    )


def as_text(storage: Mapping[str, Storage]) -> str:
    """JSON that `of_text` reads."""
    return json.dumps({name: [one.files, one.columns] for name, one in storage.items()})


def of_text(text: str) -> dict[str, Storage]:
    """What `as_text` wrote."""
    return {name: Storage(files, columns) for name, (files, columns) in json.loads(text).items()}
