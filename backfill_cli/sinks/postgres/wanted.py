"""A table as the job needs it in PostgreSQL: its columns, its key, its DDL."""

from dataclasses import dataclass

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BadData
from backfill_cli.sinks.postgres.sql import Target, listed, quoted
from backfill_cli.sinks.postgres.types import Column, sink_columns


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table as the job needs it."""

    table: SinkTable
    target: Target
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, table: SinkTable, schema: str) -> "Wanted":
        columns = sink_columns(table.name, table.schema)
        types = {column.name: column.type for column in columns}
        for name in table.key:
            if name not in types:
                raise BadData(
                    f"table {table.name!r}: its key column {name!r} is not among its columns",
                    f'add it to the transform: select = ["{name}", …]',
                )
            if types[name] == "json":
                raise BadData(
                    f"table {table.name!r}: its key column {name!r} is json, which PostgreSQL cannot compare",
                    f'convert it to text in the transform: select = ["CAST({name} AS STRING) AS {name}", …]',
                )
        return cls(table, Target.of(table, schema), columns)

    def create(self) -> str:
        """DDL for the whole table; its key is the primary key."""
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)
        return f"CREATE TABLE {self.target.sql} ({columns}, PRIMARY KEY ({listed(self.table.key)}))"
