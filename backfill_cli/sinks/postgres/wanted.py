"""A table as the job needs it in PostgreSQL: its columns, its key, its DDL."""

from dataclasses import dataclass

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.targets import require_key
from backfill_cli.errors import BadData
from backfill_cli.sinks.postgres.sql import Target, listed, quoted
from backfill_cli.sinks.postgres.types import Column, sink_columns
from backfill_cli.spark.names import in_select, plain


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
        require_key(table, types)
        for name in table.key:
            if types[name] == "json":
                raise BadData(
                    f"table {table.name!r}: its key column {name!r} is json, which PostgreSQL cannot compare",
                    f"convert it to text in the transform: {in_select(f'CAST({plain(name)} AS STRING)', name)}",
                )
        return cls(table, Target.of(table, schema), columns)

    def create(self) -> str:
        """DDL for the whole table; its key is the primary key."""
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)
        return f"CREATE TABLE {self.target.sql} ({columns}, PRIMARY KEY ({listed(self.table.key)}))"
