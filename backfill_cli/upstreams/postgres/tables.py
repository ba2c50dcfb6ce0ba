"""The tables as the catalog describes them: columns, key, size, what the log has of old rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.refusals import in_toml
from backfill_cli.errors import START_OVER, UsageError, of_table, sql
from backfill_cli.model.schema import schema_text
from backfill_cli.model.units import nearest_first, spell_known
from backfill_cli.postgres_errors import PLACE
from backfill_cli.upstreams.postgres.client import Connection, asking, row_of, rows_of
from backfill_cli.upstreams.postgres.types import COLUMNS, Column, by_table, quoted, spark_field

BYTES_A_ROW = 100
"""A guess, for a table that was never analyzed."""

PARTS = "ANY(ARRAY(SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)))"
"""SQL, for `oid = …`: table c and its partitions. An OR of the two would read the whole catalog for each table."""

HEIRS = """ARRAY(SELECT h.oid::regclass::text FROM pg_inherits i JOIN pg_class h ON h.oid = i.inhrelid
    WHERE i.inhparent = c.oid AND c.relkind = 'r' AND h.relpersistence <> 't' ORDER BY h.oid)"""
"""SQL: the tables whose rows a query of table c shows too; temporary ones are shown to one session only."""

_FOUND = f"""
SELECT c.oid::bigint, n.nspname AS schema, c.relname AS relation, c.relkind::text AS kind,
       c.relreplident::text AS identity, c.reltuples::float8 AS rows,
       (SELECT coalesce(sum(pg_table_size(t.relid)), 0) FROM (
           SELECT c.oid AS relid UNION SELECT relid FROM pg_partition_tree(c.oid)) t)::bigint AS size_bytes,
       EXISTS (SELECT FROM pg_class p WHERE p.reltoastrelid <> 0 AND p.oid = {PARTS}) AS toasted,
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (number, ord)
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
             WHERE i.indrelid = c.oid AND i.indisprimary AND k.ord <= i.indnkeyatts ORDER BY k.ord) AS primary,
       (SELECT jsonb_object_agg(a.attname, a.attnum) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS numbers,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
               AND NOT (i.indimmediate AND i.indisvalid)) AS deferrable,
       EXISTS (SELECT FROM pg_class u WHERE u.relpersistence <> 'p' AND u.oid = {PARTS}) AS unlogged,
       ARRAY(SELECT l.oid::regclass::text FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
             WHERE t.isleaf AND l.relreplident <> c.relreplident ORDER BY l.oid) AS differing,
       ARRAY(SELECT l.oid::regclass::text FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
             WHERE t.isleaf AND l.oid <> c.oid AND l.relreplident <> 'f' ORDER BY l.oid)
           AS lesser,
       (SELECT jsonb_agg((SELECT jsonb_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = i.indrelid
                          AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])))
        FROM pg_index i WHERE i.indisreplident AND i.indrelid = {PARTS}) AS indexed,
       (SELECT jsonb_agg(jsonb_build_array(i.indexrelid::int8, (
            SELECT k.oid::int8 FROM pg_constraint k WHERE k.conrelid = c.oid AND k.conindid = i.indexrelid), (
            SELECT jsonb_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid
                AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])),
            pg_relation_filenode(i.indexrelid)::int8))
        FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid
            AND i.indpred IS NULL AND i.indexprs IS NULL) AS unique,
       {HEIRS} AS heirs
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""

_NAMES = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_|^information_schema$'
  AND has_schema_privilege(n.oid, 'USAGE') ORDER BY 1 LIMIT 10000
"""
"""The tables that the role may look at, each as SQL names it here: with its schema where that is needed."""


@dataclass(frozen=True, slots=True)
class PgTable:
    """A table of the job. name: as in the config. rows, size_bytes: the catalog's estimates.

    identity: its REPLICA IDENTITY: d(efault), n(othing), f(ull), i(ndex). primary: its primary key's columns.
    toasted: whether it can have values stored out of line. numbers: by column its attnum, which is never reused.
    deferrable: whether the primary key cannot be the replica identity, because it is checked late. unlogged:
    whether it or a partition is. differing: SQL of the partitions with another replica identity. lesser: of those
    with less than FULL. indexed: the columns that identify rows by an index, in all partitions. unique: oids of
    the indexes that keep its key unique at every moment, and of their constraints; below zero, their files, which
    ALTER COLUMN … TYPE varchar(…) keeps where it makes an index anew. heirs: SQL of tables that inherit from it.
    """

    name: str
    oid: int
    schema: str
    relation: str
    kind: str
    identity: str
    rows: int
    size_bytes: int
    toasted: bool
    primary: tuple[str, ...]
    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    numbers: Mapping[str, int]
    deferrable: bool = False
    unlogged: bool = False
    differing: tuple[str, ...] = ()
    lesser: tuple[str, ...] = ()
    indexed: frozenset[str] = frozenset()
    unique: tuple[int, ...] = ()
    heirs: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.relation)}"

    @property
    def source(self) -> str:
        """What a query selects from: the table's own rows, as in the log, without those of inheriting tables."""
        return self.sql if self.kind == "p" else f"ONLY {self.sql}"

    @property
    def kinds(self) -> Mapping[str, Sequence[int]]:
        """By column its number and the oid of its type."""
        return {column.name: [self.numbers[column.name], column.type_oid] for column in self.columns}

    @property
    def full(self) -> bool:
        return self.identity == "f"

    @property
    def identifying(self) -> frozenset[str]:
        """The columns that the log has of an old row, at least."""
        names = {column.name for column in self.columns}
        return {"d": frozenset(self.primary), "i": self.indexed, "f": frozenset(names)}.get(
            self.identity, frozenset()
        )

    def may_lack(self) -> frozenset[str]:
        """Columns whose value an update in the log may omit."""
        if self.full or not self.toasted:
            return frozenset()
        keys = {column.name for column in self.key}
        return frozenset(column.name for column in self.columns if column.toasts and column.name not in keys)


