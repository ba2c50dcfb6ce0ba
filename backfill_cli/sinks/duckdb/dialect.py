"""Names, types and side tables in DuckDB, and the names that people query."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import duckdb

from backfill_cli.contracts import own
from backfill_cli.contracts.refusals import REPEAT
from backfill_cli.errors import UsageError, in_config
from backfill_cli.model.checkpoint import Owner
from backfill_cli.model.position import cursor_text
from backfill_cli.model.schema import fields_of
from backfill_cli.model.split import SplitKey, SplitProgress
from backfill_cli.sinks.sql.dialect import Column, SqlDialect, Target, literal
from backfill_cli.sinks.sql.live import SqlNames
from backfill_cli.sinks.sql.state import FILLS, PARTIALS, Connection, SqlState, live_table, side_tables

INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
LAYOUT = 2
"""Layout 1 had, instead of a split's cursor, the index of its next row as a number (`after`)."""
_MARKERS, _OWNERS, _JOBS, _SPLITS = side_tables("file", LAYOUT, "schema.table that the job writes, lower case")
_OLDER = " Files of older versions lack this table; the next run creates it."
OWNERS = replace(_OWNERS, comment=_OWNERS.comment + _OLDER)
LIVE = live_table(
    {"live": ("text NOT NULL", "schema.name that is a view of it, lower case")},
    "new name in that schema of what had the name before",
)


def _nested(table: str, column: str, spark: Any, within: str) -> str:
    match spark["type"]:
        case "array":
            return DUCKDB.type_of(table, column, spark["elementType"], f"{within}[]") + "[]"
        case "map":
            key = DUCKDB.type_of(table, column, spark["keyType"], f"{within} (map key)")
            return f"MAP({key}, {DUCKDB.type_of(table, column, spark['valueType'], f'{within} (map value)')})"
        case "struct" if spark["fields"]:
            own.refuse_twins(
                f"table {table!r}, column {column + within!r}", [field["name"] for field in spark["fields"]]
            )
            inner = [
                DUCKDB.quoted(field["name"])
                + " "
                + DUCKDB.type_of_field(table, column, field, f"{within}.{field['name']}")
                for field in spark["fields"]
            ]
            return f"STRUCT({', '.join(inner)})"
        case other:
            what = f"{other} without fields" if other == "struct" else other
            raise DUCKDB.refused(table, column, what, within)


DUCKDB = SqlDialect(
    system="DuckDB",
    schema="main",
    simple={
        "boolean": "BOOLEAN",
        "byte": "TINYINT",
        "short": "SMALLINT",
        "integer": "INTEGER",
        "long": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "binary": "BLOB",
        "date": "DATE",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "timestamp_ntz": "TIMESTAMP",
    },
    logical={"uuid": "UUID", "json": "JSON"},
    decimal="DECIMAL",
    nested=_nested,
    rename=in_config('choose another name, for example: tables.target = "main.orders"'),
    ignores_case=True,
    indexed=False,  # an index would slow down every delete
    lock="",  # nobody else has the file open
)
quoted, listed, matching = DUCKDB.quoted, DUCKDB.listed, DUCKDB.matching


def sink_columns(table: str, schema: str) -> tuple[Column, ...]:
    """See SqlDialect.columns. Raises UsageError too, if names differ in case only, or if one is reserved."""
    own.refuse_names(f"table {table!r}", [field["name"] for field in fields_of(schema)])
    return DUCKDB.columns(table, schema)


def exported_columns(table: str, schema: str) -> tuple[Column, ...]:
    """As `sink_columns`, with the types that Spark reads back: text if the sink's type is UUID or JSON."""
    return sink_columns(table, json.dumps(_without_logical(json.loads(schema))))


def _without_logical(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_logical(value) for key, value in node.items() if key != "metadata"}
    return [_without_logical(item) for item in node] if isinstance(node, list) else node


