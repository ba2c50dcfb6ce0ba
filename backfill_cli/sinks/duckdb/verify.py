"""How `verify` reads a DuckDB sink: between two commits, without delaying the runner."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import SavedJob, SinkTable, Survey
from backfill_cli.errors import Fatal, Transient
from backfill_cli.model.digest import (
    Dialect,
    Digest,
    DigestSpec,
    KeyRanges,
    Word,
    WordColumn,
    and_sampled,
    range_sql,
    ranges_sql,
    spec_of,
    whole_sql,
    xxhash64,
)
from backfill_cli.model.schema import fields_of
from backfill_cli.sinks.duckdb.copy import copy_file
from backfill_cli.sinks.duckdb.dialect import Target, exported_columns, literal, quoted
from backfill_cli.sinks.duckdb.file import Limits, opened, ours, rows_of
from backfill_cli.sinks.duckdb.state import has_state, saved_of

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

# Hashed one by one in Python, 5 microseconds each.
FEW_VALUES = 2000
# The longest commit seen took 2 s; even a runner that commits without pause releases the file in between.
PATIENCE_S = 60.0
RETRY_S = 0.02


class DuckDBCopy:
    """`contracts.SinkCopy` over one file that nobody can write while it is read."""

    def __init__(self, con: "duckdb.DuckDBPyConnection", path: Path, job: str, folder: Path) -> None:
        self._con, self._path, self._job, self._folder = con, path, job, folder
        self._written = 0

    def saved(self) -> SavedJob | None:
        return saved_of(self._con, self._job) if has_state(self._con) else None

    def blocks(self) -> str:
        """DuckDB lets nobody write to a file that another process reads."""
        return "" if self._path.parent == self._folder else f"no runner can write to {self._path}"

    def mark(self) -> str | None:
        """The file's inode, size and times, while we hold it; None for a copy, as its original keeps changing.

        ctime is included because it cannot be set back.
        """
        if self._path.parent == self._folder:
            return None
        known = [file.stat() for file in (self._path, Path(f"{self._path}.wal")) if file.exists()]
        return json.dumps([[s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for s in known])

    def survey(self, table: SinkTable) -> Survey:
        """Reads only DuckDB's column statistics, no rows."""
        with ours(self._path), self._con.cursor() as con:
            target = Target.of(table)
            few = frozenset(name for name in _strings(table) if _distinct(con, target, name) <= FEW_VALUES)
            spec = spec_of(table.schema, table.key, few)
            if spec is None or spec.columns[0].word is Word.TEXT:
                return Survey(None, None, few)
            word = _word(spec.columns[0], "t")
            low, high = rows_of(con, f"SELECT min({word}), max({word}) FROM {target.sql} AS t")[0]
            return Survey(low, high, few)

    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        with ours(self._path), self._con.cursor() as con:
            source, dialect = _source(con, table, spec), _dialect(spec)
            sql = whole_sql(spec, dialect, source) if ranges is None else ranges_sql(spec, ranges, dialect, source)
            return {part: Digest(count, tuple(hashes)) for part, count, *hashes in rows_of(con, sql)}

    def frame(
        self,
        spark: "SparkSession",
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> "DataFrame":
        """The rows, written to Parquet by DuckDB for Spark to read."""
        from pyspark.sql.types import StructType

        self._written += 1
        folder = self._folder / f"{table.name}-{self._written}"
        types = {column.name: column.type for column in exported_columns(table.name, table.schema)}
        exported = ", ".join(f"CAST(t.{quoted(c)} AS {types[c]}) AS {quoted(c)}" for c in columns)
        with ours(self._path), self._con.cursor() as con:
            rows = f"SELECT {exported} FROM {Target.of(table).sql} AS t"
            if only is not None:
                spec, ranges, parts = only
                part = range_sql(ranges, _dialect(spec), _dialect(spec).word(spec.columns[0]))
                wanted = ", ".join(str(number) for number in parts)
                rows = f"SELECT {exported} FROM {_source(con, table, spec)} WHERE {part} IN ({wanted})"
                rows += and_sampled(spec, _dialect(spec))
            con.execute(f"COPY ({rows}) TO {literal(str(folder))} (FORMAT parquet, PER_THREAD_OUTPUT)")
        folder.mkdir(exist_ok=True)  # DuckDB creates no folder if there are no rows
        schema = {field.name: field for field in StructType.fromJson(json.loads(table.schema))}
        return spark.read.schema(StructType([schema[name] for name in columns])).parquet(str(folder))


def _strings(table: SinkTable) -> list[str]:
    return [
        field["name"]
        for field in fields_of(table.schema)
        if field["type"] == "string" and not (field.get("metadata") or {}).get("logical")
    ]


def _distinct(con: "duckdb.DuckDBPyConnection", target: Target, column: str) -> int:
    """The approximate number of distinct values by DuckDB's statistics. Affects speed only, never results."""
    found = rows_of(con, f"SELECT stats({quoted(column)}) FROM {target.sql} LIMIT 1")
    return int(found[0][0].get("approx_unique", FEW_VALUES + 1)) if found else 0


def _source(con: "duckdb.DuckDBPyConnection", table: SinkTable, spec: DigestSpec) -> str:
    """The FROM clause: the table as `t`, joined with a list of hashes for each text column."""
    target = Target.of(table).sql
    source = f"{target} AS t"
    for at, column in enumerate(spec.columns):
        if column.word is Word.TEXT:
            name = quoted(column.name)
            values = [
                value for (value,) in rows_of(con, f"SELECT DISTINCT {name} FROM {target}") if value is not None
            ]
            con.execute(
                f"CREATE OR REPLACE TEMP TABLE words_{at} AS "
                "SELECT unnest($values::VARCHAR[]) AS value, unnest($words::BIGINT[]) AS word",
                {"values": values, "words": [xxhash64(value.encode()) for value in values]},
            )
            source += f" LEFT JOIN words_{at} ON t.{name} = words_{at}.value"
    return source


def _dialect(spec: DigestSpec) -> Dialect:
    def word(column: WordColumn) -> str:
        return f"words_{spec.columns.index(column)}.word" if column.word is Word.TEXT else _word(column, "t")

    return Dialect(
        word=word,
        xor=lambda a, b: f"xor({a}, {b})",
        quotient=lambda value, by: f"({value} // {by})",
    )


def _word(column: WordColumn, table: str) -> str:
    """SQL of a column's word. Infinite dates and times become the numbers that DuckDB, Parquet and Spark use."""
    name = f"{table}.{quoted(column.name)}"
    match column.word:
        case Word.DAYS:
            return _finite(name, f"CAST({name} - DATE '1970-01-01' AS BIGINT)", 2**31 - 1)
        case Word.MICROS:
            return _finite(name, f"epoch_us({name})", 2**63 - 1)
        case Word.UNSCALED:
            # DuckDB multiplies decimals of up to 18 digits in 64 bits, and fails if the product has more digits.
            fits = column.precision + column.scale < 18
            value = name if fits else f"CAST({name} AS DECIMAL(38, {column.scale}))"
            return f"CAST({value} * {10**column.scale} AS BIGINT)"
        case _:
            return f"CAST({name} AS BIGINT)"


def _finite(name: str, word: str, endless: int) -> str:
    sign = f"CASE WHEN {name} > '1970-01-01' THEN {endless} ELSE -{endless} END"
    return f"CASE WHEN isinf({name}) THEN {sign} ELSE {word} END"


@contextmanager
def copied(path: Path, limits: Limits, job: str, live: bool, folder: Path) -> Iterator[DuckDBCopy]:
    """The file as it is between two commits: a copy of it for a live job, otherwise the file itself.

    Raises Transient if the file is held for longer than PATIENCE_S, or there is no room for the copy.
    """
    if not path.exists():
        raise Fatal(f"the DuckDB file {path} does not exist", f"see what the job last did: backfill status {job}")
    read = path
    if live:
        read = folder / "copy.duckdb"
        copy_file(path, read, lambda: _between_commits(path, limits, folder))
    with _between_commits(read, limits, folder) as con:
        yield DuckDBCopy(con, read, job, folder)


@contextmanager
def _between_commits(path: Path, limits: Limits, folder: Path) -> "Iterator[duckdb.DuckDBPyConnection]":
    """The file, opened for reading as soon as no commit holds it."""
    deadline = time.monotonic() + PATIENCE_S
    with ExitStack() as stack:
        while True:
            try:
                con = stack.enter_context(opened(path, limits, reads=folder, read_only=True))
                break
            except Transient:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_S)
        yield con
