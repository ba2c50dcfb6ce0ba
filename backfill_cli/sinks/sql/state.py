"""What an SQL sink keeps about jobs, in side tables: markers, owners, jobs, splits, and cutovers."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Protocol

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable, own
from backfill_cli.contracts.refusals import duplicate_keys, newer_layout, taken
from backfill_cli.model.checkpoint import ANEW, Checkpoint, Marker, Owner
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.position import cursor_of
from backfill_cli.model.split import SplitKey, SplitProgress, SplitStatus
from backfill_cli.sinks.sql.dialect import SqlDialect, Target, literal


class Connection(Protocol):
    """A connection to the database."""

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a small query: metadata and markers, never data. Parameters are `$1`…"""
        ...

    def run(self, sql: str, *parameters: Any) -> None: ...

    def transaction(self) -> AbstractContextManager[None]:
        """One transaction: committed at the end, without any effect after an error."""
        ...

    def ddl(self) -> AbstractContextManager[None]:
        """A transaction that creates, changes or drops tables and views."""
        ...


@dataclass(frozen=True, slots=True)
class SideTable:
    """columns: their types, which all databases understand, and comments. key, unique: where tables have keys."""

    name: str
    comment: str
    columns: Mapping[str, tuple[str, str]]
    key: tuple[str, ...]
    unique: tuple[str, ...] = ()


def side_tables(holder: str, layout: int, target: str) -> tuple[SideTable, ...]:
    """Markers, owners, jobs, splits. holder: "file" or "database". target: what a marker's target is."""
    job, table = ("text NOT NULL", "name of the job"), ("text NOT NULL", "the job's name for the table")
    return (
        SideTable(
            "markers",
            "backfill: what each job has committed to each table. "
            "Written in the transaction that writes the rows.",
            {
                "job": job,
                "table": table,
                "target": ("text NOT NULL", target),
                "epoch": ("bigint NOT NULL", "last commit, milliseconds since 1970; 0: none yet"),
                "token": ("bigint NOT NULL", "runners with an older token are refused"),
                "attempt": ("text NOT NULL", "staging attempt that the commit was written from"),
                "committed_at": ("timestamptz", "when it was committed; NULL: none yet"),
            },
            ("job", "table"),
            ("target",),
        ),
        SideTable(
            "owners",
            "backfill: which catalog owns each job.",
            {
                "job": job,
                "catalog": ("text NOT NULL", "id of the catalog, from its table catalog_identity"),
                "host": ("text NOT NULL", "machine that the catalog was used from"),
                "path": ("text NOT NULL", "the catalog's file there"),
            },
            ("job",),
        ),
        SideTable(
            "jobs",
            "backfill: what `backfill resume --from-sink` rebuilds a lost catalog from. Holds no secrets.",
            {
                "job": job,
                "layout": ("integer NOT NULL", f"version of these tables: {layout}"),
                "definition": ("text NOT NULL", "config with references, fingerprint and pin, JSON"),
                "digest": ("text NOT NULL", "SHA-256 of the definition, which is written only when this changes"),
                "checkpoint": ("text NOT NULL", "the last committed checkpoint without its parts, JSON"),
            },
            ("job",),
        ),
        SideTable(
            "splits",
            f"backfill: how much of each part of a snapshot this {holder} holds.",
            {
                "job": job,
                "table": table,
                "split": ("text NOT NULL", "the part of the snapshot: a file, a key range, a partition"),
                "status": (
                    "text NOT NULL",
                    "not started, consuming, consumed; a partition: not started, backfilling, awaiting live, "
                    "finished",
                ),
                "cursor": ("text", "where to continue, JSON: a row's index, an offset, a key; NULL once consumed"),
                "rows": ("bigint NOT NULL", "rows read so far"),
                "epoch": ("bigint NOT NULL", "the last checkpoint that changed this row"),
                "target": ("bigint", "the offset before which a partition's history ends; NULL for other parts"),
            },
            ("job", "table", "split"),
        ),
    )


