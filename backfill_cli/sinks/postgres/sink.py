"""The PostgreSQL sink: all tables of an epoch and their markers are written in one transaction of the database.

Reading order: `tables` creates tables, and refuses unsuitable ones; `apply` writes an epoch's rows as the shape of
their table requires, `staged` sends them; `state` keeps the side tables, `session` connects and translates the
database's errors, `explain` names the rows that the database refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SinkCapabilities, SinkExtras, SinkTable
from backfill_cli.errors import BadData, of_table
from backfill_cli.sinks.postgres import PostgresOptions
from backfill_cli.sinks.postgres.apply import apply, check_unique
from backfill_cli.sinks.postgres.derived import PostgresDerives
from backfill_cli.sinks.postgres.dialect import POSTGRES
from backfill_cli.sinks.postgres.explain import deferred, explained
from backfill_cli.sinks.postgres.session import Place, client, opened
from backfill_cli.sinks.postgres.staged import Refused
from backfill_cli.sinks.postgres.state import Names, State, side_targets
from backfill_cli.sinks.postgres.tables import Tables, places
from backfill_cli.sinks.sql.dialect import Target
from backfill_cli.sinks.sql.sink import SqlSink
from backfill_cli.sinks.sql.transition import TransitionTable

if TYPE_CHECKING:
    from backfill_cli.sinks.postgres.verify import PostgresCopy


class PostgresSink(SqlSink[State]):
    """`contracts.Sink` over one database. Each call opens a connection and closes it."""

    holder = "database"
    tables = Tables
    names = Names
    capabilities = SinkCapabilities(True, True, frozenset(POSTGRES.logical))

    def __init__(self, options: PostgresOptions) -> None:
        self.place = Place.of(options.dsn)
        self.schema = options.in_schema
        derives = PostgresDerives(self.schema, self.opened)
        self.extras = SinkExtras(copied=self.copied, cutover=self, clock_ms=self.clock_ms, derives=derives)

    @contextmanager
    def opened(
        self,
        doing: str,
        tables: Sequence[SinkTable] | None = None,
        read_only: bool = False,
        folder: str | None = None,
    ) -> Iterator[State]:
        names: list[Target] = []
        if tables is not None:  # an error of the database names a table without its schema
            targets = (POSTGRES.target_of(table, self.schema) for table in tables)
            names = [*targets, *side_targets(self.schema)]
        with opened(self.place, doing, names) as con:
            yield State(con, self.schema)

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        with self.opened("locating the job's tables", tables) as state:
            return places(state.con, tables, self.schema)

    def write(
        self, state: State, commit: EpochCommit, due: Sequence[SinkTable], taken: Mapping[str, TransitionTable]
    ) -> None:
        con = state.con
        con.run("SET CONSTRAINTS ALL DEFERRED")
        for table in due:
            with of_table(table.name), _refusals(partial(explained, state, commit, table)):
                apply(state, commit, table, taken.get(table.name))
                if table.name in commit.unique:
                    check_unique(state, table)
        with _refusals(deferred):
            con.run("SET CONSTRAINTS ALL IMMEDIATE")

    def copied(self, job: str, live: bool, folder: Path) -> "AbstractContextManager[PostgresCopy]":
        from backfill_cli.sinks.postgres.verify import copied

        return copied(self.place, self.schema, job, folder)

    def clock_ms(self) -> int:
        with self.opened("reading its clock") as state:
            ((now_ms,),) = state.con.rows("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            return int(now_ms)


@contextmanager
def _refusals(explain: Callable[[Exception], BadData | None]) -> Iterator[None]:
    """What the database refuses in the block is raised as `explain` tells it; as it is, if that is None."""
    try:
        yield
    except (client().Error, Refused) as exc:
        told = explain(exc)
        if told is None:
            raise
        raise told from exc
