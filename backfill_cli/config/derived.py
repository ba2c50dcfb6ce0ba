"""`[[derived]]`: a table of the sink that equals a SELECT over the job's tables at every commit.

What its SELECT may be is asked of the sink: it is SQL of that system.
"""

from typing import Literal

from pydantic import Field

from backfill_cli.config.section import KeyColumns, Section, TableName
from backfill_cli.model.derived import Derived


class DerivedSection(Section):
    name: TableName = Field(description="Its name, which differs from those of the job's tables.")
    key: KeyColumns = Field(
        default_factory=list,
        description="Columns of the result that identify a row. Not needed where the result is one row "
        "(aggregates without GROUP BY).",
    )
    sql: str = Field(
        min_length=1,
        description="A SELECT over the job's tables, and over derived tables, in the SQL of the sink's system. "
        "They are called by their names, or by the last part of these.",
    )
    target: TableName | None = Field(
        default=None, description='The table in the sink, `"schema.name"` or a name. Default: its name.'
    )

    refresh: Literal["full"] | None = Field(
        default=None,
        description='"full": each commit that changes a table that it reads runs its whole SELECT, and writes the '
        "rows that differ. For a SELECT with FULL JOIN, subqueries in expressions, UNION, EXCEPT, LIMIT or "
        "WITH RECURSIVE, in DuckDB and PostgreSQL. Default: only what a change reaches is computed.",
    )

    @property
    def sink_name(self) -> str:
        return self.target or self.name

    @property
    def value(self) -> Derived:
        return Derived(self.name, self.sink_name, tuple(self.key), self.sql, self.refresh or "")