_KNOWN = """
SELECT n, c.oid::bigint, (
    SELECT jsonb_object_agg(a.attname, jsonb_build_array(a.attnum, a.atttypid::bigint)) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
FROM unnest(%s::text[]) n LEFT JOIN pg_class c ON c.oid = to_regclass(n)
"""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What identifies a table. name: as in the config. kinds: see PgTable."""

    name: str
    oid: int
    kinds: Mapping[str, Sequence[int]]


def known(connection: Connection, specs: Sequence[TableSpec]) -> tuple[KnownTable, ...]:
    """The tables, without sizes: reading those waits for ALTER TABLE. Raises UsageError for one that is gone."""
    rows = rows_of(connection, "reading its catalog", _KNOWN, ([spec.name for spec in specs],))
    for name, oid, _ in rows:
        if oid is None:
            raise UsageError(f"table {name!r} does not exist", START_OVER + ", or rename it back").of(name)
    return tuple(KnownTable(name, oid, kinds or {}) for name, oid, kinds in rows)


def primary_keys(connection: Connection, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The primary key of each of these tables. Raises UsageError for one that has none, or does not exist."""
    found = {name: tuple(_row(connection, name)["primary"]) for name in names}
    without = [name for name, key in found.items() if not key]
    if without:
        raise UsageError(
            f"table {without[0]!r} has no primary key",
            'name columns that are unique and NOT NULL in [[tables]]: key = ["…"]',
        )
    return found


def described(connection: Connection, specs: Sequence[TableSpec]) -> tuple[PgTable, ...]:
    """The job's tables as they are now. Raises UsageError naming table, column and what to do."""
    with asking("reading its catalog"):
        rows = {spec.name: _row_of(connection, spec.name) for spec in specs}
        oids = {name: row["oid"] for name, row in rows.items()}
        _require_apart(connection, oids)
        columns = by_table(connection.execute(COLUMNS, ([*oids.values()],)).fetchall())
    return tuple(_table_of(spec, rows[spec.name], columns.get(oids[spec.name], ())) for spec in specs)


def _table_of(spec: TableSpec, row: Mapping[str, Any], columns: tuple[Column, ...]) -> PgTable:
    with of_table(spec.name, UsageError):
        return _table(spec, row, columns)


def _require_apart(connection: Connection, oids: Mapping[str, int]) -> None:
    """No table is named twice, or has another as a partition: all its changes come under one of the names."""
    names: dict[int, str] = {}
    for name, oid in oids.items():
        twin = names.setdefault(oid, name)
        if twin != name:
            raise UsageError(
                f"tables {twin!r} and {name!r} are the same table: its changes would be applied to one of them",
                "name it once",
            )
    query = """
        SELECT t.oid::bigint, a.relid::oid::bigint
        FROM unnest(%(all)s::oid[]) t (oid), pg_partition_ancestors(t.oid) a
        WHERE a.relid <> t.oid AND a.relid = ANY(%(all)s::oid[])"""
    for part, whole in connection.execute(query, {"all": list(names)}).fetchall():
        raise UsageError(
            f"table {names[part]!r} is a partition of table {names[whole]!r}: the log has its changes as those of "
            "that table",
            "name only one of them; if the job has already begun, then " + START_OVER,
        )


_SIGNATURE = f"""
SELECT array_agg((to_regclass(n)::oid, c.relreplident, c.relpersistence, c.reltoastrelid <> 0, (
    SELECT array_agg((attnum, xmin) ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), (
    SELECT array_agg((relid, pg_relation_filenode(relid), l.relreplident, l.relpersistence) ORDER BY relid)
    FROM pg_partition_tree(c.oid) JOIN pg_class l ON l.oid = relid), (
    SELECT array_agg((indexrelid, indimmediate, indisvalid, indisreplident) ORDER BY indexrelid) FROM pg_index
    WHERE indisunique AND indrelid = {PARTS}),
    pg_relation_filenode(c.oid), (
    CASE WHEN c.relispartition THEN (SELECT array_agg((relid, (
        SELECT array_agg(xmin ORDER BY attnum) FROM pg_attribute WHERE attrelid = relid AND attnum > 0))
        ORDER BY relid) FROM pg_partition_ancestors(c.oid) WHERE relid <> c.oid) END), {HEIRS},
    ARRAY(SELECT oid FROM pg_publication_rel WHERE prrelid = {PARTS} ORDER BY oid)))::text
FROM unnest(%s::text[]) n LEFT JOIN pg_class c ON c.oid = to_regclass(n)
"""


