"""Why the database refused an epoch's rows: which constraint or type, and which rows, by their keys.

Read again from the staged files, which are still there, once the transaction is rolled back. It costs nothing
while all goes well.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.contracts.bad_rows import duplicate_keys
from backfill_cli.errors import BadData
from backfill_cli.model.plan import StagedTable
from backfill_cli.sinks.postgres.apply import CHANGES, INSERTS, NAMED_KEYS, fill, shown
from backfill_cli.sinks.postgres.edge import CLASHES, said, state_of, told
from backfill_cli.sinks.postgres.session import Connection, rows_of
from backfill_cli.sinks.postgres.sql import Target, listed, matching, quoted
from backfill_cli.sinks.postgres.staged import Refused, paths_of, row_at, rows_where, stage
from backfill_cli.sinks.postgres.types import OP, sink_columns

_LINE = re.compile(r"COPY .*?\D(\d+)(?:, \S+ (.+?)(?:: |$))?")
"""`COPY orders, line 2, column name`: in whatever language the server speaks."""


def explained(
    con: Connection, commit: EpochCommit, table: SinkTable, schema: str, exc: Exception
) -> BadData | None:
    """What to say of rows of `table` that were refused; None for a failure that no row is to blame for.

    The connection's transaction is rolled back.
    """
    staged = commit.staged.tables.get(table.name)
    if staged is None:
        return None
    if isinstance(exc, Refused):
        return _value(commit, staged, table, exc.row, exc.column, exc.what)
    state = state_of(exc)
    if state not in CLASHES and not state.startswith("22"):
        return None
    con.rollback()
    target = Target.of(table, schema)
    if state == "23505":
        return _not_unique(con, commit, staged, table, target, exc)
    if state == "23502":
        keys = _with_null(commit, staged, told(exc, "column"), table)
        return _clash(table, f"column {told(exc, 'column')!r} of {target} is NOT NULL", keys, exc)
    place = _LINE.search(told(exc, "context"))
    if state.startswith("22") and place is not None:
        return _value(commit, staged, table, int(place[1]) - 1, place[2] or "?", said(exc))
    what = f"the constraint {told(exc, 'constraint')!r} of {target}" if state in CLASHES else said(exc)
    return _clash(table, what, (), exc)


def deferred(exc: Exception) -> BadData | None:
    """The same of a constraint that was checked once all tables were written."""
    if state_of(exc) not in CLASHES:
        return None
    return BadData(
        f"the constraint {told(exc, 'constraint')!r} refuses the epoch: {said(exc)}: {told(exc, 'detail')}",
        "correct the rows upstream, or drop the constraint",
    )


def _clash(table: SinkTable, what: str, keys: Iterable[str], exc: Exception) -> BadData:
    named = "; ".join(f"({key})" for key in keys)
    rows = f": rows with the key ({', '.join(table.key)}): {named}" if named else f": {told(exc, 'detail')}"
    hint = "correct the rows upstream, or leave them out with a `where`, or drop the constraint"
    if state_of(exc) == "23503":
        hint += (
            "; where both tables are this job's, let it be checked at the end: ALTER TABLE … ALTER CONSTRAINT "
            f"{quoted(told(exc, 'constraint'))} DEFERRABLE"
        )
    return BadData(f"table {table.name!r}: {what} refuses the epoch's rows{rows}", hint)


def _value(
    commit: EpochCommit, staged: StagedTable, table: SinkTable, row: int, column: str, what: str
) -> BadData:
    """A single value, by where it stood in what was sent: inserts are sent first, then changes."""
    for files in (staged.inserts, staged.changes):
        found = row_at(paths_of(commit.folder, files), row)
        if found is not None and (column == "?" or column in found) and _is_it(found, column, what):
            value = repr(found.get(column))[:100]
            key = _key(found, table)
            return BadData(
                f"table {table.name!r}, column {column!r}: PostgreSQL cannot hold {value}, of the row with the "
                f"key ({', '.join(table.key)}) = ({key}): {what}",
                "correct it upstream, or in the transform's select",
            )
    return BadData(f"table {table.name!r}, column {column!r}: {what}", "correct it in the transform's select")


def _is_it(row: dict[str, Any], column: str, what: str) -> bool:
    """Whether a row of the inserts may be what a COPY refused, and not one of the changes in the same place."""
    return "0x00" not in what or column == "?" or "\0" in repr(row[column]).replace("\\x00", "\0")


def _with_null(commit: EpochCommit, staged: StagedTable, column: str, table: SinkTable) -> list[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    def null(batch: Any) -> Any:
        if column not in batch.schema.names:
            return pa.array([False] * batch.num_rows)
        wanted = pc.is_null(batch.column(column))
        return pc.and_(wanted, pc.equal(batch.column(OP), "U")) if OP in batch.schema.names else wanted

    paths = paths_of(commit.folder, [*staged.inserts, *staged.changes])
    return [_key(row, table) for row in rows_where(paths, null, NAMED_KEYS)]


def _key(row: dict[str, Any], table: SinkTable) -> str:
    return ", ".join("NULL" if row.get(name) is None else str(row[name]) for name in table.key)


def _not_unique(
    con: Connection, commit: EpochCommit, staged: StagedTable, table: SinkTable, target: Target, exc: Exception
) -> BadData:
    name = told(exc, "constraint")
    unique = _columns_of(con, target, name)
    columns = sink_columns(table.name, table.schema)
    for temporary, files in ((INSERTS, staged.inserts), (CHANGES, staged.changes)):
        stage(con, temporary, columns, paths_of(commit.folder, files))
    if set(unique) == set(table.key):
        return duplicate_keys(table, _twice(con, table, target, staged.truncated))
    if staged.partial:
        fill(con, target, table, staged.partial)
    keys = _sharing(con, table, target, unique, staged.truncated) if unique else []
    return _clash(table, f"the unique constraint {name!r} ({', '.join(unique)}) of {target}", keys, exc)


def _columns_of(con: Connection, target: Target, index: str) -> list[str]:
    """The columns of a unique index, empty where it is over an expression."""
    found = rows_of(
        con,
        "SELECT a.attname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) ON k.place <= i.indnkeyatts "
        "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE i.indrelid = $1::regclass AND c.relname = $2 ORDER BY k.place",
        target.sql,
        index,
    )
    names = [name for (name,) in found]
    return [] if None in names else names


def _twice(con: Connection, table: SinkTable, target: Target, truncated: bool) -> list[tuple[str, int]]:
    """Keys that snapshot rows have more than once, those of the target counted; else those of changes."""
    key, same = listed(table.key), matching(table.key, "t", "d")
    held = f"(SELECT count(*) FROM {target.sql} t WHERE {same})" if table.plain_inserts and not truncated else "0"
    for staged, there in ((INSERTS, held), (CHANGES, "0")):
        counted = f"SELECT {key}, count(*) AS n FROM pg_temp.{staged} GROUP BY {key}"
        found = rows_of(
            con,
            f"SELECT {shown(table.key, 'd')}, n FROM (SELECT {listed(table.key, 'd')}, n + {there} AS n "
            f"FROM ({counted}) d) d WHERE n > 1 LIMIT {NAMED_KEYS}",
        )
        if found:
            return found
    return []


def _sharing(
    con: Connection, table: SinkTable, target: Target, unique: Sequence[str], truncated: bool
) -> list[str]:
    """Keys of the epoch's rows that have these columns' values in common, with each other or a row that stays."""
    known = " AND ".join(f"n.{quoted(name)} IS NOT NULL" for name in unique)
    columns = listed(dict.fromkeys((*table.key, *unique)))
    replaced = [CHANGES] if table.plain_inserts else [CHANGES, INSERTS]
    stays = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM pg_temp.{staged} c WHERE {matching(table.key, 'c', 't')})"
        for staged in replaced
    )
    held = f"EXISTS (SELECT 1 FROM {target.sql} t WHERE {matching(unique, 't', 'n')} AND {stays})"
    found = rows_of(
        con,
        f"WITH new AS (SELECT {columns} FROM pg_temp.{INSERTS} i WHERE NOT EXISTS "
        f"(SELECT 1 FROM pg_temp.{CHANGES} c WHERE {matching(table.key, 'c', 'i')}) UNION ALL "
        f"SELECT {columns} FROM pg_temp.{CHANGES} WHERE {OP} = 'U'), "
        f"counted AS (SELECT *, count(*) OVER (PARTITION BY {listed(unique)}) AS _rows FROM new) "
        f"SELECT {shown(table.key, 'n')} FROM counted n WHERE {known} "
        f"AND (n._rows > 1{'' if truncated else f' OR {held}'}) ORDER BY {listed(table.key, 'n')} "
        f"LIMIT {NAMED_KEYS}",
    )
    return [key for (key,) in found]
