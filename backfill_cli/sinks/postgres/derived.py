"""Derived tables in the database."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from backfill_cli.contracts import EpochCommit, SinkTable, derived_table, own
from backfill_cli.model.derived import Derived
from backfill_cli.sinks.postgres.dialect import POSTGRES, listed, sink_columns
from backfill_cli.sinks.postgres.session import client, message_of, sqlstate_of
from backfill_cli.sinks.postgres.staged import stage
from backfill_cli.sinks.postgres.state import State
from backfill_cli.sinks.postgres.tables import Tables
from backfill_cli.sinks.sql.derived import Columns, SqlDerives
from backfill_cli.sinks.sql.dialect import Target, paths_of

Opening = Callable[[str, Sequence[SinkTable]], AbstractContextManager[State]]
_OF_THE_SELECT = ("21", "22", "23", "42", "54", "0A")
"""Classes of SQLSTATE: cardinality, data, constraints, syntax and names, limits, what is not supported."""
_FORBIDDEN = "42501"


class PostgresDerives(SqlDerives[State]):
    system, dialect, tables, holder = "postgres", POSTGRES, Tables, "database"

    """opening: a connection that may write to these tables; None to read alone."""

    def __init__(self, schema: str, opening: Opening | None = None) -> None:
        super().__init__(schema)
        self._opening = opening

    @contextmanager
    def scratch(self) -> Iterator[State]:
        assert self._opening is not None
        with self._opening("checking derived tables", ()) as state:
            yield state

    def opened(self, doing: str, derived: Sequence[Derived]) -> AbstractContextManager[State]:
        assert self._opening is not None
        return self._opening(doing, [derived_table(one) for one in derived])

    @contextmanager
    def known(self, doing: str) -> Iterator[State | None]:
        assert self._opening is not None
        with self._opening(doing, ()) as state:
            yield state

    def columns(self, state: State, relation: str) -> Columns:
        with state.con.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {relation} AS {own.SOURCE} LIMIT 0")
            names = [one[0] for one in cursor.description]
        kinds = ", ".join(f"pg_catalog.pg_typeof({listed([name])})::text" for name in names)
        # of a row that is there in any case
        rows = f"(SELECT * FROM {relation} AS {own.SOURCE} LIMIT 0) AS {own.ROWS}"
        empty = f"(SELECT 1) AS {own.ROW} LEFT JOIN {rows} ON true"
        return tuple(zip(names, state.con.rows(f"SELECT {kinds} FROM {empty}")[0], strict=True))

    def volatile(self, state: State, functions: Sequence[str]) -> list[str]:
        numbers = ", ".join(f"${at}" for at, _ in enumerate(functions, 1))
        found = state.con.rows(
            f"SELECT DISTINCT proname::text FROM pg_catalog.pg_proc WHERE proname IN ({numbers}) "
            "AND (provolatile = 'v' OR proretset) AND pg_catalog.pg_function_is_visible(oid) ORDER BY 1",
            *functions,
        )
        return [name for (name,) in found]

    def changed(self, state: State, commit: EpochCommit, table: SinkTable, name: str) -> None:
        staged = commit.staged.tables[table.name]
        files = [f for held in (staged.inserts, staged.changes) if held for f in paths_of(commit.folder, held)]
        key = tuple(column for column in sink_columns(table.name, table.schema) if column.name in table.key)
        stage(state.con, name, key, files)

    def indexes(self, target: Target, columns: Sequence[str]) -> list[str]:
        return [f"CREATE INDEX ON {target.sql} ({listed(columns)})"] if columns else []

    def said(self, exc: Exception) -> str | None:
        if not isinstance(exc, client().Error):
            return None
        state = sqlstate_of(exc)
        return message_of(exc) if state.startswith(_OF_THE_SELECT) and state != _FORBIDDEN else None
