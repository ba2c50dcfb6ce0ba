"""The side tables of a schema, and the names that people query."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from backfill_cli.contracts import own
from backfill_cli.contracts.refusals import REPEAT
from backfill_cli.errors import BackfillError, UsageError, in_config
from backfill_cli.model.position import cursor_text
from backfill_cli.model.split import SplitKey, SplitProgress
from backfill_cli.sinks.postgres.dialect import POSTGRES, quoted
from backfill_cli.sinks.postgres.session import Connection, client, message_of, sqlstate_of
from backfill_cli.sinks.sql.dialect import Target
from backfill_cli.sinks.sql.live import SqlNames
from backfill_cli.sinks.sql.state import FILLS, PARTIALS, SqlState, live_table, side_tables

LAYOUT = 1
LIVE = live_table(
    {"schema": ("text", "schema of the name that is a view of it"), "name": ("text", "the name itself")},
    "new name of what had the name before",
)
_SIDE_TABLES = side_tables("database", LAYOUT, "schema.table that the job writes")
_WORDS = {"r": "TABLE", "p": "TABLE", "f": "FOREIGN TABLE", "v": "VIEW", "m": "MATERIALIZED VIEW"}
_DEPENDS = """
    SELECT DISTINCT 'view ' || d.refobjid::regclass || ' is read by ' || r.ev_class::regclass
    FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
    AND d.refobjid = $1::regclass AND r.ev_class <> $1::regclass
    UNION SELECT 'foreign key ' || conname || ' of ' || conrelid::regclass FROM pg_catalog.pg_constraint
    WHERE contype = 'f' AND confrelid = $1::regclass AND conrelid <> $1::regclass ORDER BY 1"""
"""SQL: what refers to the relation by its OID, and so keeps using it after it is renamed."""
_READERS = """
    SELECT CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(r.rolname) END
    FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) g
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = g.grantee
    WHERE c.oid = $1::regclass AND g.privilege_type = 'SELECT' AND g.grantee <> c.relowner
    UNION SELECT pg_catalog.quote_ident(r.rolname) FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
    WHERE c.oid = $1::regclass AND r.rolname <> current_user"""
DEPENDED_ON = "2BP01"
"""SQLSTATE dependent_objects_still_exist"""
_WRONG_NAME_OR_RIGHT = "42"
"""The SQLSTATE class for names that are taken or of another kind, and for missing privileges."""
_ONE_AT_A_TIME = 0x6261636B66696C6C
""""backfill" in hex: the advisory lock that jobs take while they create tables."""


def take_turns(con: Connection) -> None:
    """No other job can create tables until this transaction ends."""
    con.rows(f"SELECT pg_catalog.pg_advisory_xact_lock({_ONE_AT_A_TIME})::text")


def kind_of(con: Connection, name: Target) -> str | None:
    """What has the name, as pg_class.relkind; None if nothing has it."""
    found = con.rows(
        "SELECT c.relkind::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        *(name.schema, name.table),
    )
    return found[0][0] if found else None


class State(SqlState):
    con: Connection
    dialect = POSTGRES
    layout = LAYOUT
    tables = (*_SIDE_TABLES, LIVE, PARTIALS, FILLS)
    required = frozenset(side.name for side in _SIDE_TABLES)

    def there(self) -> list[str]:
        names = [own.PREFIX + side.name for side in self.tables]
        numbers = ", ".join(f"${at}" for at, _ in enumerate(names, 2))
        found = self.con.rows(
            "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname IN ({numbers})",
            *(self.schema, *names),
        )
        return [side.name for side in self.tables if (own.PREFIX + side.name,) in found]

    def create_owners(self) -> None:
        take_turns(self.con)
        if not self.exists():
            for statement in self.required_ddl():
                self.con.run(statement)
        self.con.run(f"LOCK TABLE {self.sql('owners')} IN SHARE ROW EXCLUSIVE MODE")

    def required_ddl(self) -> list[str]:
        return [*self.schema_ddl(self.schema), *super().required_ddl()]

    def schema_ddl(self, schema: str) -> list[str]:
        # IF NOT EXISTS alone needs the right to create schemas even if the schema exists.
        if self.con.rows("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", schema):
            return []
        return [f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"]

    def drop_unused(self) -> None:
        """They stay if this role could not make them again, when somebody uses them now or depends on them."""
        with suppress(BackfillError, client().Error):
            take_turns(self.con)
            tables = [self.sql(name) for name in self.there()]
            may_create = "SELECT pg_catalog.has_schema_privilege($1, 'CREATE')"
            if not tables or not self.con.rows(may_create, self.schema)[0][0]:
                return
            self.con.run(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE NOWAIT")
            if not any(self.con.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in tables):
                self.con.run(f"DROP TABLE {', '.join(tables)}")
                self.con.commit()

    def save_splits(self, job: str, splits: Mapping[SplitKey, SplitProgress]) -> None:
        moved = [
            {
                "table": table,
                "split": split,
                "status": progress.status.value,
                "cursor": cursor_text(progress.cursor),
                "rows": progress.rows,
                "epoch": progress.epoch,
                "target": progress.target,
            }
            for (table, split), progress in splits.items()
        ]
        changing = ("status", "cursor", "rows", "epoch", "target")
        self.con.run(
            f'INSERT INTO {self.sql("splits")} (job, "table", split, status, cursor, rows, epoch, target) '
            "SELECT $1::text, m.* FROM pg_catalog.json_to_recordset($2::json) "
            'AS m ("table" text, split text, status text, cursor text, rows bigint, epoch bigint, target bigint) '
            'ON CONFLICT (job, "table", split) DO UPDATE SET '
            + ", ".join(f"{name} = excluded.{name}" for name in changing),
            *(job, json.dumps(moved, ensure_ascii=False)),
        )


class Names(SqlNames):
    con: Connection
    record = LIVE

    def key(self, name: Target) -> tuple[str, ...]:
        return (name.schema, name.table)

    def word(self, name: Target) -> str | None:
        kind = kind_of(self.con, name)
        if kind is not None and kind not in _WORDS:
            raise UsageError(f"{name} is neither a table nor a view", in_config("name another one: tables.live"))
        return None if kind is None else _WORDS[kind]

    def depends(self, name: Target, word: str) -> tuple[str, ...]:
        return tuple(found for (found,) in self.con.rows(_DEPENDS, name.sql))

    def grants(self, before: Target, name: Target) -> Iterable[str]:
        """Reading alone; no privileges to write."""
        return [f"GRANT SELECT ON {name.sql} TO {role}" for (role,) in self.con.rows(_READERS, before.sql)]

    @contextmanager
    def refusals(self) -> Iterator[None]:
        try:
            yield
        except client().Error as exc:
            state = sqlstate_of(exc)
            if state != DEPENDED_ON and not state.startswith(_WRONG_NAME_OR_RIGHT):
                raise
            raise UsageError(f"nothing has changed: {message_of(exc)}", REPEAT) from exc

    def widened(self, job: str, table: str, target: Target) -> Iterator[str]:
        """SQL that adds the new columns of a table of the job's to the views of it."""
        if LIVE.name not in self.state.there():
            return
        query = f'SELECT schema, name FROM {self.state.sql("live")} WHERE job = $1 AND "table" = $2'
        for found in self.con.rows(query, job, table):
            name = POSTGRES.target(*found)
            if kind_of(self.con, name) == "v":
                yield f"CREATE OR REPLACE VIEW {name.sql} AS SELECT * FROM {target.sql}"


def side_targets(schema: str) -> list[Target]:
    """Where the side tables of a schema are."""
    return [POSTGRES.target(schema, own.PREFIX + side.name) for side in _SIDE_TABLES]


def schemas_with_state(con: Connection) -> list[str]:
    """The schemas of the database that hold side tables which the role may read."""
    found = con.rows(
        "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind = 'r' AND c.relname = ANY(pg_catalog.string_to_array($1, ',')) "
        "AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT') "
        "GROUP BY n.nspname HAVING pg_catalog.count(*) = $2 ORDER BY n.nspname",
        *(",".join(target.table for target in side_targets("")), len(_SIDE_TABLES)),
    )
    return [schema for (schema,) in found]
