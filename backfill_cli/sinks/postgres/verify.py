"""How `verify` reads a PostgreSQL sink: in one snapshot of the database, which blocks no commit."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_cli import postgres_driver
from backfill_cli.contracts import SinkTable
from backfill_cli.errors import START_OVER, BadData, Transient, free_space
from backfill_cli.model.digest import Word, WordColumn
from backfill_cli.sinks.postgres.derived import PostgresDerives
from backfill_cli.sinks.postgres.dialect import quoted, sink_columns
from backfill_cli.sinks.postgres.session import READING, Connection, Place, opened, translate_errors
from backfill_cli.sinks.postgres.staged import arrow_type, received, selected, since_1970
from backfill_cli.sinks.postgres.state import State
from backfill_cli.sinks.sql.dialect import Column, Target, literal
from backfill_cli.sinks.sql.verify import FEW_VALUES, SqlCopy

NOT_A_NUMBER = 2**62
"""The word of a NaN: no decimal of 18 digits has this word, and no job writes a NaN."""


class PostgresCopy(SqlCopy[State]):
    """`contracts.SinkCopy` over one REPEATABLE READ transaction. Any thread may call; queries run one by one."""

    xor = "({} # {})"
    quotient = "({} / {})"
    level = " OFFSET 0"
    """1.5 s instead of 19 for a million rows"""
    bytewise = ' COLLATE pg_catalog."C"'
    """The column's own collation may treat different texts as equal."""

    def __init__(self, con: Connection, place: Place, schema: str, job: str, folder: Path) -> None:
        super().__init__(job, folder)
        self.derives = PostgresDerives(schema)
        self._con, self._place, self._schema = con, place, schema
        self._turn = threading.Lock()

    @contextmanager
    def asking(self, doing: str) -> Iterator[State]:
        with self._turn, translate_errors(self._place, f"{doing} for verify"):
            yield State(self._con, self._schema)

    def few(self, state: State, target: Target, columns: Sequence[str]) -> frozenset[str]:
        """By the statistics of the last ANALYZE."""
        found = state.con.rows(
            "SELECT attname FROM pg_catalog.pg_stats WHERE schemaname = $1 AND tablename = $2 "
            f"AND n_distinct BETWEEN 0 AND {FEW_VALUES}",
            *(target.schema, target.table),
        )
        return frozenset(name for (name,) in found) & frozenset(columns)

    def words(self, state: State, name: str, words: Mapping[str, int]) -> str:
        listed = literal(json.dumps([[value, word] for value, word in words.items()]))
        return (
            "(SELECT w->>0 AS value, (w->>1)::bigint AS word "
            f"FROM pg_catalog.json_array_elements({listed}::json) w OFFSET 0) {name}"
        )

    def word(self, column: WordColumn, of: str) -> str:
        """Infinite dates and times become the numbers that Parquet and Spark use for them."""
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

    def selected(self, table: SinkTable, columns: Sequence[str]) -> str:
        return ", ".join(
            f"{selected(column, f't.{quoted(column.name)}')} AS {quoted(column.name)}"
            for column in _columns(table, columns)
        )

    def export(self, state: State, rows: str, table: SinkTable, columns: Sequence[str], folder: Path) -> None:
        wanted = _columns(table, columns)
        schema = pa.schema([(column.name, arrow_type(column)) for column in wanted])
        try:
            with state.con.cursor() as cursor, pq.ParquetWriter(folder / "0.parquet", schema) as writer:
                cursor.execute(rows)
                for batch in postgres_driver.batches(cursor):
                    arrays = [received(*one) for one in zip(wanted, batch.columns, strict=True)]
                    writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        except OSError as exc:
            raise Transient(f"{folder} cannot be written: {exc}", free_space(folder.parent)) from exc
        except pa.ArrowInvalid as exc:
            raise BadData(
                f"table {table.name!r}: {table.target} holds a value that a job with this schema cannot have "
                f"written: {exc}",
                "correct it, or " + START_OVER,
            ) from exc


def _columns(table: SinkTable, names: Sequence[str]) -> list[Column]:
    kinds = {column.name: column for column in sink_columns(table.name, table.schema)}
    return [kinds[name] for name in names]


@contextmanager
def copied(place: Place, schema: str, job: str, folder: Path) -> Iterator[PostgresCopy]:
    """The tables as they are now, unchanging until the block ends."""
    with opened(place, f"reading the tables of job {job!r} for verify", mode=READING) as con:
        yield PostgresCopy(con, place, schema, job, folder)