def live_table(name: Mapping[str, tuple[str, str]], kept: str) -> SideTable:
    """name: the columns that hold a name which people query. kept: what the column of that name is."""
    return SideTable(
        "live",
        "backfill: the names that people query, made views of a job's tables by `backfill cutover`.",
        {
            "job": ("text NOT NULL", "name of the job"),
            "table": ("text NOT NULL", "the job's name for the table"),
            **name,
            "kept": ("text", f"{kept}; NULL: nothing had it"),
            "epoch": ("bigint NOT NULL", "the job's checkpoint at that time"),
            "since_ms": ("bigint NOT NULL", "when, milliseconds since 1970"),
            "until_ms": ("bigint NOT NULL", "until when it can be reversed"),
        },
        tuple(name),
    )


PARTIALS = SideTable(
    "partials",
    "backfill: the partial aggregates of derived tables whose groups are kept by contributions.",
    {
        "job": ("text NOT NULL", "name of the job"),
        "table": ("text NOT NULL", "the job's name for the derived table"),
        "name": ("text NOT NULL", "the table that has them; empty: groups are computed again from all their rows"),
        "epoch": ("bigint NOT NULL", "the commit that they are of; others are not used"),
    },
    ("job", "table"),
)

FILLS = SideTable(
    "fills",
    "backfill: derived tables that are being filled, range by range.",
    {
        "job": ("text NOT NULL", "name of the job"),
        "table": ("text NOT NULL", "the job's name for the derived table"),
        "plan": ("text NOT NULL", "the table that has its rows so far, and its ranges, JSON"),
        "done": ("bigint NOT NULL", "how many ranges are filled"),
        "epoch": ("bigint NOT NULL", "the commit that these are of; others are not used"),
    },
    ("job", "table"),
)


@dataclass(frozen=True, slots=True)
class Fill:
    """How far a derived table is filled. side: SQL of the table that has its rows so far. digest: of its SELECT.

    table: the job's name of that whose ranges are taken, by the column `by`, as SQL in the SELECT. bounds: SQL,
    between the ranges. adds: whether `side` has contributions. done: ranges that are filled. rows: of the table,
    as the fill began.
    """

    side: str
    digest: str
    table: str
    by: str
    bounds: tuple[str, ...]
    adds: bool
    done: int
    rows: int
    epoch: int


