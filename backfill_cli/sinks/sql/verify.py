"""How `verify` reads an SQL sink: hashes that the database computes itself, and rows as Parquet for Spark."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from backfill_cli.contracts import ComparedDerived, SavedJob, SinkCopy, SinkTable, Survey
from backfill_cli.model.derived import Derived
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
from backfill_cli.sinks.sql.derived import SqlDerives
from backfill_cli.sinks.sql.dialect import Target
from backfill_cli.sinks.sql.state import SqlState

# Hashed one by one in Python, 5 microseconds each.
FEW_VALUES = 2000
S = TypeVar("S", bound=SqlState)


class SqlCopy(SinkCopy, Generic[S]):
    """`contracts.SinkCopy` over one snapshot of the database. folder: for the files that Spark reads.

    xor, quotient, level: see model.digest.Dialect. bytewise: follows a text column that is compared by its bytes.
    derives: what knows derived tables, where there are some.
    """

    xor: ClassVar[str]
    quotient: ClassVar[str]
    level: ClassVar[str] = ""
    bytewise: ClassVar[str] = ""
    derives: SqlDerives[S] | None = None

    def __init__(self, job: str, folder: Path) -> None:
        self.job, self.folder = job, folder
        self._written = 0

    @abstractmethod
    def asking(self, doing: str) -> AbstractContextManager[S]:
        """The side tables, on a connection that no other thread uses; the database's errors become ours."""

    @abstractmethod
    def few(self, state: S, target: Target, columns: Sequence[str]) -> frozenset[str]:
        """Those of the text columns with at most FEW_VALUES values, by statistics. Affects speed only."""

    @abstractmethod
    def word(self, column: WordColumn, of: str) -> str:
        """SQL of a column's word, if not a text's. of: the column in SQL."""

    @abstractmethod
    def words(self, state: S, name: str, words: Mapping[str, int]) -> str:
        """SQL of a relation (value, word) called `name`."""

    @abstractmethod
    def selected(self, table: SinkTable, columns: Sequence[str]) -> str:
        """SQL of the columns of the row `t`, as `export` needs them."""

    @abstractmethod
    def export(self, state: S, rows: str, table: SinkTable, columns: Sequence[str], folder: Path) -> None:
        """The rows of a query of `selected` columns are in Parquet files in the folder, which is empty."""

    def saved(self) -> SavedJob | None:
        with self.asking("reading the job's saved state") as state:
            return state.saved(self.job) if state.exists() else None

    def compare(
        self, derived: Derived, others: Sequence[Derived], tables: Sequence[SinkTable], named: int
    ) -> ComparedDerived:
        assert self.derives is not None
        with self.asking(f"comparing {derived.target} with its SELECT") as state:
            return self.derives.compare(state, self.job, derived, others, tables, named)

    def survey(self, table: SinkTable) -> Survey:
        """Reads the database's statistics, and the key's index if there is one."""
        with self.asking(f"surveying {table.target}") as state:
            target = state.dialect.target_of(table, state.schema)
            few = self.few(state, target, _texts(table))
            spec = spec_of(table.schema, table.key, few)
            if spec is None or spec.columns[0].word is Word.TEXT:
                return Survey(None, None, few)
            key, of = spec.columns[0], state.dialect.functions
            low, high = ("bool_and", "bool_or") if key.word is Word.BOOLEAN else ("min", "max")
            name = state.dialect.quoted(key.name)
            # Min and max of the column itself, not of its word: an index or statistics can answer them.
            ends = f"SELECT {of}{low}({name}) AS low, {of}{high}({name}) AS high FROM {target.sql}"
            words = f"SELECT {self.word(key, 'b.low')}, {self.word(key, 'b.high')} FROM ({ends}) b"
            lowest, highest = state.con.rows(words)[0]
            return Survey(lowest, highest, few)

    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        with self.asking(f"hashing {table.target}") as state:
            source, dialect = self._source(state, table, spec), self._dialect(state, spec)
            sql = whole_sql(spec, dialect, source) if ranges is None else ranges_sql(spec, ranges, dialect, source)
            return {part: Digest(count, tuple(hashes)) for part, count, *hashes in state.con.rows(sql)}

    def frame(
        self,
        spark: SparkSession,
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> DataFrame:
        self._written += 1
        folder = self.folder / f"{table.name}-{self._written}"
        folder.mkdir()
        with self.asking(f"reading {table.target}") as state:
            rows = f"SELECT {self.selected(table, columns)} FROM "
            if only is None:
                rows += f"{state.dialect.target_of(table, state.schema).sql} AS t"
            else:
                spec, ranges, parts = only
                dialect = self._dialect(state, spec)
                part = range_sql(ranges, dialect, dialect.word(spec.columns[0]))
                numbers = ", ".join(str(number) for number in parts)
                rows += (
                    f"{self._source(state, table, spec)} WHERE {part} IN ({numbers}){and_sampled(spec, dialect)}"
                )
            self.export(state, rows, table, columns, folder)
        schema = {field.name: field for field in StructType.fromJson(json.loads(table.schema))}
        return spark.read.schema(StructType([schema[name] for name in columns])).parquet(str(folder))

    def _source(self, state: S, table: SinkTable, spec: DigestSpec) -> str:
        """The FROM clause: the table as `t`, joined with a list of hashes for each text column."""
        target = state.dialect.target_of(table, state.schema).sql
        source = f"{target} AS t"
        for at, column in enumerate(spec.columns):
            if column.word is Word.TEXT:
                name = f"{state.dialect.quoted(column.name)}{self.bytewise}"
                values = [value for (value,) in state.con.rows(f"SELECT DISTINCT {name} FROM {target}")]
                words = {value: xxhash64(value.encode()) for value in values if value is not None}
                source += f" LEFT JOIN {self.words(state, f'words_{at}', words)} ON t.{name} = words_{at}.value"
        return source

    def _dialect(self, state: S, spec: DigestSpec) -> Dialect:
        def word(column: WordColumn) -> str:
            if column.word is Word.TEXT:
                return f"words_{spec.columns.index(column)}.word"
            return self.word(column, f"t.{state.dialect.quoted(column.name)}")

        return Dialect(word, self.xor.format, self.quotient.format, self.level)


def _texts(table: SinkTable) -> list[str]:
    return [
        field["name"]
        for field in fields_of(table.schema)
        if field["type"] == "string" and not (field.get("metadata") or {}).get("logical")
    ]
