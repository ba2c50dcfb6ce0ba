"""The tables at each look into the catalog, and whether rows got values in between that the log does not have.

`ALTER COLUMN v TYPE text USING upper(v)` leaves names, types and numbers as they were, but rewrites the table's
files and updates the columns' catalog rows. VACUUM FULL, CLUSTER and TRUNCATE only rewrite files, SET NOT NULL and
SET STATISTICS only update catalog rows. One of each between two looks is taken for such an ALTER COLUMN.

SET UNLOGGED, changes, and SET LOGGED only rewrite files too; but ALTER TABLE makes a new TOAST table each time,
and the others keep it. Of a table that a publication names, the server refuses SET UNLOGGED.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import START_OVER, BadData, of_table
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.model.units import plural
from backfill_cli.upstreams.postgres import checks
from backfill_cli.upstreams.postgres.client import Connection, row_of, rows_of
from backfill_cli.upstreams.postgres.tables import PARTS, PgTable, described, require_names, schema_of, signature
from backfill_cli.upstreams.postgres.types import Column, spark_field

_SEEN = f"""
SELECT n, (SELECT jsonb_object_agg(f.oid, pg_relation_filenode(f.oid)) FROM pg_class f
           WHERE f.relkind = 'r' AND f.oid = {PARTS}),
       (SELECT jsonb_object_agg(f.oid, jsonb_build_array(f.reltoastrelid::bigint, f.relispartition, ARRAY(
               SELECT r.oid::bigint FROM pg_publication_rel r WHERE r.prrelid = f.oid ORDER BY 1))) FROM pg_class f
           WHERE f.relkind = 'r' AND f.oid = {PARTS}),
       (SELECT jsonb_object_agg(t.oid, jsonb_build_array(t.xmin::text, (
               SELECT jsonb_object_agg(w.attnum, w.xmin::text) FROM pg_attribute w
               WHERE w.attrelid = t.oid AND w.attnum > 0 AND NOT w.attisdropped))) FROM pg_class t
        WHERE t.oid = ANY(ARRAY(SELECT c.oid UNION SELECT relid FROM pg_partition_ancestors(c.oid)))
        AND EXISTS (SELECT FROM pg_publication WHERE pubname = %s AND pubviaroot)),
       jsonb_object_agg(a.attname, ARRAY[a.attnum::text, a.xmin::text, a.attgenerated::text])
FROM unnest(%s::text[]) n JOIN pg_class c ON c.oid = to_regclass(n)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped GROUP BY n, c.oid
"""

_LABELS = """
SELECT 'label ' || oid, enumlabel::text FROM pg_enum WHERE enumtypid = ANY(%(types)s::oid[])
UNION ALL SELECT 'attribute ' || attrelid || ' ' || attnum, attname::text || ' ' || atttypid FROM pg_attribute
WHERE attrelid IN (SELECT typrelid FROM pg_type WHERE oid = ANY(%(types)s::oid[]) AND typrelid <> 0)
AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'composite ' || typrelid, '' FROM pg_type WHERE oid = ANY(%(types)s::oid[]) AND typrelid <> 0
ORDER BY 1
"""

_LEFT = """
SELECT EXISTS (SELECT FROM pg_index WHERE indisvalid AND (indexrelid = ANY(%(oids)s::oid[]) OR indexrelid IN (
    SELECT conindid FROM pg_constraint WHERE oid = ANY(%(oids)s::oid[]))
    OR pg_relation_filenode(indexrelid) = ANY(%(files)s::oid[])))