class SqlState(ABC):
    """The side tables of one schema, on one connection; every call is part of the connection's transaction.

    tables: all of them. required: the names of those that one transaction creates.
    """

    dialect: ClassVar[SqlDialect]
    layout: ClassVar[int]
    tables: ClassVar[tuple[SideTable, ...]]
    required: ClassVar[frozenset[str]]

    def __init__(self, con: Connection, schema: str) -> None:
        self.con, self.schema = con, schema

    @abstractmethod
    def there(self) -> list[str]:
        """The names of the side tables that exist."""

    @abstractmethod
    def create_owners(self) -> None:
        """The side table of owners exists, and no other session writes to it until this transaction ends."""

    @abstractmethod
    def drop_unused(self) -> None:
        """The side tables are gone if no job has a row in them."""

    @abstractmethod
    def schema_ddl(self, schema: str) -> list[str]:
        """DDL of the schema; none if it exists."""

    @abstractmethod
    def save_splits(self, job: str, splits: Mapping[SplitKey, SplitProgress]) -> None:
        """These splits have this progress; the job's other ones stay."""

    def upgrades(self) -> list[str]:
        """The statements that upgrade existing side tables to `layout`; none if they have it."""
        return []

    def cursor_sql(self) -> str:
        """SQL of a split's cursor as text."""
        return "cursor"

    def target(self, name: str) -> Target:
        return self.dialect.target(self.schema, own.PREFIX + name)

    def sql(self, name: str) -> str:
        return self.target(name).sql

    def ddl(self, side: SideTable) -> list[str]:
        """DDL of a side table and its comments, if it does not exist."""
        dialect, table = self.dialect, self.sql(side.name)
        parts = [f"{dialect.quoted(name)} {kind}" for name, (kind, _) in side.columns.items()]
        if dialect.indexed:
            parts += [f"PRIMARY KEY ({dialect.listed(side.key)})"]
            parts += [f"UNIQUE ({dialect.quoted(name)})" for name in side.unique]
        create = f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})"
        if not dialect.comments:
            return [create]
        return [
            create,
            f"COMMENT ON TABLE {table} IS {literal(side.comment)}",
            *(
                f"COMMENT ON COLUMN {table}.{dialect.quoted(name)} IS {literal(comment)}"
                for name, (_, comment) in side.columns.items()
            ),
        ]

    def required_ddl(self) -> list[str]:
        return [statement for side in self.tables if side.name in self.required for statement in self.ddl(side)]

    def exists(self) -> bool:
        """Whether the side tables exist. One transaction creates them, so either all of them exist or none.

        Raises Fatal if a newer backfill wrote them.
        """
        if not self.required <= set(self.there()):
            return False
        newest = self.con.rows(f"SELECT {self.dialect.functions}max(layout) FROM {self.sql('jobs')}")[0][0]
        if newest is not None and newest > self.layout:
            raise newer_layout("this sink's side tables", newest, self.layout)
        return True

    def markers(self, job: str, lock: bool = False) -> dict[str, Marker]:
        """The job's markers by table; epoch 0 for a table that is claimed but has no commit yet.

        lock: until this transaction ends nobody else can write them, or read them with `lock`.
        """
        locked = self.dialect.lock if lock else ""
        query = f'SELECT "table", epoch, token, attempt FROM {self.sql("markers")} WHERE job = $1 ORDER BY "table"'
        found = self.con.rows(query + locked, job)
        return {table: Marker(epoch, token, attempt) for table, epoch, token, attempt in found}

    def owner_of_target(self, target: Target) -> tuple[str, str] | None:
        """The (job, table) that writes this table; None if no job does."""
        query = f'SELECT job, "table" FROM {self.sql("markers")} WHERE target = $1'
        found = self.con.rows(query, target.identity)
        return (found[0][0], found[0][1]) if found else None

    def claim(self, job: str, claims: Iterable[tuple[str, Target]]) -> None:
        """Tables without a marker get one at epoch 0, with the token of the job's other markers."""
        markers = self.sql("markers")
        given = "CAST($1 AS text), CAST($2 AS text), CAST($3 AS text)"
        newest = f"SELECT {self.dialect.functions}max(token) FROM {markers} WHERE job = CAST($1 AS text)"
        for table, target in claims:
            self.con.run(
                f"INSERT INTO {markers} SELECT {given}, 0, coalesce(({newest}), 0), '', NULL",
                *(job, table, target.identity),
            )

    def unfill(self, job: str, name: str) -> None:
        """The next commit fills a derived table anew; one that never was filled stays so."""
        self.con.run(
            f"UPDATE {self.sql('markers')} SET epoch = 0, attempt = $1 "
            'WHERE job = $2 AND "table" = $3 AND epoch > 0',
            *(ANEW, job, name),
        )

    def take_over(self, job: str, name: str) -> None:
        """The next commit fills a derived table that was claimed, in place of what its table has."""
        self.con.run(
            f'UPDATE {self.sql("markers")} SET attempt = $1 WHERE job = $2 AND "table" = $3 AND epoch = 0',
            *(ANEW, job, name),
        )

    def raise_token(self, job: str, token: int) -> None:
        self.con.run(f"UPDATE {self.sql('markers')} SET token = $1 WHERE job = $2", token, job)

    def owner(self, job: str) -> Owner | None:
        """The catalog that owns the job; None if none is recorded."""
        found = self.con.rows(f"SELECT catalog, host, path FROM {self.sql('owners')} WHERE job = $1", job)
        return Owner(*found[0]) if found else None

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        """The catalog `owner` owns the job. Raises Held if a catalog other than `instead_of` now owns it."""
        held, owners = self.owner(job), self.sql("owners")
        if held is not None and held.catalog not in (owner.catalog, instead_of and instead_of.catalog):
            raise taken(job, held)
        self.con.run(f"DELETE FROM {owners} WHERE job = $1", job)
        values = (job, owner.catalog, owner.host, owner.path)
        self.con.run(f"INSERT INTO {owners} VALUES ($1, $2, $3, $4)", *values)

    def refuse_twice(self, table: SinkTable) -> None:
        """Raises BadData naming the table, its key and the first values of it that occur more than once."""
        target = self.dialect.target_of(table, self.schema)
        if twice := self.con.rows(self.dialect.twice(table.key, target.sql)):
            raise duplicate_keys(table, twice)

    def record(self, commit: EpochCommit, tables: Sequence[str]) -> None:
        """The epoch's markers, its checkpoint and the splits that it changed are written."""
        numbers = ", ".join(f"${at}" for at, _ in enumerate(tables, 5))
        self.con.run(
            f"UPDATE {self.sql('markers')} SET epoch = $1, token = $2, attempt = $3, "
            f'committed_at = {self.dialect.functions}now() WHERE job = $4 AND "table" IN ({numbers})',
            *(commit.epoch, commit.token, commit.attempt, commit.job, *tables),
        )
        self._save_checkpoint(commit)
        if commit.saved.checkpoint.splits:
            self.save_splits(commit.job, commit.saved.checkpoint.splits)

    def _save_checkpoint(self, commit: EpochCommit) -> None:
        checkpoint = encode(replace(commit.saved.checkpoint, splits={}, plan=None, staged=None))
        digest, jobs = _digest(commit.saved.definition), self.sql("jobs")
        if self.con.rows(f"SELECT digest FROM {jobs} WHERE job = $1", commit.job) == [(digest,)]:
            self.con.run(f"UPDATE {jobs} SET checkpoint = $1 WHERE job = $2", checkpoint, commit.job)
            return
        self.con.run(f"DELETE FROM {jobs} WHERE job = $1", commit.job)
        values = (commit.job, self.layout, commit.saved.definition, digest, checkpoint)
        self.con.run(f"INSERT INTO {jobs} VALUES ($1, CAST($2 AS bigint), $3, $4, $5)", *values)

    def saved(self, job: str) -> SavedJob | None:
        """What the last commit saved, with all splits; None if the job has committed nothing."""
        found = self.con.rows(f"SELECT definition, checkpoint FROM {self.sql('jobs')} WHERE job = $1", job)
        if not found:
            return None
        read = f'"table", split, status, {self.cursor_sql()}, rows, epoch, target'
        rows = self.con.rows(f"SELECT {read} FROM {self.sql('splits')} WHERE job = $1", job)
        splits = {
            (table, split): SplitProgress(SplitStatus(status), cursor_of(at), *moved)
            for table, split, status, at, *moved in rows
        }
        return SavedJob(found[0][0], replace(decode(Checkpoint, found[0][1]), splits=splits))

    def partials(self, job: str) -> dict[str, tuple[str, int]]:
        """By derived table, the table of its partial aggregates, and the commit that they are of."""
        found = self.con.rows(f'SELECT "table", name, epoch FROM {self.sql(PARTIALS.name)} WHERE job = $1', job)
        return {table: (name, epoch) for table, name, epoch in found}

    def record_partials(self, job: str, table: str, name: str, epoch: int) -> None:
        """The table `name` has the partial aggregates of this derived table, as of this commit."""
        partials = self.sql(PARTIALS.name)
        self.con.run(f'DELETE FROM {partials} WHERE job = $1 AND "table" = $2', job, table)
        self.con.run(f"INSERT INTO {partials} VALUES ($1, $2, $3, CAST($4 AS bigint))", job, table, name, epoch)

    def advance_partials(self, job: str, tables: Sequence[str], epoch: int) -> None:
        """Those of these derived tables are of this commit."""
        numbers = ", ".join(f"${at}" for at, _ in enumerate(tables, 3))
        self.con.run(
            f'UPDATE {self.sql(PARTIALS.name)} SET epoch = $1 WHERE job = $2 AND "table" IN ({numbers})',
            *(epoch, job, *tables),
        )

    def drop_partials(self, job: str, tables: Sequence[str] | None = None) -> bool:
        """The partial aggregates of these derived tables are gone; None: of all. Tells whether any were."""
        held = self.partials(job) if PARTIALS.name in self.there() else {}
        names = [name for table, (name, _) in held.items() if name and (tables is None or table in tables)]
        for name in names:
            self.con.run(f"DROP TABLE IF EXISTS {self.sql(name)}")
        return bool(names)

    def fills(self, job: str) -> dict[str, Fill]:
        """By derived table, how far it is filled, of those that are being filled."""
        held = self.con.rows(f'SELECT "table", plan, done, epoch FROM {self.sql(FILLS.name)} WHERE job = $1', job)
        found = {}
        for table, plan, done, epoch in held:
            told = json.loads(plan)
            found[table] = Fill(**{**told, "bounds": tuple(told["bounds"])}, done=done, epoch=epoch)
        return found

    def record_fill(self, job: str, table: str, fill: Fill) -> None:
        told = asdict(fill)
        done, epoch = told.pop("done"), told.pop("epoch")
        self.end_fill(job, table)
        self.con.run(
            f"INSERT INTO {self.sql(FILLS.name)} VALUES ($1, $2, $3, CAST($4 AS bigint), CAST($5 AS bigint))",
            *(job, table, json.dumps(told), done, epoch),
        )

    def end_fill(self, job: str, table: str) -> None:
        self.con.run(f'DELETE FROM {self.sql(FILLS.name)} WHERE job = $1 AND "table" = $2', job, table)

    def drop_fills(self, job: str, tables: Sequence[str] | None = None) -> bool:
        """What these derived tables hold so far is gone; None: of all. Tells whether any were being filled."""
        held = self.fills(job) if FILLS.name in self.there() else {}
        sides = [fill.side for table, fill in held.items() if tables is None or table in tables]
        for side in sides:
            self.con.run(f"DROP TABLE IF EXISTS {side}")
        return bool(sides)

    def leave(self, job: str, tables: Sequence[str]) -> bool:
        """These tables of the job are forgotten. Returns whether a table was dropped."""
        dropped = self.drop_partials(job, tables) | self.drop_fills(job, tables)
        for name in self.there():
            if name in ("markers", "splits", "live", PARTIALS.name, FILLS.name):
                for table in tables:
                    self.con.run(f'DELETE FROM {self.sql(name)} WHERE job = $1 AND "table" = $2', job, table)
        return dropped

    def remove(self, job: str) -> bool:
        """The job is forgotten. Its views stay, and its cutovers can no longer be reversed.

        Returns whether a table was dropped.
        """
        # Markers first: a commit in flight holds their lock, so the DELETE waits for it.
        there = self.there()
        for name in there:
            if name not in (PARTIALS.name, FILLS.name):
                self.con.run(f"DELETE FROM {self.sql(name)} WHERE job = $1", job)
        dropped = self.drop_partials(job) | self.drop_fills(job)
        for name in (PARTIALS.name, FILLS.name):
            if name in there:
                self.con.run(f"DELETE FROM {self.sql(name)} WHERE job = $1", job)
        return dropped


@lru_cache(maxsize=4)
def _digest(definition: str) -> str:
    # Cached: every commit has the definition, whose pin takes megabytes at 100,000 splits.
    return hashlib.sha256(definition.encode()).hexdigest()
