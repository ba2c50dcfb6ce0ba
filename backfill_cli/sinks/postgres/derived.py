"""Derived tables in the database."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable, derived_table, own
from backfill_cli.model.derived import Derived
from backfill_cli.sinks.postgres.apply import is_plain
from backfill_cli.sinks.postgres.dialect import POSTGRES, listed, sink_columns
from backfill_cli.sinks.postgres.session import client, message_of, sqlstate_of
from backfill_cli.sinks.postgres.staged import stage
from backfill_cli.sinks.postgres.state import State
from backfill_cli.sinks.postgres.tables import Tables
from backfill_cli.sinks.sql.costs import Sizes
from backfill_cli.sinks.sql.derived import Calls, Columns, SqlDerives
from backfill_cli.sinks.sql.dialect import Column, Target

if TYPE_CHECKING:
    from backfill_cli.derived.ranges import RangePartitioning

Opening = Callable[[str, Sequence[SinkTable]], AbstractContextManager[State]]
_OF_THE_SELECT = ("21", "22", "23", "42", "54", "0A")
"""Classes of SQLSTATE: cardinality, data, constraints, syntax and names, limits, what is not supported."""
_FORBIDDEN = "42501"
_LACKS = ("42P01", "42703", "3F000")
"""SQLSTATEs of a table, a column and a schema that do not exist."""
_PECULIAR = """
SELECT what FROM pg_catalog.pg_class AS c, LATERAL (
    SELECT 'UNLOGGED' AS what WHERE c.relpersistence = 'u'
    UNION ALL SELECT 'PARTITION BY' WHERE c.relkind = 'p'
    UNION ALL SELECT 'row-level security' WHERE c.relrowsecurity
    UNION ALL SELECT 'rules' FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = c.oid
    UNION ALL SELECT 'inheritance' FROM pg_catalog.pg_inherits AS i WHERE c.oid IN (i.inhrelid, i.inhparent)
    UNION ALL SELECT 'column ' || pg_catalog.quote_ident(a.attname) || CASE WHEN a.attnotnull THEN ' NOT NULL'
        WHEN a.attgenerated <> '' OR a.attidentity <> '' THEN ' GENERATED' ELSE ' COLLATE ' || l.collname END
    FROM pg_catalog.pg_attribute AS a LEFT JOIN pg_catalog.pg_collation AS l
        ON l.oid = a.attcollation AND NOT l.collisdeterministic
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.attnotnull OR a.attgenerated <> '' OR a.attidentity <> '' OR l.oid IS NOT NULL)
    UNION ALL SELECT pg_catalog.pg_get_constraintdef(k.oid)
    FROM pg_catalog.pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype IN ('c', 'f', 'x')
    UNION ALL SELECT pg_catalog.pg_get_indexdef(x.indexrelid)
    FROM pg_catalog.pg_index AS x WHERE x.indrelid = c.oid AND x.indisunique
) AS found WHERE c.oid = $1::regclass"""
"""What can refuse rows, take two values for one, or lose rows: each as PostgreSQL writes it."""
_WITHOUT_EQUALITY = {"json", "xml", "point", "line", "lseg", "box", "path", "polygon", "circle"}
"""Types that have none, or one that asks for sizes alone."""
_COMPARED = {
    f"{left}_{test}_{right}"
    for left, right in (("date", "timestamptz"), ("timestamp", "timestamptz"))
    for left, right in ((left, right), (right, left))
    for test in ("cmp", "eq", "ge", "gt", "le", "lt", "ne")
}
_STEADY = frozenset(
    _COMPARED
    | {"concat", "concat_ws", "textanycat", "anytextcat", "format", "quote_literal", "quote_nullable", "length"}
    | {"array_to_string", "array_to_json", "row_to_json", "to_json", "to_jsonb", "convert", "convert_from"}
    | {"convert_to", "json_build_array", "json_build_object", "jsonb_build_array", "jsonb_build_object"}
    | {"date", "time", "timetz", "timestamp", "timestamptz", "timezone", "overlaps", "numeric", "money"}
    | {"interval_in", "cash_in", "enum_in"}
    | {"date_part", "date_trunc", "extract", "make_timestamptz", "to_char", "to_date", "to_number"}
    | {"to_timestamp", "interval_pl_timestamptz", "timestamptz_pl_interval", "timestamptz_mi_interval"}
)
"""STABLE functions that depend on their arguments, and on the session's formats and time zone, which are set."""