"""


@dataclass(frozen=True, slots=True)
class Storage:
    """How the tables are stored, in values that JSON can hold.

    files: by table, by oid of the table or a partition, the number of its file. columns: by table, by name, the
    column's number, the transaction that wrote its catalog row, and whether it is generated. labels: of
    enumerations, and attributes of composite types, by what identifies them. unique: by table, see PgTable.unique.
    lapsed: by table, where the log ended once it was seen that no index had kept its key unique all the while.
    beside: as files: the oid of its TOAST table, 0 for none; whether it is a partition; what puts it into
    publications under its own name. joins: by table, if changes of partitions are published as their root's, by
    oid of it and of each table that it is a partition of: the transactions that wrote the catalog's row of that
    table, and by number those of its columns.
    """

    files: Mapping[str, Mapping[str, int | None]]
    columns: Mapping[str, Mapping[str, Sequence[str]]]
    labels: Mapping[str, str]
    unique: Mapping[str, Sequence[int]] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, tuple[int, bool, Sequence[int]]]] = field(default_factory=dict)
    lapsed: Mapping[str, int] = field(default_factory=dict)
    joins: Mapping[str, Mapping[str, tuple[str, Mapping[str, str]]]] = field(default_factory=dict)


def without(storage: str, tables: Collection[str]) -> str:
    """A `Storage` as JSON, without these tables. Labels are of types, which other tables may have."""
    if not storage:
        return storage
    told = json.loads(storage)
    by_table = {key: one for key, one in told.items() if key != "labels"}
    return json.dumps(told | {k: {t: v for t, v in one.items() if t not in tables} for k, one in by_table.items()})


def labels(connection: Connection, tables: Iterable[PgTable]) -> dict[str, str]:
    """Of the columns' types, at any depth: labels of enumerations, attributes of composite types."""
    types = {oid for table in tables for column in table.columns for oid in column.reaches}
    return dict(rows_of(connection, "reading its catalog", _LABELS, {"types": sorted(types)}))


def _is_one_left(connection: Connection, indexes: Sequence[int]) -> bool:
    given = {"oids": [one for one in indexes if one > 0], "files": [-one for one in indexes if one < 0]}
    return bool(row_of(connection, "checking for a unique index", _LEFT, given)[0])


def require_same_values(before: Storage, now: Storage) -> None:
    """In between, nothing happened to the rows that the log does not have. Raises BadData naming the table."""
    for name, was in before.columns.items():
        with of_table(name):
            _require_same_table(name, was, before, now)
    _require_same_labels(before.labels, now.labels)


def _require_same_table(name: str, was: Mapping[str, Sequence[str]], before: Storage, now: Storage) -> None:
    if name not in now.columns:
        return  # other checks report it
    found = now.columns[name]
    for column, (number, _, generated) in was.items():
        if column not in found:
            continue
        if found[column][0] != number:
            raise _not_in_log(f"table {name!r}: column {column!r} was dropped and added again")
        if generated and not found[column][2]:
            raise _not_in_log(f"table {name!r}: column {column!r} was generated, and is now a plain column")
    files = now.files[name]
    anew = [oid for oid, file in before.files[name].items() if files.get(oid, file) != file]
    touched = _touched(was, found)
    if anew and touched:
        columns = f"{plural(len(touched), 'column')} {', '.join(touched)}"
        raise _not_in_log(f"table {name!r}: ALTER TABLE rewrote it and changed {columns}")
    for oid in anew:
        _require_logged(name, before.beside.get(name, {}).get(oid), now.beside[name].get(oid))
    _require_not_joined(name, before.joins.get(name, {}), now.joins.get(name, {}))


def _require_logged(name: str, was: Sequence[Any] | None, now: Sequence[Any] | None) -> None:
    """A table or partition whose file is new was not unlogged for a while. Raises BadData if it may have been.

    A partition without a TOAST table is not refused: `accept_partition_changes` covers what is done to it alone.
    """
    if was is None or now is None or set(was[2]) & set(now[2]):
        return
    (toast, *_), (found, is_partition, _) = was, now
    if toast != found:
        raise _not_in_log(
            f"table {name!r}: ALTER TABLE rewrote it or a partition, as SET UNLOGGED and SET LOGGED do, between "
            "which changes are not in the log"
        )
    if not found and not is_partition:
        raise _not_in_log(
            f"table {name!r}: its file is new, no publication has named it all the while, and without a TOAST "
            "table nothing tells TRUNCATE or VACUUM FULL from SET UNLOGGED, changes, and SET LOGGED"
        )


