"""What the sink keeps about jobs, in three side tables of the same file: markers, saved jobs, saved splits."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SavedJob, own
from backfill_cli.contracts.targets import newer_layout
from backfill_cli.model.checkpoint import Checkpoint, Marker
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.position import cursor_of, cursor_text
from backfill_cli.model.split import SplitKey, SplitProgress, SplitStatus
from backfill_cli.sinks.duckdb.dialect import Target, literal, quoted
from backfill_cli.sinks.duckdb.file import rows_of

if TYPE_CHECKING:
    import duckdb

LAYOUT = 2
"""Layout 1 had, instead of a split's cursor, the index of its next row as a number (`after`)."""


@dataclass(frozen=True, slots=True)
class SideTable:
    name: str
    comment: str
    columns: Mapping[str, tuple[str, str]]

    @property
    def sql(self) -> str:
        return f"main.{quoted(own.PREFIX + self.name)}"

    def exists(self, con: "duckdb.DuckDBPyConnection") -> bool:
        where = "database_name = current_database() AND schema_name = 'main' AND table_name = ?"
        return bool(rows_of(con, f"SELECT 1 FROM duckdb_tables() WHERE {where}", own.PREFIX + self.name))

    def create(self, con: "duckdb.DuckDBPyConnection") -> None:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, (kind, _) in self.columns.items())
        con.execute(f"CREATE TABLE IF NOT EXISTS {self.sql} ({columns})")
        con.execute(f"COMMENT ON TABLE {self.sql} IS {literal(self.comment)}")
        for name, (_, comment) in self.columns.items():
            con.execute(f"COMMENT ON COLUMN {self.sql}.{quoted(name)} IS {literal(comment)}")


MARKERS = SideTable(
    "markers",
    "backfill: what each job has committed to each table. Written in the transaction that writes the rows.",
    {
        "job": ("VARCHAR NOT NULL", "name of the job"),
        "table": ("VARCHAR NOT NULL", "the job's name for the table"),
        "target": ("VARCHAR NOT NULL", "schema.table that the job writes, lower case"),
        "epoch": ("BIGINT NOT NULL", "last epoch committed, milliseconds since 1970; 0: none yet"),
        "token": ("BIGINT NOT NULL", "runners with an older token are refused"),
        "attempt": ("VARCHAR NOT NULL", "staging attempt that the epoch was applied from"),
        "committed_at": ("TIMESTAMPTZ", "when the epoch was committed; NULL: none yet"),
    },
)
JOBS = SideTable(
    "jobs",
    "backfill: what `backfill resume --from-sink` rebuilds a lost catalog from. Holds no secrets.",
    {
        "job": ("VARCHAR NOT NULL", "name of the job"),
        "layout": ("INTEGER NOT NULL", f"version of these side tables: {LAYOUT}"),
        "definition": ("VARCHAR NOT NULL", "config with references, fingerprint and pin, JSON"),
        "digest": ("VARCHAR NOT NULL", "SHA-256 of the definition, which is written only when this changes"),
        "checkpoint": ("VARCHAR NOT NULL", "the last committed checkpoint without its splits, JSON"),
    },
)
SPLITS = SideTable(
    "splits",
    "backfill: how much of each split of a snapshot this file holds.",
    {
        "job": ("VARCHAR NOT NULL", "name of the job"),
        "table": ("VARCHAR NOT NULL", "the job's name for the table"),
        "split": ("VARCHAR NOT NULL", "the part of the snapshot: a file, a key range, a partition"),
        "status": (
            "VARCHAR NOT NULL",
            "not started, consuming, consumed; a partition: not started, backfilling, awaiting live, finished",
        ),
        "cursor": ("VARCHAR", "where to continue, JSON: a row's index, an offset, a key; NULL once consumed"),
        "rows": ("BIGINT NOT NULL", "rows read so far"),
        "epoch": ("BIGINT NOT NULL", "the last checkpoint that changed this row"),
        "target": ("BIGINT", "the offset before which a partition's history ends; NULL for other splits"),
    },
)
SIDE_TABLES = (MARKERS, JOBS, SPLITS)


def has_state(con: "duckdb.DuckDBPyConnection") -> bool:
    """Whether the side tables exist. One transaction creates them, so either all of them exist or none.

    Raises Fatal if a newer backfill wrote them.
    """
    found = rows_of(
        con,
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() AND schema_name = 'main' "
        "AND list_contains(?, table_name)",
        [own.PREFIX + table.name for table in SIDE_TABLES],
    )[0][0]
    if found < len(SIDE_TABLES):
        return False
    newest = rows_of(con, f"SELECT max(layout) FROM {JOBS.sql}")[0][0]
    if newest is not None and newest > LAYOUT:
        raise newer_layout("this sink's side tables", newest, LAYOUT)
    return True


def upgrades(con: "duckdb.DuckDBPyConnection") -> list[str]:
    """The statements that upgrade existing side tables to LAYOUT; none if they have it."""
    if not _is_first_layout(con):
        return []
    comment = literal(SPLITS.columns["cursor"][1])
    return [
        f'ALTER TABLE {SPLITS.sql} RENAME "after" TO "cursor"',
        f'ALTER TABLE {SPLITS.sql} ALTER "cursor" DROP NOT NULL',
        f'ALTER TABLE {SPLITS.sql} ALTER "cursor" TYPE VARCHAR',
        f'COMMENT ON COLUMN {SPLITS.sql}."cursor" IS {comment}',
        f"UPDATE {JOBS.sql} SET layout = {LAYOUT}",
    ]


