"""Derived tables in the DuckDB file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from backfill_cli.contracts import SinkTable, derived_table, own
from backfill_cli.duckdb_errors import ErrorKind, classify, text
from backfill_cli.model.derived import Derived
from backfill_cli.sinks.duckdb.dialect import DUCKDB, State, quoted
from backfill_cli.sinks.duckdb.file import scratch
from backfill_cli.sinks.duckdb.tables import Tables
from backfill_cli.sinks.sql.costs import Sizes
from backfill_cli.sinks.sql.derived import Calls, Columns, SqlDerives
from backfill_cli.sinks.sql.dialect import Column, Target, literal

if TYPE_CHECKING:
    from backfill_cli.derived.ranges import RangePartitioning

Opening = Callable[[str, Sequence[SinkTable], bool], AbstractContextManager[State]]
LOOKED_AT = 1_000_000
"""Rows that `plan` reads to tell how large groups are: less than 0.1 s."""
SAMPLED = 200_000
"""Rows by which ranges are made."""
ROW_GROUP = 122_880
"""Rows that DuckDB leaves unread together, by their least and greatest values."""
DEARER, READ_AGAIN = 0.1, 2.0
"""What a fill by ranges may read beside one SELECT: how many rows of other tables again, of all rows; and how
often it may read a part of the table whose ranges are taken, mostly the column alone.
"""
_WHOLE_DIGITS = 18
"""Of the decimals of which it makes an average by whole numbers."""
_OF_SESSION = {"getvariable", "in_search_path", "current_setting"}
_MACROS = frozenset(
    {"nullif", "if", "fdiv", "fmod", "split_part", "array_to_string", "days_in_month", "date_add"}
    | {"list_max", "list_min", "list_sum", "list_count", "list_append", "list_prepend", "list_reverse"}
)
"""Macros of DuckDB's own that depend on their arguments alone; of the others nothing is known."""
_PASSING = {ErrorKind.HELD, ErrorKind.OPEN_HERE, ErrorKind.NO_ROOM, ErrorKind.MEMORY, ErrorKind.DAMAGED}