def signature(connection: Connection, specs: Sequence[TableSpec]) -> str:
    """A text that differs once `described` would: one cheap query for all tables."""
    return str(row_of(connection, "reading its catalog", _SIGNATURE, ([spec.name for spec in specs],)))


def called(connection: Connection, oid: int) -> str | None:
    """What the table with this oid is called now, as SQL names it here; None if there is none."""
    query = "SELECT oid::regclass::text FROM pg_class WHERE oid = %s"
    row = row_of(connection, "reading its catalog", query, (oid,))
    return None if row is None else str(row[0])


def require_names(connection: Connection, specs: Sequence[TableSpec]) -> None:
    """Each table exists. Raises UsageError for one that does not, or whose name is not valid in SQL."""
    for spec in specs:
        _row_of(connection, spec.name)


def _row_of(connection: Connection, name: str) -> Mapping[str, Any]:
    with of_table(name, UsageError):
        return _row(connection, name)


def _row(connection: Connection, name: str) -> Mapping[str, Any]:
    import psycopg
    from psycopg.rows import dict_row

    with asking("reading its catalog"):
        try:
            row = connection.cursor(row_factory=dict_row).execute(_FOUND.encode(), (name,)).fetchone()
        except (psycopg.errors.InvalidName, psycopg.errors.SyntaxError) as exc:
            raise UsageError(
                f"table {name!r}: not a valid name in SQL",
                "put double quotes around each part that has capitals or spaces: "
                """[[tables]] name = '"My Schema"."My Table"'""",
            ) from exc
    if row is None:
        known = [name for (name,) in rows_of(connection, "reading its catalog", _NAMES)]
        near = nearest_first(name, known)[0] if known else "public.orders"
        raise UsageError(
            f"table {name!r} does not exist{spell_known(name, known)}",
            f"name it as in SQL, with its schema: [[tables]] name = {in_toml(near)}",
        )
    if row["kind"] not in ("r", "p"):
        kind = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}.get(row["kind"], "not a table")
        raise UsageError(f"table {name!r} is {kind}: it has no change log", "name the tables it is built from")
    return row


def _table(spec: TableSpec, row: Mapping[str, Any], columns: tuple[Column, ...]) -> PgTable:
    by_name = {column.name: column for column in columns}
    for name in spec.key:
        if name not in by_name:
            raise UsageError(
                f"table {spec.name!r} has no column {name!r}, which its key names",
                f"its columns: {', '.join(by_name)}",
            )
        if not by_name[name].not_null:
            raise UsageError(
                f"table {spec.name!r}: key column {name!r} is nullable",
                sql(f"ALTER TABLE {spec.name} ALTER COLUMN {quoted(name)} SET NOT NULL")
                + ", or name other columns",
            )
    size, rows, indexed = row["size_bytes"], row["rows"], row["indexed"]
    return PgTable(
        **{
            **row,
            **{name: tuple(row[name]) for name in ("primary", "differing", "lesser", "heirs")},
            "name": spec.name,
            "rows": int(rows if rows > 0 else size // BYTES_A_ROW),  # never analyzed
            "columns": columns,
            "key": tuple(by_name[name] for name in spec.key),
            "indexed": frozenset.intersection(*map(frozenset, indexed)) if indexed else frozenset(),
            "unique": tuple(_kept_unique(row["unique"] or (), spec.key)),
        }
    )


def _kept_unique(
    indexes: Iterable[tuple[int, int | None, Sequence[str], int | None]], key: Sequence[str]
) -> Iterator[int]:
    for index, constraint, columns, file in indexes:
        if set(columns) <= set(key):
            yield index
            if constraint is not None:
                yield constraint
            if file:
                yield -file


def schema_of(table: PgTable) -> str:
    """Spark's schema of its rows as JSON. Raises UsageError for a column that cannot be read exactly."""
    return schema_text({column.name: spark_field(column, table.sql) for column in table.columns})


def places(connection: Connection, table: PgTable) -> frozenset[str]:
    """Texts that identify the table and its partitions, which no other table has."""
    query = f"""SELECT {PLACE} FROM (SELECT %s::oid AS oid UNION SELECT relid FROM pg_partition_tree(%s::oid)) t"""
    found = rows_of(connection, "identifying its tables", query, (table.oid, table.oid))
    return frozenset(place for (place,) in found)
