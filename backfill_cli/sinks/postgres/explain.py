"""Explains why the database refused an epoch's rows: which constraint or type, and the keys of the rows.

The rows are read again from the staged files, which still exist, once the transaction is rolled back. It costs
nothing while commits succeed.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import as_json, duplicate_keys
from backfill_cli.errors import CORRECT, CORRECT_VALUE, BadData, Hint, sql
from backfill_cli.formats.compute import pc
from backfill_cli.sinks.postgres.apply import Writing
from backfill_cli.sinks.postgres.dialect import POSTGRES, TREE, listed, matching, quoted, shown
from backfill_cli.sinks.postgres.session import (
    CLASHES,
    LIMIT_EXCEEDED,
    Connection,
    diagnostic,
    message_of,
    sqlstate_of,
)
from backfill_cli.sinks.postgres.staged import Refused, longest, row_at, rows_where, stage
from backfill_cli.sinks.postgres.state import State
from backfill_cli.sinks.sql.dialect import NAMED_KEYS, Target


def explained(state: State, commit: EpochCommit, table: SinkTable, exc: Exception) -> BadData | None:
    """The error for rows of `table` that were refused; None for a failure that no row caused.

    The connection's transaction is rolled back. If the refusal cannot be explained, raises BadData with the
    server's message: a failure in here must not hide it.
    """
    writing, code = Writing.of(state, commit, table), sqlstate_of(exc)
    refused = isinstance(exc, Refused) or code in CLASHES or code.startswith("22") or code == LIMIT_EXCEEDED
    if writing is None or not refused:
        return None
    try:
        return _explained(writing, exc)
    except Exception:
        what = exc.what if isinstance(exc, Refused) else _whole(exc)
        raise BadData(f"table {table.name!r}: the commit's rows are refused: {what}", CORRECT) from exc


def _explained(writing: Writing, exc: Exception) -> BadData:
    table, target = writing.table, writing.target
    if isinstance(exc, Refused):
        return _value(table, exc)
    state = sqlstate_of(exc)
    writing.con.rollback()
    if state.startswith("22") and (value := _refused(writing, exc)) is not None:
        return _value(table, value)
    if state == LIMIT_EXCEEDED:
        return _too_long(writing, exc)
    if not _is_of(writing, exc):
        what = _constraint(exc) or str(place_of(exc))
        return BadData(
            f"table {table.name!r}: {what} refuses what a trigger of {target} writes: {_whole(exc)}",
            CORRECT + ", or disable the trigger: " + sql(f"ALTER TABLE {target.sql} DISABLE TRIGGER USER"),
        )
    if state == "23505":
        return _not_unique(writing, exc)
    if state == "23502" and (column := diagnostic(exc, "COLUMN_NAME")):
        drop = f"ALTER TABLE {target.sql} ALTER COLUMN {quoted(column)} DROP NOT NULL"
        return _clash(table, f"column {column!r} of {target} is NOT NULL", _with_null(writing, column), exc, drop)
    return _clash(table, _constraint(exc) or message_of(exc), (), exc, _alter(exc, "DROP"))


def deferred(exc: Exception) -> BadData | None:
    """As `explained`, for a constraint that was checked after all tables were written."""
    if sqlstate_of(exc) not in CLASHES:
        return None
    what = _constraint(exc) or "a constraint"
    drop = _alter(exc, "DROP")
    return BadData(
        f"{what} refuses the commit: {_whole(exc)}",
        "correct the rows upstream" + (", or: " + sql(drop) if drop else Hint()),
    )


def _constraint(exc: Exception) -> str:
    """The constraint and its table as the error's own fields name them; empty if they do not."""
    name, place = diagnostic(exc, "CONSTRAINT_NAME"), place_of(exc)
    of = f" of {place}" if place else ""
    return f"the constraint {name!r}{of}" if name else ""


def _alter(exc: Exception, how: str) -> str:
    """The statement that drops or alters that constraint; empty if the error does not name it."""
    name, place = diagnostic(exc, "CONSTRAINT_NAME"), place_of(exc)
    return f"ALTER TABLE {place.sql} {how} CONSTRAINT {quoted(name)}" if name and place else ""


def _whole(exc: Exception) -> str:
    detail = diagnostic(exc, "MESSAGE_DETAIL")
    return f"{message_of(exc)}: {detail}" if detail else message_of(exc)


def _is_of(writing: Writing, exc: Exception) -> bool:
    """Whether the error is about this table, its partitions, or our staging, not about what a trigger wrote."""
    place = place_of(exc)
    if place is None or place == writing.target or place.table in (own.INSERTS, own.CHANGES):
        return True
    if sqlstate_of(exc) == "23503":
        return True  # a foreign key error names the referencing table, whichever of the two was written
    found = writing.con.rows(
        f"{TREE} SELECT 1 FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $2 AND c.relname = $3",
        *(writing.target.sql, place.schema, place.table),
    )
    return bool(found)


