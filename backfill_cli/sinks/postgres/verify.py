"""How `verify` reads a PostgreSQL sink: in one snapshot of the database, which blocks no commit."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli import postgres_driver
from backfill_cli.contracts import SavedJob, SinkTable, Survey
from backfill_cli.errors import START_OVER, BadData, Transient, free_space
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
from backfill_cli.model.schema import columns_of, fields_of
from backfill_cli.sinks.postgres.dialect import Column, Target, literal, quoted, read_back, sink_columns
from backfill_cli.sinks.postgres.edge import ours
from backfill_cli.sinks.postgres.session import READING, Connection, Place, opened, rows_of
from backfill_cli.sinks.postgres.state import State
from backfill_cli.sinks.postgres.values import arrow_type, received, selected, since_1970

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Hashed one by one in Python, 5 microseconds each.
FEW_VALUES = 2000
FILE_ROWS = 1_000_000
BYTEWISE = 'COLLATE pg_catalog."C"'
"""The column's own collation may treat different texts as equal."""
NOT_A_NUMBER = 2**62
"""The word of a NaN: no decimal of 18 digits has this word, and no job writes a NaN."""


class PostgresCopy:
    """`contracts.SinkCopy` over one REPEATABLE READ transaction. Any thread may call; queries run one by one."""

    def __init__(self, con: Connection, place: Place, schema: str, job: str, folder: Path) -> None:
        self._con, self._place, self._schema, self._job, self._folder = con, place, schema, job, folder
        self._turn = threading.Lock()
        self._written = 0

    def saved(self) -> SavedJob | None:
        with self._turn, self._asking("reading the job's saved state"):
            state = State(self._con, self._schema)
            return state.saved(self._job) if state.exists() else None

    def mark(self) -> str | None:
        """None: the server has no counter that proves that nobody wrote to a table."""
        return None

    def survey(self, table: SinkTable) -> Survey:
        """Reads the planner's statistics, and the key's index if there is one."""
        with self._turn, self._asking(f"surveying {table.target}"):
            target = Target.of(table, self._schema)
            few = self._few(target) & frozenset(_strings(table))
            spec = spec_of(table.schema, table.key, few)
            if spec is None or spec.columns[0].word is Word.TEXT:
                return Survey(None, None, few)
            name = quoted(spec.columns[0].name)
            low, high = (_word(spec.columns[0], f"b.{end}") for end in ("low", "high"))
            # Min and max of the column itself, not of its word: an index can answer them.
            ends = f"SELECT pg_catalog.min({name}) AS low, pg_catalog.max({name}) AS high FROM {target.sql}"
            if spec.columns[0].word is Word.BOOLEAN:
                ends = (
                    f"SELECT pg_catalog.bool_and({name}) AS low, pg_catalog.bool_or({name}) AS high "
                    f"FROM {target.sql}"
                )
            lowest, highest = rows_of(self._con, f"SELECT {low}, {high} FROM ({ends}) b")[0]
            return Survey(lowest, highest, few)

    def _few(self, target: Target) -> frozenset[str]:
        """Columns with few distinct values according to the last ANALYZE. Affects speed only, never results."""
        found = rows_of(
            self._con,
            "SELECT attname FROM pg_catalog.pg_stats WHERE schemaname = $1 AND tablename = $2 "
            f"AND n_distinct BETWEEN 0 AND {FEW_VALUES}",
            target.schema,
            target.table,
        )
        return frozenset(name for (name,) in found)

    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        with self._turn, self._asking(f"hashing {table.target}"):
            source, dialect = self._source(table, spec), _dialect(spec)
            sql = whole_sql(spec, dialect, source) if ranges is None else ranges_sql(spec, ranges, dialect, source)
            return {part: Digest(count, tuple(hashes)) for part, count, *hashes in rows_of(self._con, sql)}

    def _source(self, table: SinkTable, spec: DigestSpec) -> str:
        """The FROM clause: the table as `t`, joined with a list of hashes for each text column."""
        target = Target.of(table, self._schema).sql
        source = f"{target} AS t"
        for at, column in enumerate(spec.columns):
            if column.word is Word.TEXT:
                name = f"{quoted(column.name)} {BYTEWISE}"
                values = [
                    value
                    for (value,) in rows_of(self._con, f"SELECT DISTINCT {name} FROM {target}")
                    if value is not None
                ]
                words = json.dumps([[value, xxhash64(value.encode())] for value in values])
                source += (
                    " LEFT JOIN (SELECT w->>0 AS value, (w->>1)::bigint AS word "
                    f"FROM pg_catalog.json_array_elements({literal(words)}::json) w OFFSET 0) words_{at} "
                    f"ON t.{name} = words_{at}.value"
                )
        return source

    def frame(
        self,
        spark: "SparkSession",
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> "DataFrame":
        """The rows, written to Parquet from Arrow for Spark to read."""
        from pyspark.sql.types import StructType

        self._written += 1
        folder = self._folder / f"{table.name}-{self._written}"
        folder.mkdir()
        kinds = {column.name: column for column in sink_columns(table.name, table.schema)}
        wanted = [kinds[name] for name in columns]
        with self._turn, self._asking(f"reading {table.target}"):
            rows = f"SELECT {_selected(wanted)} FROM {Target.of(table, self._schema).sql} AS t"
            if only is not None:
                spec, ranges, parts = only
                part = range_sql(ranges, _dialect(spec), _dialect(spec).word(spec.columns[0]))
                numbers = ", ".join(str(number) for number in parts)
                rows = f"SELECT {_selected(wanted)} FROM {self._source(table, spec)} WHERE {part} IN ({numbers})"
                rows += and_sampled(spec, _dialect(spec))
            self._export(rows, wanted, table, folder)
        fields = columns_of(read_back(table.schema))
        schema = {"type": "struct", "fields": [fields[name] for name in columns]}
        return spark.read.schema(StructType.fromJson(schema)).parquet(str(folder))

    def _export(self, rows: str, columns: Sequence[Column], table: SinkTable, folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([(column.name, arrow_type(column)) for column in columns])
        try:
            with self._con.cursor() as cursor, pq.ParquetWriter(folder / "0.parquet", schema) as writer:
                cursor.execute(rows)
                for batch in postgres_driver.batches(cursor):
                    held = zip(columns, batch.columns, strict=True)
                    arrays = [received(column, values) for column, values in held]
                    writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        except OSError as exc:
            raise Transient(f"{folder} cannot be written: {exc}", free_space(folder.parent)) from exc
        except pa.ArrowInvalid as exc:
            raise BadData(
                f"table {table.name!r}: {table.target} holds a value that a job with this schema cannot have "
                f"written: {exc}",
                f"correct it, or {START_OVER}",
            ) from exc

    def _asking(self, doing: str) -> AbstractContextManager[None]:
        return ours(self._place, f"{doing} for verify")


def _selected(columns: Sequence[Column]) -> str:
    return ", ".join(
        f"{selected(column, f't.{quoted(column.name)}')} AS {quoted(column.name)}" for column in columns
    )


def _strings(table: SinkTable) -> list[str]:
    return [
        field["name"]
        for field in fields_of(table.schema)
        if field["type"] == "string" and not (field.get("metadata") or {}).get("logical")
    ]


def _dialect(spec: DigestSpec) -> Dialect:
    def word(column: WordColumn) -> str:
        if column.word is Word.TEXT:
            return f"words_{spec.columns.index(column)}.word"
        return _word(column, f"t.{quoted(column.name)}")

    return Dialect(
        word=word,
        xor=lambda a, b: f"({a} # {b})",
        quotient=lambda value, by: f"({value} / {by})",
        level=" OFFSET 0",  # 1.5 s instead of 19 for a million rows
    )


def _word(column: WordColumn, of: str) -> str:
    """SQL of a column's word. Infinite dates and times become the numbers that Parquet and Spark use for them."""
    match column.word:
        case Word.DAYS:
            return since_1970("date", of)
        case Word.MICROS:
            return since_1970("timestamp", of)
        case Word.UNSCALED:
            scaled = f"({of} * {10**column.scale})::bigint"
            return f"CASE WHEN {of} = 'NaN' THEN {NOT_A_NUMBER} ELSE {scaled} END"
        case Word.BOOLEAN:
            return f"{of}::int::bigint"
        case _:
            return f"{of}::bigint"


@contextmanager
def copied(place: Place, schema: str, job: str, folder: Path) -> Iterator[PostgresCopy]:
    """The tables as they are now, unchanging until the block ends."""
    with opened(place, f"reading the tables of job {job!r} for verify", mode=READING) as con:
        yield PostgresCopy(con, place, schema, job, folder)
