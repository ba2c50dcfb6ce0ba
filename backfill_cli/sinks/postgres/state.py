"""What the sink keeps about jobs, in four side tables of one schema: markers, owners, jobs, splits."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from backfill_cli.contracts import EpochCommit, SavedJob, own
from backfill_cli.contracts.targets import newer_layout, taken
from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.position import cursor_of, cursor_text
from backfill_cli.model.split import SplitKey, SplitProgress, SplitStatus
from backfill_cli.sinks.postgres.dialect import Target, listed, literal, quoted
from backfill_cli.sinks.postgres.session import Connection, rows_of, run

LAYOUT = 1


@dataclass(frozen=True, slots=True)
class SideTable:
    name: str
    comment: str
    columns: Mapping[str, tuple[str, str]]
    key: tuple[str, ...]

    def create(self, schema: str) -> Iterator[str]:
        """DDL of the table and its comments."""
        table = f"{quoted(schema)}.{quoted(own.PREFIX + self.name)}"
        columns = ", ".join(f"{quoted(name)} {kind}" for name, (kind, _) in self.columns.items())
        yield f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({listed(self.key)}))"
        yield f"COMMENT ON TABLE {table} IS {literal(self.comment)}"
        for name, (_, comment) in self.columns.items():
            yield f"COMMENT ON COLUMN {table}.{quoted(name)} IS {literal(comment)}"


MARKERS = SideTable(
    "markers",
    "backfill: what each job has committed to each table. Written in the transaction that writes the rows.",
    {
        "job": ("text", "name of the job"),
        "table": ("text", "the job's name for the table"),
        "target": ("text NOT NULL UNIQUE", "schema.table that the job writes"),
        "epoch": ("bigint NOT NULL", "last epoch committed, milliseconds since 1970; 0: none yet"),
        "token": ("bigint NOT NULL", "runners with an older token are refused"),
        "attempt": ("text NOT NULL", "staging attempt that the epoch was applied from"),
        "committed_at": ("timestamptz", "when the epoch was committed; NULL: none yet"),
    },
    ("job", "table"),
)
OWNERS = SideTable(
    "owners",
    "backfill: which catalog owns each job.",
    {
        "job": ("text", "name of the job"),
        "catalog": ("text NOT NULL", "id of the catalog, from its table catalog_identity"),
        "host": ("text NOT NULL", "machine that the catalog was used from"),
        "path": ("text NOT NULL", "the catalog's file there"),
    },
    ("job",),
)
JOBS = SideTable(
    "jobs",
    "backfill: what `backfill resume --from-sink` rebuilds a lost catalog from. Holds no secrets.",
    {
        "job": ("text", "name of the job"),
        "layout": ("integer NOT NULL", f"version of these side tables: {LAYOUT}"),
        "definition": ("text NOT NULL", "config with references, fingerprint and pin, JSON"),
        "digest": ("text NOT NULL", "SHA-256 of the definition, which is written only when this changes"),
        "checkpoint": ("text NOT NULL", "the last committed checkpoint without its splits, JSON"),
    },
    ("job",),
)
SPLITS = SideTable(
    "splits",
    "backfill: how much of each split of a snapshot this database holds.",
    {
        "job": ("text", "name of the job"),
        "table": ("text", "the job's name for the table"),
        "split": ("text", "the part of the snapshot: a file, a key range, a partition"),
        "status": (
            "text NOT NULL",
            "not started, consuming, consumed; a partition: not started, backfilling, awaiting live, finished",
        ),
        "cursor": ("text", "where to continue, JSON: a row's index, an offset, a key; NULL once consumed"),
        "rows": ("bigint NOT NULL", "rows read so far"),
        "epoch": ("bigint NOT NULL", "the last checkpoint that changed this row"),
        "target": ("bigint", "the offset before which a partition's history ends; NULL for other splits"),
    },
    ("job", "table", "split"),
)
SIDE_TABLES = (MARKERS, OWNERS, JOBS, SPLITS)


def side_targets(schema: str) -> list[Target]:
    """Where the side tables of a schema are."""
    return [Target(schema, own.PREFIX + side.name) for side in SIDE_TABLES]


def schemas_with_state(con: Connection) -> list[str]:
    """The schemas of the database that hold side tables which the role may read."""
    found = rows_of(
        con,
        "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind = 'r' AND c.relname = ANY(pg_catalog.string_to_array($1, ',')) "
        "AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT') "
        "GROUP BY n.nspname HAVING pg_catalog.count(*) = $2 ORDER BY n.nspname",
        ",".join(target.table for target in side_targets("")),
        len(SIDE_TABLES),
    )
    return [schema for (schema,) in found]


class State:
    """The side tables of one schema, on one connection; every call is part of the connection's transaction."""

    def __init__(self, con: Connection, schema: str) -> None:
        self._con, self.schema = con, schema

    def _sql(self, side: SideTable) -> str:
        return Target(self.schema, own.PREFIX + side.name).sql

    def tables(self) -> list[Target]:
        return side_targets(self.schema)

    def exists(self) -> bool:
        """Whether the side tables exist. One transaction creates them, so either all of them exist or none.

        Raises Fatal if a newer backfill wrote them.
        """
        found = rows_of(
            self._con,
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r' "
            "AND c.relname = ANY(pg_catalog.string_to_array($2, ','))",
            self.schema,
            ",".join(own.PREFIX + side.name for side in SIDE_TABLES),
        )
        if found[0][0] < len(SIDE_TABLES):
            return False
        newest = rows_of(self._con, f"SELECT pg_catalog.max(layout) FROM {self._sql(JOBS)}")[0][0]
        if newest is not None and newest > LAYOUT:
            raise newer_layout("this sink's side tables", newest, LAYOUT)
        return True

    def markers(self, job: str, lock: bool = False) -> dict[str, Marker]:
        """The job's markers by table; epoch 0 for a table that is claimed but has no commit yet.

        lock: until this transaction ends nobody else can write them, or read them with `lock`.
        """
        found = rows_of(
            self._con,
            f'SELECT "table", epoch, token, attempt FROM {self._sql(MARKERS)} WHERE job = $1 ORDER BY "table"'
            + (" FOR UPDATE" if lock else ""),
            job,
        )
        return {table: Marker(epoch, token, attempt) for table, epoch, token, attempt in found}

    def owner_of_target(self, target: Target) -> tuple[str, str] | None:
        """The (job, table) that writes this table; None if no job does."""
        found = rows_of(self._con, f'SELECT job, "table" FROM {self._sql(MARKERS)} WHERE target = $1', str(target))
        return (found[0][0], found[0][1]) if found else None

    def claim(self, job: str, claims: Iterable[tuple[str, Target]]) -> None:
        """Tables without a marker get one at epoch 0, with the token of the job's other markers."""
        markers = self._sql(MARKERS)
        for table, target in claims:
            run(
                self._con,
                f"INSERT INTO {markers} SELECT $1::text, $2::text, $3::text, 0, "
                f"coalesce((SELECT pg_catalog.max(token) FROM {markers} WHERE job = $1::text), 0), '', NULL",
                job,
                table,
                str(target),
            )

    def raise_token(self, job: str, token: int) -> None:
        run(self._con, f"UPDATE {self._sql(MARKERS)} SET token = $1 WHERE job = $2", token, job)

    def owner(self, job: str) -> Owner | None:
        """The catalog that owns the job; None if none is recorded."""
        found = rows_of(self._con, f"SELECT catalog, host, path FROM {self._sql(OWNERS)} WHERE job = $1", job)
        return Owner(*found[0]) if found else None

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        """The catalog `owner` owns the job. Raises Held if a catalog other than `instead_of` now owns it."""
        owners = self._sql(OWNERS)
        run(self._con, f"LOCK TABLE {owners} IN SHARE ROW EXCLUSIVE MODE")
        held = self.owner(job)
        if held is not None and held.catalog not in (owner.catalog, instead_of and instead_of.catalog):
            raise taken(job, held)
        run(self._con, f"DELETE FROM {owners} WHERE job = $1", job)
        run(
            self._con,
            f"INSERT INTO {owners} VALUES ($1, $2, $3, $4)",
            job,
            owner.catalog,
            owner.host,
            owner.path,
        )

    def record(self, commit: EpochCommit, tables: Iterable[str]) -> None:
        """The epoch's markers, its checkpoint and the splits that it changed are written."""
        for table in tables:
            run(
                self._con,
                f"UPDATE {self._sql(MARKERS)} SET epoch = $1, token = $2, attempt = $3, "
                'committed_at = pg_catalog.now() WHERE job = $4 AND "table" = $5',
                commit.epoch,
                commit.token,
                commit.attempt,
                commit.job,
                table,
            )
        self._save_checkpoint(commit)
        if commit.saved.checkpoint.splits:
            self._save_splits(commit.job, commit.saved.checkpoint.splits)

    def _save_checkpoint(self, commit: EpochCommit) -> None:
        checkpoint = encode(replace(commit.saved.checkpoint, splits={}, plan=None, staged=None))
        digest = _digest(commit.saved.definition)
        jobs = self._sql(JOBS)
        known = rows_of(self._con, f"SELECT digest FROM {jobs} WHERE job = $1", commit.job)
        if known == [(digest,)]:
            run(self._con, f"UPDATE {jobs} SET checkpoint = $1 WHERE job = $2", checkpoint, commit.job)
            return
        run(self._con, f"DELETE FROM {jobs} WHERE job = $1", commit.job)
        run(
            self._con,
            f"INSERT INTO {jobs} VALUES ($1, $2::bigint, $3, $4, $5)",
            commit.job,
            LAYOUT,
            commit.saved.definition,
            digest,
            checkpoint,
        )

    def _save_splits(self, job: str, splits: Mapping[SplitKey, SplitProgress]) -> None:
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
        names = listed(SPLITS.columns)
        kept = ", ".join(
            f"{quoted(name)} = excluded.{quoted(name)}" for name in moved[0] if name not in SPLITS.key
        )
        run(
            self._con,
            f"INSERT INTO {self._sql(SPLITS)} ({names}) "
            "SELECT $1::text, m.* FROM pg_catalog.json_to_recordset($2::json) "
            'AS m ("table" text, split text, status text, cursor text, rows bigint, epoch bigint, target bigint) '
            f"ON CONFLICT ({listed(SPLITS.key)}) DO UPDATE SET {kept}",
            job,
            json.dumps(moved, ensure_ascii=False),
        )

    def saved(self, job: str) -> SavedJob | None:
        """What the last commit saved, with all splits; None if the job has committed nothing."""
        found = rows_of(self._con, f"SELECT definition, checkpoint FROM {self._sql(JOBS)} WHERE job = $1", job)
        if not found:
            return None
        rows = rows_of(
            self._con,
            f'SELECT "table", split, status, cursor, rows, epoch, target FROM {self._sql(SPLITS)} WHERE job = $1',
            job,
        )
        splits = {
            (table, split): SplitProgress(SplitStatus(status), cursor_of(at), *moved)
            for table, split, status, at, *moved in rows
        }
        return SavedJob(found[0][0], replace(decode(Checkpoint, found[0][1]), splits=splits))

    def remove(self, job: str) -> None:
        # Markers first: a commit in flight holds their lock, so the DELETE waits for it.
        for side in SIDE_TABLES:
            run(self._con, f"DELETE FROM {self._sql(side)} WHERE job = $1", job)


@lru_cache(maxsize=4)
def _digest(definition: str) -> str:
    # Cached: every commit has the definition, whose pin takes megabytes at 100,000 splits.
    return hashlib.sha256(definition.encode()).hexdigest()
