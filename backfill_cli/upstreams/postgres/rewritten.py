"""Whether rows got other values that the log does not have: by ALTER TABLE, or by ALTER TYPE.

`ALTER COLUMN v TYPE text USING upper(v)` leaves names, types and numbers as they were, but rewrites the table's
files and updates the columns' catalog rows. VACUUM FULL, CLUSTER and TRUNCATE only rewrite files, SET NOT NULL and
SET STATISTICS only update catalog rows. One of each between two looks is taken for such an ALTER COLUMN.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BadData
from backfill_cli.upstreams.postgres.client import asking
from backfill_cli.upstreams.postgres.tables import PgTable

if TYPE_CHECKING:
    import psycopg

_SEEN = """
SELECT n, (SELECT jsonb_object_agg(f.oid, pg_relation_filenode(f.oid)) FROM pg_class f
           WHERE f.relkind = 'r' AND (f.oid = c.oid OR f.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))),
       jsonb_object_agg(a.attname, ARRAY[a.attnum::text, a.xmin::text, a.attgenerated::text])
FROM unnest(%s::text[]) n JOIN pg_class c ON c.oid = to_regclass(n)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped GROUP BY n, c.oid
"""

_LABELS = """
SELECT 'label ' || oid, enumlabel::text FROM pg_enum WHERE enumtypid = ANY(%(types)s::oid[])
UNION ALL SELECT 'attribute ' || attrelid || ' ' || attnum, attname::text || ' ' || atttypid FROM pg_attribute
WHERE attrelid IN (SELECT typrelid FROM pg_type WHERE oid = ANY(%(types)s::oid[]) AND typrelid <> 0)
AND attnum > 0 AND NOT attisdropped ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Storage:
    """How the tables are stored, in values that JSON can hold.

    files: by table, by oid of the table or a partition, the number of its file. columns: by table, by name, the
    column's number, the transaction that wrote its catalog row, and whether it is generated. labels: of
    enumerations, and attributes of composite types, by what identifies them. unique: by table, see PgTable.unique.
    """

    files: Mapping[str, Mapping[str, int | None]]
    columns: Mapping[str, Mapping[str, Sequence[str]]]
    labels: Mapping[str, str]
    unique: Mapping[str, Sequence[int]] = field(default_factory=dict)


def seen(connection: "psycopg.Connection[Any]", specs: Sequence[TableSpec], tables: Iterable[PgTable]) -> Storage:
    """How the tables are stored now."""
    with asking("reading its catalog"):
        rows = connection.execute(_SEEN, ([spec.name for spec in specs],)).fetchall()
    files = {name: held or {} for name, held, _ in rows}
    columns, unique = {name: columns for name, _, columns in rows}, {table.name: table.unique for table in tables}
    return Storage(files, columns, labels(connection, tables), unique)


def labels(connection: "psycopg.Connection[Any]", tables: Iterable[PgTable]) -> dict[str, str]:
    """Of the columns' types: labels of enumerations, attributes of composite types, by what identifies them."""
    columns = [column for table in tables for column in table.columns]
    types = {column.element_oid or column.base_oid for column in columns if column.category in "ce"}
    types |= {column.element_oid for column in columns if column.element_oid}
    if not types:
        return {}
    with asking("reading its catalog"):
        return dict(connection.execute(_LABELS, {"types": sorted(types)}).fetchall())


def require_kept_unique(before: Storage, tables: Iterable[PgTable]) -> None:
    """All the time some index kept each key unique. Raises BadData naming a table for which none did.

    Without FULL the server itself refuses updates and deletes while the index of the replica identity is gone.
    """
    for table in tables:
        kept = before.unique.get(table.name)
        if kept and table.full and not set(kept) & set(table.unique):
            raise BadData(
                f"table {table.name!r}: the unique index on its key was dropped, replaced, or made DEFERRABLE: "
                "meanwhile two rows may have had one key, and the log does not say which of them a change is of",
                "drop the job and start over",
            )


def require_same_values(before: Storage, now: Storage) -> None:
    """In between, nothing happened to the rows that the log does not have. Raises BadData naming the table."""
    for name, was in before.columns.items():
        if name not in now.columns:
            continue  # other checks report it
        found = now.columns[name]
        for column, (number, _, generated) in was.items():
            if column not in found:
                continue
            if found[column][0] != number:
                raise _untold(f"table {name!r}: column {column!r} was dropped and added again")
            if generated and not found[column][2]:
                raise _untold(f"table {name!r}: column {column!r} was generated, and is now a plain column")
        files = now.files[name]
        anew = [oid for oid, file in before.files[name].items() if files.get(oid, file) != file]
        touched = _touched(was, found)
        if anew and touched:
            raise _untold(f"table {name!r}: ALTER TABLE rewrote it and changed column(s) {', '.join(touched)}")
    _require_same_labels(before.labels, now.labels)


def _require_same_labels(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """New labels are fine, in the middle too; a new attribute is one more value in the text of every row."""
    for what, name in before.items():
        if what in now and now[what] != name:
            raise _untold(f"ALTER TYPE renamed {name.split(' ')[0]!r} to {now[what].split(' ')[0]!r}")
    attributes = [{what for what in one if what.startswith("attribute ")} for one in (before, now)]
    if before and attributes[0] != attributes[1]:
        raise _untold("ALTER TYPE added or dropped an attribute of a column's type")


def _touched(was: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns that are new, or whose catalog row is new; generated ones are not copied."""
    before = {name: writer for name, (_, writer, _) in was.items()}
    return [name for name, (_, writer, made) in now.items() if before.get(name) != writer and not made]


def _untold(what: str) -> BadData:
    return BadData(f"{what}: rows may have other values, which are not in the log", "drop the job and start over")


def as_text(storage: Storage) -> str:
    """JSON that `of_text` reads."""
    return json.dumps(asdict(storage))


def of_text(text: str) -> Storage:
    """What `as_text` wrote."""
    return Storage(**json.loads(text))
