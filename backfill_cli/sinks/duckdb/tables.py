"""The tables of the file: which exist, and the DDL of what they lack."""

from collections.abc import Sequence

import duckdb

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import DEPENDENT, other_type, rows_of_others
from backfill_cli.errors import UsageError, command
from backfill_cli.sinks.duckdb.dialect import quoted, sink_columns
from backfill_cli.sinks.duckdb.state import Names, State, kind_of
from backfill_cli.sinks.sql.dialect import Column, Target
from backfill_cli.sinks.sql.tables import SqlTables, Wanted


class Tables(SqlTables[State]):
    def columns(self, table: SinkTable) -> tuple[Column, ...]:
        return sink_columns(table.name, table.schema)

    def exists(self, target: Target) -> bool:
        kind = kind_of(self.con, target)
        if kind == "VIEW":
            raise UsageError(f"{target} is a view, not a table", "name another target")
        return kind is not None

    def creation(self, want: Wanted) -> list[str]:
        columns = (
            f"{quoted(column.name)} {column.type}{' NOT NULL' if column.name in want.table.key else ''}"
            for column in want.columns
        )
        create = f"CREATE TABLE {want.target.sql} ({', '.join(columns)})"
        return [*self.state.schema_ddl(want.target.schema), create]

    def addition(self, job: str, want: Wanted, ours: bool) -> list[str]:
        target = want.target
        if not ours and self.con.rows(f"SELECT 1 FROM {target.sql} LIMIT 1"):
            raise rows_of_others(str(target))
        there = self._types(target)
        added = []
        for column, kind in zip(want.columns, self._canonical(want.columns), strict=True):
            held = there.get(column.name.lower())
            if held is None:
                added.append(f"ALTER TABLE {target.sql} ADD COLUMN {quoted(column.name)} {column.type}")
            elif held != kind:
                raise other_type(column.name, str(target), held, kind)
        return added

    def drop(self, targets: Sequence[Target]) -> None:
        """In reverse order: a table that refers to another is listed after it."""
        if views := Names(self.state).views_of(targets):
            job, names = views[0][0], ", ".join(name for _, name in views)
            raise UsageError(
                f"{names}: views of the job's tables, created by a cutover, still exist",
                "reverse it first: "
                + command(f"cutover {job} --reverse")
                + " (the config must still have tables.live); or omit --with-rows to keep the tables",
            )
        for target in reversed(targets):
            try:
                self.con.run(f"DROP TABLE IF EXISTS {target.sql}")
            except duckdb.Error as exc:
                said = str(exc).splitlines()[0]
                raise UsageError(f"table {target} cannot be dropped: {said}", DEPENDENT) from exc

    def _types(self, target: Target) -> dict[str, str]:
        """Lower-case column name -> type, as DuckDB writes it."""
        found = self.con.rows(
            "SELECT lower(column_name), data_type FROM duckdb_columns() "
            "WHERE database_name = current_database() "
            "AND lower(schema_name) = lower($1) AND lower(table_name) = lower($2)",
            *(target.schema, target.table),
        )
        return dict(found)

    def _canonical(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """The columns' types in DuckDB's own spelling, for comparison with an existing table."""
        return self.con.rows("SELECT " + ", ".join(f"typeof(CAST(NULL AS {one.type}))" for one in columns))[0]