class DuckDBDerives(SqlDerives[State]):
    system, dialect, tables, holder, temporary = "duckdb", DUCKDB, Tables, "file", "main"

    """opening: a connection that may write to these tables, or read only; there: whether there is a file.

    None to read on a connection that is there.
    """

    def __init__(self, opening: Opening | None = None, there: Callable[[], bool] = lambda: True) -> None:
        super().__init__(DUCKDB.schema)
        self._opening, self._there = opening, there

    @contextmanager
    def scratch(self) -> Iterator[State]:
        with scratch() as con:
            yield State(con, self.schema)

    def opened(self, doing: str, derived: Sequence[Derived]) -> AbstractContextManager[State]:
        assert self._opening is not None
        return self._opening(doing, [derived_table(one) for one in derived], False)

    @contextmanager
    def known(self, doing: str) -> Iterator[State | None]:
        assert self._opening is not None
        if self._there():
            with self._opening(doing, (), True) as state:
                yield state
        else:
            yield None

    def columns(self, state: State, relation: str) -> Columns:
        return tuple((name, kind) for name, kind, *_ in state.con.rows(f"DESCRIBE SELECT * FROM {relation}"))

    def called(self, state: State, select: str) -> Iterator[tuple[str, Calls]]:
        """What depends on the time zone has one, UTC. Macros are refused but for a few: they can be anything."""
        tree = json.loads(state.con.rows("SELECT json_serialize_sql($1)", select)[0][0])
        known = _functions(state)
        for name, table in set(_calls(tree, False)):
            kinds = known.get(name, frozenset())
            if not table and kinds & {("aggregate", "CONSISTENT"), ("window", "CONSISTENT")}:
                yield name, Calls.ROWS
            elif table or not (("scalar", "CONSISTENT") in kinds or name in _MACROS) or name in _OF_SESSION:
                yield name, Calls.MORE
            else:
                yield name, Calls.ARGUMENTS

    def scanned(self, state: State, select: str) -> set[str]:
        return {name for one, name in _planned(state, select) if one == "table"}

    def summing_floats(self, state: State, select: str) -> set[str]:
        return {name for one, name in _planned(state, select) if one == "floats"}

    def peculiar(self, state: State, target: Target) -> str:
        """As DuckDB writes the table, beside how it writes one of its names and types alone."""
        spelt = (
            "SELECT sql FROM duckdb_tables() WHERE (temporary OR database_name = current_database()) "
            "AND lower(schema_name) = lower($1) AND lower(table_name) = lower($2)"
        )
        plain, listed = own.HELD, self.columns(state, target.sql)
        state.con.run(
            f"CREATE TEMP TABLE {plain} ({', '.join(f'{quoted(name)} {kind}' for name, kind in listed)})"
        )
        ((bare,),) = state.con.rows(spelt, "main", plain)
        state.con.run(f"DROP TABLE {plain}")
        ((there,),) = state.con.rows(spelt, target.schema, target.table)
        if not there.endswith(bare[bare.index("(") :]):
            return str(there).rstrip(";")
        unique = "SELECT sql FROM duckdb_indexes() WHERE is_unique AND table_oid = (SELECT table_oid FROM ({}))"
        named = unique.format(spelt.replace("SELECT sql", "SELECT table_oid")) + " AND schema_name = $1"
        return "; ".join(str(sql).rstrip(";") for (sql,) in state.con.rows(named, target.schema, target.table))

    def lacks(self, exc: Exception) -> bool:
        return isinstance(exc, (duckdb.CatalogException, duckdb.BinderException))

    def hidden(self, state: State) -> frozenset[str]:
        # without a call that a macro could hide
        found = state.con.rows("SELECT function_name FROM duckdb_functions() WHERE NOT internal")
        return frozenset(name.lower() for (name,) in found)

    def takes(self, state: State, tables: Sequence[SinkTable]) -> bool:
        return not state.con.rows("SELECT 1 FROM duckdb_triggers() LIMIT 1")

    def changed(self, state: State, name: str, key: tuple[Column, ...], files: list[str]) -> None:
        columns = ", ".join(f"CAST({quoted(one.name)} AS {one.type}) AS {quoted(one.name)}" for one in key)
        read = f"read_parquet([{', '.join(map(literal, files))}], hive_partitioning = false, union_by_name = true)"
        state.con.run(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT {columns} FROM {read}")

    def settled(self, state: State) -> None:
        state.con.run("CHECKPOINT")  # as after other DDL

    def groups(self, state: State, target: Target, columns: Sequence[str], nulls: bool = True) -> Sizes | None:
        listed = ", ".join(map(quoted, columns))
        where = "" if nulls else " WHERE " + " AND ".join(f"{quoted(name)} IS NOT NULL" for name in columns)
        sizes = state.con.rows(
            f"SELECT n, count(*) FROM (SELECT count(*) AS n FROM (SELECT {listed} FROM {target.sql} "
            f"LIMIT {LOOKED_AT}){where} GROUP BY {listed}) GROUP BY n"
        )
        if not sizes:
            return None
        rows = self.size(state, target.sql)
        looked = f"its first {LOOKED_AT:,} of {rows:,} rows" if rows > LOOKED_AT else "all of its rows"
        return Sizes(sizes, f"by {looked}")

    def size(self, state: State, relation: str) -> int:
        return int(state.con.rows(f"SELECT count(*) FROM {relation}")[0][0])  # of the file's metadata

    def quantiles(self, state: State, relation: str, column: str, shares: Sequence[float]) -> list[str]:
        some = f"SELECT {column} AS {own.VALUE} FROM {relation} USING SAMPLE {SAMPLED} ROWS"
        found = state.con.rows(
            f"SELECT CAST({own.VALUE} AS text) FROM (SELECT DISTINCT unnest(quantile_disc({own.VALUE}, "
            f"[{', '.join(map(str, shares))}])) AS {own.VALUE} FROM ({some})) ORDER BY {own.VALUE}"
        )
        return [value for (value,) in found if value is not None]

    def is_cheap(
        self,
        state: State,
        by: "RangePartitioning",
        bounds: Sequence[str],
        rows: int,
        others: int,
        whole: str,
        middle: str,
    ) -> bool:
        """Each range reads the other tables again, and the parts of its own whose least and greatest values do not
        rule them out.
        """
        if len(bounds) * others > DEARER * (rows + others):
            return False
        groups = (
            f"SELECT min({by.column}) AS {own.AT}, max({by.column}) AS {own.LAST} FROM {by.base.sql} "
            f"GROUP BY rowid // {ROW_GROUP}"
        )
        crossed = " + ".join(
            f"coalesce(CAST({own.AT} <= {bound} AND {own.LAST} > {bound} AS INTEGER), 0)" for bound in bounds
        )
        ((times,),) = state.con.rows(f"SELECT avg(1 + {crossed}) FROM ({groups})")
        return bool(times <= READ_AGAIN)

    def said(self, exc: Exception) -> str | None:
        if not isinstance(exc, duckdb.Error) or classify(exc) in _PASSING:
            return None
        return text(exc)


_FUNCTIONS: dict[str, frozenset[tuple[str, str | None]]] = {}


def _functions(state: State) -> Mapping[str, frozenset[tuple[str, str | None]]]:
    """DuckDB's own: by name, kinds (scalar, aggregate, …) and what the value of each depends on.

    Asked once: they are the program's, the same in every database, as no extension is loaded.
    """
    if not _FUNCTIONS:
        found = state.con.rows(
            "SELECT lower(function_name), list(DISTINCT (function_type, stability)) FROM duckdb_functions() "
            "WHERE internal GROUP BY 1"
        )
        _FUNCTIONS.update({name: frozenset(kinds) for name, kinds in found})
    return _FUNCTIONS


def _calls(tree: Any, table: bool) -> Iterator[tuple[str, bool]]:
    """Functions that a parsed statement calls, and whether as a table in FROM."""
    if isinstance(tree, dict):
        if name := tree.get("function_name"):
            yield name.lower(), table
        for key, value in tree.items():
            yield from _calls(value, tree.get("type") == "TABLE_FUNCTION" and key == "function")
    elif isinstance(tree, list):
        for one in tree:
            yield from _calls(one, table)


def _planned(state: State, select: str) -> Iterator[tuple[str, str]]:
    """("table", what a SELECT's plan reads), ("floats", an aggregate that it calls of floating-point numbers)."""
    plan = json.loads(state.con.rows("SELECT json_serialize_plan($1)", select)[0][0])
    if plan["error"]:
        yield "table", str(plan.get("error_message", plan.get("error_type")))
        return
    left = [plan["plans"]]
    while left:
        tree = left.pop()
        if isinstance(tree, list):
            left += tree
        elif isinstance(tree, dict):
            left += tree.values()
            if tree.get("type") == "LOGICAL_GET":
                yield "table", (tree.get("function_data") or {}).get("table") or str(tree["qname"])
            if tree.get("expression_class") in ("BOUND_AGGREGATE", "BOUND_WINDOW") and tree.get("qname"):
                name = tree["qname"]["path"][-1]
                if any(_adds_up_floats(name, one) for one in tree["arguments"]):
                    yield "floats", name


def _adds_up_floats(name: str, kind: Mapping[str, Any]) -> bool:
    """Whether an aggregate of this type of argument adds floating-point numbers."""
    large = kind["id"] in ("HUGEINT", "UHUGEINT") or (kind["type_info"] or {}).get("width", 0) > _WHOLE_DIGITS
    return kind["id"] in ("FLOAT", "DOUBLE") or (name == "avg" and large)