SAMPLED = 200_000
"""Rows by which ranges are made."""
DEARER = 1.25
"""How often the cost of one SELECT the ranges of a fill may cost."""
_OF_TEXTS = frozenset({"date_in", "time_in", "timetz_in", "timestamp_in", "timestamptz_in"})


class PostgresDerives(SqlDerives[State]):
    system, dialect, tables, holder, temporary = "postgres", POSTGRES, Tables, "database", "pg_temp"

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

    def called(self, state: State, select: str) -> Iterator[tuple[str, Calls]]:
        """As the rule of a view has them, by number: no name is looked up twice."""
        found = _of_view(
            state,
            select,
            "SELECT DISTINCT p.proname::text, p.prokind::text, p.provolatile::text, p.proretset, p.oid < 16384 "
            "FROM (SELECT one[1] AS what, one[2]::oid AS id FROM pg_catalog.pg_rewrite, "
            "pg_catalog.regexp_matches(ev_action::text, "
            "':(funcid|aggfnoid|winfnoid|opno|resulttype) ([0-9]+)', 'g') AS one "
            "WHERE ev_class = $1::regclass) AS used "
            "LEFT JOIN pg_catalog.pg_operator AS o ON what = 'opno' AND o.oid = id "
            "LEFT JOIN pg_catalog.pg_type AS t ON what = 'resulttype' AND t.oid = id "
            "JOIN pg_catalog.pg_proc AS p ON p.oid = "
            "CASE what WHEN 'opno' THEN o.oprcode WHEN 'resulttype' THEN t.typinput ELSE id END",
        )
        for name, kind, volatility, several, built_in in found:
            if kind in ("a", "w"):
                yield name, Calls.ROWS if built_in else Calls.FOREIGN_ROWS
            elif built_in and name in _OF_TEXTS:
                yield name, Calls.TEXT
            elif several or not (volatility == "i" or (built_in and name in _STEADY and volatility == "s")):
                yield name, Calls.MORE
            else:
                yield name, Calls.ARGUMENTS

    def scanned(self, state: State, select: str) -> set[str]:
        """What a view of it depends on."""
        found = _of_view(
            state,
            select,
            "SELECT DISTINCT c.relname::text FROM pg_catalog.pg_rewrite AS r JOIN pg_catalog.pg_depend AS d "
            "ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid "
            "AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid <> r.ev_class "
            "JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid WHERE r.ev_class = $1::regclass",
        )
        return {name for (name,) in found}

    def summing_floats(self, state: State, select: str) -> set[str]:
        found = _of_view(
            state,
            select,
            "SELECT DISTINCT p.proname::text FROM pg_catalog.pg_rewrite, pg_catalog.regexp_matches("
            "ev_action::text, ':(aggfnoid|winfnoid) ([0-9]+)', 'g') AS one JOIN pg_catalog.pg_proc AS p "
            "ON p.oid = one[2]::oid WHERE ev_class = $1::regclass "
            "AND p.proargtypes::oid[] && ARRAY['real'::regtype, 'double precision'::regtype]::oid[]",
        )
        return {name for (name,) in found}

    def peculiar(self, state: State, target: Target) -> str:
        found = state.con.rows(_PECULIAR, target.sql)
        return "; ".join(what for (what,) in found)

    def reserved(self, state: State, target: Target) -> str:
        if target.schema == "information_schema" or target.schema.startswith("pg_"):
            return "the schema is PostgreSQL's own"
        found = state.con.rows(
            "SELECT 1 FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace "
            "WHERE n.nspname = $1 AND t.typname = $2",
            *(target.schema, target.table),
        )
        return "a type has that name" if found else ""

    def lacks(self, exc: Exception) -> bool:
        return isinstance(exc, client().Error) and sqlstate_of(exc) in _LACKS

    def takes(self, state: State, tables: Sequence[SinkTable]) -> bool:
        dialect = self.dialect
        return all(
            is_plain(state.con, dialect.target_of(one, self.schema), sink_columns(one.name, one.schema))
            for one in tables
        )

    def changed(self, state: State, name: str, key: tuple[Column, ...], files: list[str]) -> None:
        stage(state.con, name, key, files)

    def comparable(self, value: str, kind: str) -> str:
        return f"CAST({value} AS text)" if kind.removesuffix("[]") in _WITHOUT_EQUALITY else value

    def indexes(self, state: State, target: Target, columns: Sequence[str]) -> list[str]:
        there = state.con.rows(
            "SELECT 1 FROM pg_catalog.pg_index AS i WHERE i.indrelid = $1::regclass AND i.indpred IS NULL AND "
            "(SELECT pg_catalog.array_agg(a.attname::text ORDER BY k.at) FROM "
            "pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, at) "
            "JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number) = $2::text[]",
            *(target.sql, list(columns)),
        )
        return [f"CREATE INDEX ON {target.sql} ({listed(columns)})"] if columns and not there else []

    def unindexed(self, state: State, target: Target, column: str) -> str | None:
        there = state.con.rows(
            "SELECT 1 FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid "
            "AND a.attnum = i.indkey[0] WHERE i.indrelid = $1::regclass AND i.indisvalid AND i.indpred IS NULL "
            "AND a.attname = $2",
            *(target.sql, column),
        )
        return None if there else f"CREATE INDEX ON {target.sql} ({listed([column])})"

    def groups(self, state: State, target: Target, columns: Sequence[str], nulls: bool = True) -> Sizes | None:
        """By the statistics of one column."""
        if len(columns) != 1:
            return None
        found = state.con.rows(
            "SELECT c.reltuples::double precision, s.n_distinct::double precision, "
            "s.null_frac::double precision, coalesce(s.most_common_freqs, '{}')::double precision[] "
            "FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
            "JOIN pg_catalog.pg_stats AS s ON s.schemaname = n.nspname AND s.tablename = c.relname "
            "WHERE c.oid = $1::regclass AND c.reltuples > 0 AND s.attname = $2 ORDER BY s.inherited DESC LIMIT 1",
            *(target.sql, columns[0]),
        )
        if not found:
            return None
        rows, distinct, null, common = found[0]
        sizes = [(share * rows, 1.0) for share in ([null, *common] if nulls else common) if share > 0]
        others = rows * (1 - null - sum(common))
        rest = min((distinct if distinct > 0 else -distinct * rows) - len(common), others)
        if round(others) > 0 and rest > 0:
            sizes.append((others / rest, rest))
        return Sizes(sizes, "by PostgreSQL's statistics") if sizes else None

    def size(self, state: State, relation: str) -> int:
        return int(state.con.plan(f"SELECT FROM {relation}")["Plan Rows"])

    def quantiles(self, state: State, relation: str, column: str, shares: Sequence[float]) -> list[str]:
        # what the ranges cost is told by the column's statistics, too
        state.con.run(f"ANALYZE {relation} ({column})")
        share = min(100.0, 100.0 * SAMPLED / max(self.size(state, relation), 1))
        found = state.con.rows(
            f"SELECT CAST({own.VALUE} AS text) FROM (SELECT DISTINCT pg_catalog.unnest("
            f"pg_catalog.percentile_disc(ARRAY[{', '.join(map(str, shares))}]::double precision[]) "
            f"WITHIN GROUP (ORDER BY {column})) AS {own.VALUE} FROM {relation} TABLESAMPLE SYSTEM ({share})) AS "
            f"{own.SOURCE} ORDER BY {own.SOURCE}.{own.VALUE}"
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
        """By the planner's costs."""
        once, each = (state.con.plan(select)["Total Cost"] for select in (whole, middle))
        return bool((len(bounds) + 1) * each <= DEARER * once)

    def granted(self, state: State, old: Target, new: Target) -> list[str]:
        found = state.con.rows(
            "SELECT DISTINCT one.privilege_type, CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE "
            "pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(one.grantee)) END, one.is_grantable "
            "FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS one "
            "WHERE c.oid = $1::regclass AND one.grantee <> c.relowner",
            old.sql,
        )
        return [
            f"GRANT {privilege} ON TABLE {new.sql} TO {to}{' WITH GRANT OPTION' if passed else ''}"
            for privilege, to, passed in found
        ]

    def said(self, exc: Exception) -> str | None:
        if not isinstance(exc, client().Error):
            return None
        state = sqlstate_of(exc)
        return message_of(exc) if state.startswith(_OF_THE_SELECT) and state != _FORBIDDEN else None


def _of_view(state: State, select: str, question: str) -> list[tuple[Any, ...]]:
    """What the catalog says of a view of this SELECT. question: SQL; $1: the view's name."""
    state.con.run(f"CREATE TEMPORARY VIEW {own.DERIVED} AS {select}")
    found = state.con.rows(question, own.DERIVED)
    state.con.run(f"DROP VIEW {own.DERIVED}")
    return found