def _clash(table: SinkTable, what: str, keys: Iterable[str], exc: Exception, drop: str) -> BadData:
    """drop: the statement that removes what refuses the rows; empty if there is none."""
    named = "; ".join(f"({key})" for key in keys)
    detail = diagnostic(exc, "MESSAGE_DETAIL")
    rows = f": rows with the key ({', '.join(table.key)}): {named}" if named else f": {detail}" if detail else ""
    hint = CORRECT + ", or: " + sql(drop) if drop else CORRECT
    if drop and sqlstate_of(exc) == "23503":
        hint += "; if both tables are this job's, defer the check to the end of the transaction: "
        hint += sql(f"{_alter(exc, 'ALTER')} DEFERRABLE")
    if drop and sqlstate_of(exc) == "23P01":
        hint += "; if rows only exchange its values, add it again as DEFERRABLE"
    return BadData(f"table {table.name!r}: {what} refuses the commit's rows{rows}", hint)


def _refused(writing: Writing, exc: Exception) -> Refused | None:
    """The value at which a COPY stopped; None if the error is not one of a COPY of ours.

    Inserts and changes are two COPYs, each of which counts its own rows.
    """
    copies = (((own.CHANGES,), writing.changes), ((writing.target.table, own.INSERTS), writing.inserts))
    for names, paths in copies:
        line = stopped_at(diagnostic(exc, "CONTEXT"), names, writing.names)
        if line is not None:
            return Refused(*line, message_of(exc), paths)
    return None


def _value(table: SinkTable, refused: Refused) -> BadData:
    """The error for a single value, with its row's key."""
    column, what = refused.column, refused.what
    found = row_at(refused.paths, refused.row)
    if found is not None and (column == "?" or column in found):
        value = as_json(found.get(column))
        key = f"the row with the key ({', '.join(table.key)}) = ({_key(found, table)})"
        what = f"PostgreSQL cannot hold {value} of {key}: {what}"
    return BadData(f"table {table.name!r}, column {column!r}: {what}", CORRECT_VALUE)


def _too_long(writing: Writing, exc: Exception) -> BadData:
    """The error for a row of an index that is too long: names the longest value of an indexed column."""
    table, target = writing.table, writing.target
    indexed = writing.con.rows(
        "SELECT DISTINCT a.attname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = $1::regclass ORDER BY 1",
        target.sql,
    )
    column, size, row = longest([*writing.inserts, *writing.changes], [name for (name,) in indexed])
    key = f"the key ({', '.join(table.key)}) = ({_key(row, table)[:100]})"
    which = f": the longest value, of {size:,} bytes in column {column!r}, is in the row with {key}" if row else ""
    return BadData(
        f"table {table.name!r}: an index of {target} refuses the commit's rows: {message_of(exc)}{which}",
        CORRECT + ": an index of PostgreSQL holds values of up to about 2,700 bytes",
    )


def _with_null(writing: Writing, column: str) -> list[str]:
    def null(batch: Any) -> Any:
        if column not in batch.schema.names:
            return pa.array([False] * batch.num_rows)
        wanted = pc.is_null(batch.column(column))
        return pc.and_(wanted, pc.equal(batch.column(own.OP), "U")) if own.OP in batch.schema.names else wanted

    rows = rows_where([*writing.inserts, *writing.changes], null, NAMED_KEYS)
    return [_key(row, writing.table) for row in rows]


def _key(row: dict[str, Any], table: SinkTable) -> str:
    return ", ".join("NULL" if row.get(name) is None else str(row[name]) for name in table.key)


def _not_unique(writing: Writing, exc: Exception) -> BadData:
    con, table, target = writing.con, writing.table, writing.target
    index = index_of(con, exc, target) or Index(diagnostic(exc, "CONSTRAINT_NAME"), target, "", ())
    for temporary, paths in ((own.INSERTS, writing.inserts), (own.CHANGES, writing.changes)):
        stage(con, temporary, writing.columns, paths)
    if set(index.columns) == set(table.key):
        and_target = table.plain_inserts and not writing.staged.truncated
        twice = writing.twice_in(own.INSERTS, and_target) or writing.twice_in(own.CHANGES, and_target=False)
        return duplicate_keys(table, twice)
    if writing.staged.partial:
        writing.fill_from_inserts()
        writing.fill()
    if not index.columns or not set(writing.names).issuperset(index.columns):
        return _clash(table, f"the unique constraint {index.name!r} of {target}", (), exc, index.drop)
    keys = _sharing(writing, index.columns)
    if not keys and writing.shape.in_place and not writing.shape.carries:
        return exchanged(table, index)
    what = f"the unique constraint {index.name!r} ({', '.join(index.columns)}) of {target}"
    return _clash(table, what, keys, exc, index.drop)


