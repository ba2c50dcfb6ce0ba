"""`[[derived]]`: a table of the sink that equals a SELECT over the job's tables at every commit.

What its SELECT may be is asked of the sink: it is SQL of that system.
"""

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

    @property
    def sink_name(self) -> str:
        return self.target or self.name

    @property
    def value(self) -> Derived:
        return Derived(self.name, self.sink_name, tuple(self.key), self.sql)