def _require_not_joined(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Neither the table nor one that it is a partition of was a partition for a while. Raises BadData otherwise.

    ATTACH and DETACH write the table's row in the catalog, and those of all its columns.
    """
    for oid, (row, columns) in was.items():
        found_row, found = now.get(oid, (row, {}))
        if row != found_row and all(found.get(number, "") != writer for number, writer in columns.items()):
            raise BadData(
                f"table {name!r}: it, or a table that it is a partition of, was attached or detached as a "
                "partition, and the publication has publish_via_partition_root: meanwhile its changes may have "
                "been published as those of another table",
                START_OVER,
            )


def _require_same_labels(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """New labels are fine, in the middle too; a new attribute is one more value in the text of every row."""
    for what, name in before.items():
        if what in now and now[what] != name:
            raise _not_in_log(f"ALTER TYPE renamed {name.split(' ')[0]!r} to {now[what].split(' ')[0]!r}")
    was, found = _attributes(before), _attributes(now)
    if any(found.get(of, numbers) != numbers for of, numbers in was.items()):
        raise _not_in_log("ALTER TYPE added or dropped an attribute of a column's type, or of a type inside it")


def _attributes(labels: Mapping[str, str]) -> dict[str, set[str]]:
    """By composite type: the numbers of its attributes."""
    found: dict[str, set[str]] = {}
    for kind, of, *number in map(str.split, labels):
        if kind != "label":
            found.setdefault(of, set()).update(number)
    return found


def _touched(was: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns that are new, or whose catalog row is new; generated ones are not copied."""
    before = {name: writer for name, (_, writer, _) in was.items()}
    return [name for name, (_, writer, made) in now.items() if before.get(name) != writer and not made]


def _not_in_log(what: str) -> BadData:
    return BadData(f"{what}: rows may have other values, which are not in the log", START_OVER)


class TableCatalog:
    """tables: by name. in_force: by table, the columns that the changes applied so far have, in the table's order.

    Changes that the log does not have are found by comparing each look with the previous one; across processes, by
    `storage` and `recall`.
    """

    def __init__(self, specs: Sequence[TableSpec], publication: str) -> None:
        self._specs, self._publication = specs, publication
        self.tables: dict[str, PgTable] = {}
        self.in_force: dict[str, tuple[Column, ...]] = {}
        self._signature = ""
        self._storage = Storage({}, {}, {})
        self._compared = True  # since the last look
        self._places: dict[
            str, tuple[str, int]
        ] = {}  # by table: a schema, and the log's end when it was first seen

    @property
    def listed(self) -> tuple[PgTable, ...]:
        return tuple(self.tables.values())

    def begin(self, connection: Connection) -> None:
        """The tables as they are now are known, for later looks to compare with; all columns are in force."""
        require_names(connection, self._specs)
        self._catalog(connection)
        self._storage, self._compared = self._stored(connection), True
        self.in_force = {table.name: table.columns for table in self.listed}

    def again(self, connection: Connection) -> None:
        """The tables are as they are now. Costs one query if nothing changed."""
        if self._signed(connection) != self._signature:
            self._catalog(connection)

    def require_followable(self) -> None:
        """The tables, as they were last looked at, can still be followed."""
        checks.require_followable(self.listed)
        checks.require_no_heirs(self.listed)
        self.apply({name: schema_of_columns(columns) for name, columns in self.in_force.items()})

    def apply(self, schemas: Mapping[str, str]) -> None:
        """These columns are in force, as the catalog describes them now. Raises BadData if a type differs."""
        for name, text in schemas.items():
            with of_table(name):
                self.in_force[name] = checks.in_force(self.tables[name], columns_of(text))

    def compare(self, connection: Connection, log_end: Callable[[], int]) -> None:
        """Since the previous look no row got values that the log does not have. Raises BadData otherwise."""
        if not self._compared:
            storage = self._stored(connection)
            require_same_values(self._storage, storage)
            lapsed = dict(self._storage.lapsed)
            for table in self.listed:
                was = self._storage.unique.get(table.name)
                if was and not set(was) & set(table.unique):
                    lapsed[table.name] = log_end()
            self._storage, self._compared = replace(storage, lapsed=lapsed), True

    def require_kept_unique(self, connection: Connection, unsure: Sequence[str], after: int) -> None:
        """From the position `after` until now some index kept each table's key unique. unsure: see TakenWindow.

        Raises BadData naming a table for which none did. Other changes need no such index: the server refuses
        updates and deletes while the index of the replica identity is gone.
        """
        storage = self._storage
        for name in unsure:
            indexes = storage.unique.get(name)
            if storage.lapsed.get(name, 0) > after or (indexes and not _is_one_left(connection, indexes)):
                raise BadData(
                    f"table {name!r}: the unique index on its key was dropped, replaced, or made DEFERRABLE: "
                    "meanwhile two rows may have had one key, and the log does not say which of them a change is "
                    "of",
                    START_OVER,
                ).of(name)

    def added(self, connection: Connection) -> dict[str, str]:
        """By table with columns not yet in force: its schema now. Raises BadData for a column with a default."""
        found = {}
        for name, table in self.tables.items():
            in_force = {column.name for column in self.in_force[name]}
            if new := [column.name for column in table.columns if column.name not in in_force]:
                with of_table(name):
                    checks.require_no_default(connection, table, new)
                found[name] = schema_of(table)
        return found

    def added_before(self, end: int, added: Mapping[str, str], log_end: Callable[[], int]) -> dict[str, str]:
        """Those whose ALTER TABLE is before `end`. log_end: called when a schema is new; it lies after that."""
        for name, schema in added.items():
            if self._places.get(name, ("", 0))[0] != schema:
                self._places[name] = (schema, log_end())
        return {name: schema for name, schema in added.items() if self._places[name][1] <= end}

    def storage(self) -> str:
        """What a later process gives to `recall`, to compare with."""
        return json.dumps(asdict(self._storage))

    def recall(self, columns: Mapping[str, Sequence[str]], storage: str) -> None:
        """What an earlier process knew is known again: the columns in force, and how rows were stored."""
        for name, names in ((name, names) for name, names in columns.items() if name in self.tables):
            self.in_force[name] = tuple(c for c in self.tables[name].columns if c.name in names)
        if storage:
            self._storage, self._compared = Storage(**json.loads(storage)), False

    def _stored(self, connection: Connection) -> Storage:
        """How the tables are stored now."""
        given = (self._publication, [spec.name for spec in self._specs])
        rows = rows_of(connection, "reading its catalog", _SEEN, given)
        files, beside, joins = ({row[0]: row[at] or {} for row in rows} for at in (1, 2, 3))
        columns = {name: columns for name, *_, columns in rows}
        unique = {table.name: table.unique for table in self.listed}
        return Storage(files, columns, labels(connection, self.listed), unique, beside, joins=joins)

    def _catalog(self, connection: Connection) -> None:
        self._signature, self._compared = self._signed(connection), False
        self.tables = {table.name: table for table in described(connection, self._specs)}

    def _signed(self, connection: Connection) -> str:
        """A text that changes once a new look would differ from the last one."""
        return f"{signature(connection, self._specs)} {labels(connection, self.listed)}"


def schema_of_columns(columns: Sequence[Column]) -> str:
    """Spark's schema of rows with these columns, as JSON."""
    return schema_text({column.name: spark_field(column) for column in columns})