def _sharing(writing: Writing, unique: Sequence[str]) -> list[str]:
    """Keys of the epoch's rows that share values of these columns with each other or with a row that stays."""
    key = writing.table.key
    known = " AND ".join(f"n.{quoted(name)} IS NOT NULL" for name in unique)
    columns = listed(dict.fromkeys((*key, *unique)))
    replaced = [own.CHANGES] if writing.table.plain_inserts else [own.CHANGES, own.INSERTS]
    stays = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM pg_temp.{staged} c WHERE {matching(key, 'c', 't')})" for staged in replaced
    )
    same = f"SELECT 1 FROM {writing.target.sql} t WHERE {matching(unique, 't', 'n')} AND {stays}"
    held = "" if writing.staged.truncated else f" OR EXISTS ({same})"
    found = writing.con.rows(
        f"WITH new AS (SELECT {columns} FROM pg_temp.{own.INSERTS} i WHERE NOT EXISTS "
        f"(SELECT 1 FROM pg_temp.{own.CHANGES} c WHERE {matching(key, 'c', 'i')}) UNION ALL "
        f"SELECT {columns} FROM pg_temp.{own.CHANGES} WHERE {own.OP} = 'U'), "
        f"counted AS (SELECT *, pg_catalog.count(*) OVER (PARTITION BY {listed(unique)}) AS {own.ROWS} FROM new) "
        f"SELECT {shown(key, 'n')} FROM counted n WHERE {known} AND (n.{own.ROWS} > 1{held}) "
        f"ORDER BY {listed(key, 'n')} LIMIT {NAMED_KEYS}",
    )
    return [text for (text,) in found]


@dataclass(frozen=True, slots=True)
class Index:
    """A unique index of a table; for a partition's index, that of the whole table.

    kind: its constraint as ADD CONSTRAINT calls it, empty if it belongs to no constraint.
    columns: empty if it is over an expression.
    """

    name: str
    table: Target
    kind: str
    columns: tuple[str, ...]

    @property
    def drop(self) -> str:
        """The statement that removes it."""
        if self.kind:
            return f"ALTER TABLE {self.table.sql} DROP CONSTRAINT {quoted(self.name)}"
        return f"DROP INDEX {quoted(self.table.schema)}.{quoted(self.name)}"


def place_of(exc: Exception) -> Target | None:
    """The table that the error itself names; None if it names none."""
    schema, table = diagnostic(exc, "SCHEMA_NAME"), diagnostic(exc, "TABLE_NAME")
    return POSTGRES.target(schema, table) if schema and table else None


def index_of(con: Connection, exc: Exception, target: Target) -> Index | None:
    """The index that an error names; None if it no longer exists."""
    found = con.rows(
        "SELECT x.relname, tn.nspname, t.relname, coalesce(u.contype::text, ''), "
        "(SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)::text "
        "FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) "
        "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE k.place <= i.indnkeyatts) "
        "FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace n ON n.oid = p.relnamespace "
        "JOIN pg_catalog.pg_class x ON x.oid = coalesce(pg_catalog.pg_partition_root(p.oid)::oid, p.oid) "
        "JOIN pg_catalog.pg_index i ON i.indexrelid = x.oid "
        "JOIN pg_catalog.pg_class t ON t.oid = i.indrelid "
        "JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace "
        "LEFT JOIN pg_catalog.pg_constraint u ON u.conindid = x.oid AND u.contype IN ('p', 'u') "
        "WHERE n.nspname = $1 AND p.relname = $2",
        diagnostic(exc, "SCHEMA_NAME") or target.schema,
        diagnostic(exc, "CONSTRAINT_NAME"),
    )
    for name, schema, table, kind, held in found:
        columns = json.loads(held)
        word = {"p": "PRIMARY KEY", "u": "UNIQUE"}.get(kind, "")
        return Index(name, POSTGRES.target(schema, table), word, () if None in columns else tuple(columns))
    return None


def exchanged(table: SinkTable, index: Index) -> BadData:
    """The error for rows that clash only while they are updated one by one, not once all are updated."""
    name, columns = quoted(index.name), listed(index.columns)
    if index.kind:
        again = f"{index.drop}, ADD CONSTRAINT {name} {index.kind} ({columns}) DEFERRABLE"
        on = "defer its check to the end of the transaction: " + sql(again)
    else:
        again = f"ALTER TABLE {index.table.sql} ADD CONSTRAINT {name} UNIQUE ({columns}) DEFERRABLE"
        on = "replace the index with a constraint, which can be deferred: " + sql(index.drop, again)
    return BadData(
        f"table {table.name!r}: rows of the commit exchange values of {index.name!r} ({', '.join(index.columns)}) "
        f"of {index.table}, which is checked row by row, and they are updated in place: another table refers to "
        "them, or the table has a trigger",
        on,
    )


def stopped_at(context: str, tables: Sequence[str], columns: Sequence[str]) -> tuple[int, str] | None:
    """The row, from 0, and the column, `?` if none is named; None if this is not the context of such a COPY.

    context: `COPY orders, line 2, column name`, in the server's language; names appear in it unquoted, with any
    digits, commas and line ends that they contain.
    """
    for table in sorted(tables, key=len, reverse=True):
        found = re.search(rf"(?:\A|\n)COPY {re.escape(table)},\D+?(\d+)(?:, \S+ (.+))?", context, re.DOTALL)
        if found is not None:
            rest = found[2] or ""
            named = [name for name in columns if rest == name or rest.startswith((f"{name}:", f"{name}\n"))]
            return int(found[1]) - 1, max(named, key=len, default="?")
    return None