def _is_first_layout(con: "duckdb.DuckDBPyConnection") -> bool:
    found = rows_of(
        con,
        "SELECT count(*) FROM duckdb_columns() WHERE database_name = current_database() AND schema_name = 'main' "
        "AND table_name = ? AND column_name = 'after'",
        own.PREFIX + SPLITS.name,
    )
    return bool(found[0][0])


def markers_of(con: "duckdb.DuckDBPyConnection", job: str) -> dict[str, Marker]:
    """The job's markers by table; epoch 0 for a table that is claimed but has no commit yet."""
    found = rows_of(con, f'SELECT "table", epoch, token, attempt FROM {MARKERS.sql} WHERE job = ?', job)
    return {table: Marker(epoch, token, attempt) for table, epoch, token, attempt in found}


def owner_of(con: "duckdb.DuckDBPyConnection", target: Target) -> tuple[str, str] | None:
    """The (job, table) that writes this table; None if no job does."""
    found = rows_of(con, f'SELECT job, "table" FROM {MARKERS.sql} WHERE target = ?', target.identity)
    return (found[0][0], found[0][1]) if found else None


def claim(con: "duckdb.DuckDBPyConnection", job: str, claims: Iterable[tuple[str, Target]]) -> None:
    """Tables without a marker get one at epoch 0, with the token of the job's other markers."""
    for table, target in claims:
        con.execute(
            f"INSERT INTO {MARKERS.sql} SELECT $job, $table, $target, 0, "
            f"coalesce((SELECT max(token) FROM {MARKERS.sql} WHERE job = $job), 0), '', NULL",
            {"job": job, "table": table, "target": target.identity},
        )


def raise_token(con: "duckdb.DuckDBPyConnection", job: str, token: int) -> None:
    con.execute(f"UPDATE {MARKERS.sql} SET token = ? WHERE job = ?", [token, job])


def record(con: "duckdb.DuckDBPyConnection", commit: EpochCommit, tables: Iterable[str]) -> None:
    """The epoch's markers, its checkpoint and the splits that it changed are written, in its transaction."""
    con.execute(
        f"UPDATE {MARKERS.sql} SET epoch = ?, token = ?, attempt = ?, committed_at = now() "
        'WHERE job = ? AND list_contains(?, "table")',
        [commit.epoch, commit.token, commit.attempt, commit.job, list(tables)],
    )
    _save_checkpoint(con, commit)
    if commit.saved.checkpoint.splits:
        _save_splits(con, commit.job, commit.saved.checkpoint.splits)


def _save_checkpoint(con: "duckdb.DuckDBPyConnection", commit: EpochCommit) -> None:
    bare = replace(commit.saved.checkpoint, splits={}, plan=None, staged=None)
    checkpoint = encode(bare)
    digest = _digest(commit.saved.definition)
    known = rows_of(con, f"SELECT digest FROM {JOBS.sql} WHERE job = ?", commit.job)
    if known == [(digest,)]:
        con.execute(f"UPDATE {JOBS.sql} SET checkpoint = ? WHERE job = ?", [checkpoint, commit.job])
        return
    con.execute(f"DELETE FROM {JOBS.sql} WHERE job = ?", [commit.job])
    con.execute(
        f"INSERT INTO {JOBS.sql} VALUES (?, ?, ?, ?, ?)",
        [commit.job, LAYOUT, commit.saved.definition, digest, checkpoint],
    )


@lru_cache(maxsize=4)
def _digest(definition: str) -> str:
    # Cached: every commit has the definition, whose pin takes megabytes at 100,000 splits.
    return hashlib.sha256(definition.encode()).hexdigest()


def _save_splits(con: "duckdb.DuckDBPyConnection", job: str, splits: Mapping[SplitKey, SplitProgress]) -> None:
    keys = {"job": job, "tables": [table for table, _ in splits], "splits": [split for _, split in splits]}
    con.execute(
        f"DELETE FROM {SPLITS.sql} s USING (SELECT unnest($tables::VARCHAR[]) t, unnest($splits::VARCHAR[]) p) c "
        'WHERE s.job = $job AND s."table" = c.t AND s.split = c.p',
        keys,
    )
    moved = splits.values()
    con.execute(
        f"INSERT INTO {SPLITS.sql} SELECT $job, unnest($tables::VARCHAR[]), unnest($splits::VARCHAR[]), "
        "unnest($status::VARCHAR[]), unnest($cursors::VARCHAR[]), unnest($rows::BIGINT[]), "
        "unnest($epochs::BIGINT[]), unnest($targets::BIGINT[])",
        {
            **keys,
            "status": [split.status.value for split in moved],
            "cursors": [cursor_text(split.cursor) for split in moved],
            "rows": [split.rows for split in moved],
            "epochs": [split.epoch for split in moved],
            "targets": [split.target for split in moved],
        },
    )


def saved_of(con: "duckdb.DuckDBPyConnection", job: str) -> SavedJob | None:
    """What the last commit saved, with all splits; None if the job has committed nothing."""
    found = rows_of(con, f"SELECT definition, checkpoint FROM {JOBS.sql} WHERE job = ?", job)
    if not found:
        return None
    definition, checkpoint = found[0]
    at = '"after"::VARCHAR' if _is_first_layout(con) else '"cursor"'
    rows = rows_of(
        con, f'SELECT "table", split, status, {at}, rows, epoch, target FROM {SPLITS.sql} WHERE job = ?', job
    )
    splits = {
        (table, split): SplitProgress(SplitStatus(status), cursor_of(at), *moved)
        for table, split, status, at, *moved in rows
    }
    return SavedJob(definition, replace(decode(Checkpoint, checkpoint), splits=splits))


def remove(con: "duckdb.DuckDBPyConnection", job: str) -> None:
    for side in SIDE_TABLES:
        con.execute(f"DELETE FROM {side.sql} WHERE job = ?", [job])