class State(SqlState):
    dialect = DUCKDB
    layout = LAYOUT
    tables = (_MARKERS, _JOBS, _SPLITS, OWNERS, LIVE, PARTIALS, FILLS)
    required = frozenset({"markers", "jobs", "splits"})

    def there(self) -> list[str]:
        found = self.con.rows(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = $1 AND list_contains($2, table_name)",
            *(self.schema, [own.PREFIX + side.name for side in self.tables]),
        )
        names = {name for (name,) in found}
        return [side.name for side in self.tables if own.PREFIX + side.name in names]

    def create_owners(self) -> None:
        if OWNERS.name not in self.there():
            with self.con.ddl():
                for statement in self.ddl(OWNERS):
                    self.con.run(statement)

    def owner(self, job: str) -> Owner | None:
        return super().owner(job) if OWNERS.name in self.there() else None

    def drop_unused(self) -> None:
        # Nobody else can have the file open, so no job begins in between.
        there = [self.sql(name) for name in self.there()]
        if not any(self.con.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in there):
            with self.con.ddl():
                for table in there:
                    self.con.run(f"DROP TABLE {table}")

    def schema_ddl(self, schema: str) -> list[str]:
        return [] if schema == DUCKDB.schema else [f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"]

    def save_splits(self, job: str, splits: Mapping[SplitKey, SplitProgress]) -> None:
        tables, names = [table for table, _ in splits], [split for _, split in splits]
        self.con.run(
            f"DELETE FROM {self.sql('splits')} s "
            "USING (SELECT unnest($2::VARCHAR[]) t, unnest($3::VARCHAR[]) p) c "
            'WHERE s.job = $1 AND s."table" = c.t AND s.split = c.p',
            *(job, tables, names),
        )
        moved = splits.values()
        self.con.run(
            f"INSERT INTO {self.sql('splits')} SELECT $1, unnest($2::VARCHAR[]), unnest($3::VARCHAR[]), "
            "unnest($4::VARCHAR[]), unnest($5::VARCHAR[]), unnest($6::BIGINT[]), unnest($7::BIGINT[]), "
            "unnest($8::BIGINT[])",
            *(job, tables, names, [split.status.value for split in moved]),
            *([cursor_text(split.cursor) for split in moved], [split.rows for split in moved]),
            *([split.epoch for split in moved], [split.target for split in moved]),
        )

    def cursor_sql(self) -> str:
        return '"after"::VARCHAR' if self._is_first_layout() else "cursor"

    def upgrades(self) -> list[str]:
        if not self._is_first_layout():
            return []
        splits = self.sql("splits")
        return [
            f'ALTER TABLE {splits} RENAME "after" TO "cursor"',
            f'ALTER TABLE {splits} ALTER "cursor" DROP NOT NULL',
            f'ALTER TABLE {splits} ALTER "cursor" TYPE VARCHAR',
            f'COMMENT ON COLUMN {splits}."cursor" IS {literal(_SPLITS.columns["cursor"][1])}',
            f"UPDATE {self.sql('jobs')} SET layout = {LAYOUT}",
        ]

    def _is_first_layout(self) -> bool:
        found = self.con.rows(
            "SELECT count(*) FROM duckdb_columns() WHERE database_name = current_database() "
            "AND schema_name = $1 AND table_name = $2 AND column_name = 'after'",
            *(self.schema, self.target("splits").table),
        )
        return bool(found[0][0])


class Names(SqlNames):
    """Views in DuckDB refer to tables by name, and so are never left behind."""

    record = LIVE

    def key(self, name: Target) -> tuple[str, ...]:
        return (name.identity,)

    def word(self, name: Target) -> str | None:
        return kind_of(self.con, name)

    def depends(self, name: Target, word: str) -> tuple[str, ...]:
        """Indexes of a table and foreign keys that refer to it: DuckDB does not rename a table that has any."""
        if word != "TABLE":
            return ()
        here = "database_name = current_database() AND lower(schema_name) = lower($1)"
        found = self.con.rows(
            f"SELECT 'index ' || index_name FROM duckdb_indexes() WHERE {here} AND lower(table_name) = lower($2) "
            "UNION SELECT 'a foreign key of table ' || table_name FROM duckdb_constraints() "
            f"WHERE {here} AND lower(referenced_table) = lower($2) "
            "AND lower(table_name) != lower(referenced_table) ORDER BY 1 DESC",
            *(name.schema, name.table),
        )
        return tuple(text for (text,) in found)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.DependencyException, duckdb.CatalogException) as exc:
            raise UsageError(f"nothing has changed: {str(exc).splitlines()[0]}", REPEAT) from exc

    def views_of(self, targets: Sequence[Target]) -> list[tuple[str, str]]:
        """(job, name) of each view that a cutover of the job made of these tables."""
        if LIVE.name not in self.state.there():
            return []
        found = self.con.rows(
            f"SELECT l.job, l.live FROM {self.state.sql('live')} l JOIN {self.state.sql('markers')} m "
            'ON m.job = l.job AND m."table" = l."table" WHERE list_contains($1, m.target) ORDER BY 2',
            [target.identity for target in targets],
        )
        return [(job, name) for job, name in found if kind_of(self.con, DUCKDB.parse(name)) == "VIEW"]


def kind_of(con: Connection, name: Target) -> str | None:
    """TABLE or VIEW; None if nothing has the name."""
    for kind in ("table", "view"):
        if con.rows(
            f"SELECT 1 FROM duckdb_{kind}s() WHERE database_name = current_database() "
            f"AND lower(schema_name) = lower($1) AND lower({kind}_name) = lower($2)",
            *(name.schema, name.table),
        ):
            return kind.upper()
    return None
