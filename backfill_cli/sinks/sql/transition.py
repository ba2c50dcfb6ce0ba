"""The changed rows of a table, as its part of a commit is written, like the transition tables of a trigger."""

from dataclasses import dataclass

from backfill_cli.contracts import own
from backfill_cli.sinks.sql.dialect import SqlDialect, Target


@dataclass(frozen=True, slots=True)
class TransitionTable:
    """name: of a temporary table that gets these columns of the rows as they were, own.SIGN being -1, and of those
    that come, it being 1, converted as for the table itself, whose types it has.
    """

    name: str
    columns: tuple[str, ...]
    dialect: SqlDialect

    def creation(self, target: Target) -> str:
        listed = self.dialect.listed(self.columns)
        return f"CREATE TEMP TABLE {self.name} AS SELECT {listed}, 1 AS {own.SIGN} FROM {target.sql} WHERE FALSE"

    def deleted(self, delete: str, row: str) -> str:
        """A DELETE that has no RETURNING, of rows called `row`, which gives them here."""
        listed = self.dialect.listed(self.columns, row)
        return (
            f"WITH {own.GONE} AS ({delete} RETURNING {listed}) "
            f"INSERT INTO {self.name} SELECT *, -1 FROM {own.GONE}"
        )

    def inserted(self, rows: str, row: str = "") -> str:
        """rows: what follows FROM; they are called `row`."""
        listed = self.dialect.listed(self.columns, row)
        return f"INSERT INTO {self.name} SELECT {listed}, 1 FROM {rows}"
