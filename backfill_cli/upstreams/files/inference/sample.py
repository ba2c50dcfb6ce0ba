"""Samples files through DuckDB, as text columns: no value is converted before its type has been guessed."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import duckdb

from backfill_cli.decode.encodings import DOUBLE_DIGITS
from backfill_cli.errors import UsageError, command
from backfill_cli.formats.listing import File, Listing, Place, place
from backfill_cli.spark.names import backticked, plain
from backfill_cli.upstreams.files.options import CsvOptions, FileFormat, extension
from backfill_cli.upstreams.files.reading import csv_files, lines
from backfill_cli.upstreams.files.snapshot.by_duckdb import PATTERN, identifier, literal, read_csv

_BYTES, _ROWS = 32 << 20, 100_000
"""Limits of a sample: bytes of all files, and rows per file. Reading it takes a few seconds."""

_VALUE = re.compile(r"[-+]?[0-9][-+0-9.,:/ TZe]*")
"""Text that is not a column name: DuckDB takes the first record of a short file for a header in any case."""

_WITHOUT_PATH = command("init") + ", without --path"

NULLS = ("\\N", "NULL", "null", "NA", "N/A", "None")
"""Texts that writers use for NULL instead of an empty field."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one place, and the sample of them that is read: the first, the last, and more while they are
    small."""

    where: Place
    files: tuple[File, ...]
    sample: tuple[File, ...]
    kind: FileFormat | None
    named: bool
    """Whether the file names show the kind."""


def folder(path: str) -> Folder:
    """The files at `path`. Raises UsageError if there are none, or none that DuckDB can read."""
    where = place(path, "{table}")
    if not where.local:
        raise UsageError(f"{path} is not on this machine, and init reads only local files", _WITHOUT_PATH)
    files = tuple(Listing(where).files().values())
    if not files:
        raise UsageError(
            f"{path}: no files found",
            "give a folder or a glob with files; names that begin with '_' or '.' or end with .tmp are ignored",
        )
    sample: list[File] = []
    size = 0
    for file in dict.fromkeys((files[0], files[-1], *files)):
        if PATTERN.search(file.path) is None and (len(sample) < 2 or size + file.size <= _BYTES):
            sample.append(file)
            size += file.size
    if not sample:
        raise UsageError(
            f"{files[0].path}: init cannot read files with *, ?, [, ] or \\ in their paths", _WITHOUT_PATH
        )
    kinds = {extension(file.name) for file in files}
    named = len(kinds) == 1 and None not in kinds
    kind = next(iter(kinds)) if named else _by_content(where, files[0])
    return Folder(where, files, tuple(sample), kind, named)


def _by_content(where: Place, file: File) -> FileFormat | None:
    with where.fs.open_input_stream(file.path, compression="detect") as stream:
        begin = stream.read(4).removeprefix(b"\xef\xbb\xbf").lstrip()
    return "parquet" if begin == b"PAR1" else "json" if begin.startswith(b"{") else None


@contextmanager
def opened(path: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A separate DuckDB in memory. Raises UsageError for files that it cannot read."""
    with duckdb.connect() as db:
        try:
            yield db
        except duckdb.Error as error:
            said = str(error).partition("\n")[0]
            raise UsageError(f"{path}: {said}", "correct the files; or " + _WITHOUT_PATH) from error


def of_parquet(db: duckdb.DuckDBPyConnection, found: Folder) -> duckdb.DuckDBPyRelation:
    """Rows with the types that the files carry."""
    return db.sql(
        " UNION ALL BY NAME ".join(
            f"(FROM read_parquet({literal(file.path)}, hive_partitioning = false) LIMIT {_ROWS})"
            for file in found.sample
        )
    )


@dataclass(frozen=True, slots=True)
class CsvText:
    """The dialect of CSV files, and their sample as text. header: the column names; empty without a header."""

    options: Mapping[str, Any]
    header: tuple[str, ...]
    rows: duckdb.DuckDBPyRelation


def of_csv(db: duckdb.DuckDBPyConnection, found: Folder, table: str) -> CsvText:
    """DuckDB sniffs the dialect; options hold what differs from the defaults. table: the sample's name in `db`."""
    first = literal(found.sample[0].path)
    sniffed = db.sql(
        f"SELECT Delimiter, Quote, Escape, HasHeader, len(Columns) FROM sniff_csv({first}, sample_size = {_ROWS})"
    ).fetchall()[0]
    delimiter, quote, escape = (None if one == "(empty)" else one for one in sniffed[:3])
    dialect = {"delimiter": delimiter or ",", "quote": quote or '"', "escape": escape or quote or '"'}
    told = CsvOptions(header=bool(sniffed[3]), multi_line=True, **dialect)
    if told.header and any(map(_VALUE.fullmatch, _first_record(found, told))):
        told = told.model_copy(update={"header": False})
    headers = [csv_files.header(found.where, file, told) if told.header else [] for file in found.sample]
    names = tuple(dict.fromkeys(chain.from_iterable(headers)))
    parts = []
    for file, own in zip(found.sample, headers, strict=True):
        count = len(own) if told.header else int(sniffed[4])
        shown = ", ".join(f"c{i} AS {_column(name)}" for i, name in enumerate(own)) if told.header else "*"
        read = read_csv(file.path, told, [f"c{i}" for i in range(count)])
        parts.append(f"(SELECT {shown} FROM {read} LIMIT {_ROWS})")
    rows = db.sql(" UNION ALL BY NAME ".join(parts))
    rows = rows.select(", ".join(map(_column, names))) if told.header else rows
    rows.to_table(table)
    rows = db.table(table)
    lists = f"[{', '.join(_column(name) for name in rows.columns)}]"
    ends = rows.filter(f"len(list_filter({lists}, lambda v: v SIMILAR TO '(?s).*[\\n\\r].*')) > 0").limit(1)
    options = told.model_dump(include=set(dialect), exclude_defaults=True) | {"header": told.header}
    return CsvText(options | ({"multi_line": True} if ends.fetchall() else {}), names, rows)


def _column(name: str) -> str:
    """A column's name in SQL. The index that pandas writes has an empty name."""
    return identifier(name or " ")


def of_json(db: duckdb.DuckDBPyConnection, found: Folder) -> tuple[dict[str, Any], duckdb.DuckDBPyRelation]:
    """(the structure of each column's values, the columns as text). Numbers in it have at most 17 digits."""
    db.sql("CREATE OR REPLACE TEMP TABLE looked (json JSON)")
    for file in found.sample:
        line = lines.first(found.where, file, "json")
        if line is not None and line.lstrip("\ufeff \t").startswith("["):
            raise UsageError(
                f"{file.path}: a JSON array, not one object per line",
                "write one object per line; with pandas: to_json(path, orient='records', lines=True)",
            )
        db.sql(
            "INSERT INTO looked SELECT json FROM "
            f"read_ndjson_objects({literal(file.path)}, hive_partitioning = false) LIMIT {_ROWS}"
        )
    ((whole,),) = db.sql("SELECT json_group_structure(json) FROM looked").fetchall()
    shape = json.loads(whole) if whole else {}
    if not isinstance(shape, dict):
        raise UsageError(f"{found.files[0].path}: its lines are not JSON objects", "write one object per line")
    pointers = ["/" + name.replace("~", "~0").replace("/", "~1") for name in shape]
    columns = ", ".join(
        f"json ->> {literal(at)} AS {_column(name)}" for at, name in zip(pointers, shape, strict=True)
    )
    return shape, db.sql(f"SELECT {columns} FROM looked")


def _first_record(found: Folder, told: CsvOptions) -> tuple[str, ...]:
    line = lines.first(found.where, found.sample[0], "csv")
    return tuple(csv_files.fields(line.removeprefix("\ufeff"), told)) if line is not None else ()


_WHOLE = "-?(0|[1-9][0-9]*)"
_TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?"
_ZONE = "(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)"
_KINDS = {
    "boolean": "regexp_full_match({c}, 'true|false', 'i')",
    "whole": f"regexp_full_match({{c}}, '{_WHOLE}')",
    "number": f"regexp_full_match({{c}}, '{_WHOLE}([.][0-9]+)?')",
    "digits": "regexp_full_match({c}, '[0-9]+')",
    "float": "TRY_CAST({c} AS DOUBLE) IS NOT NULL",
    "date": "regexp_full_match({c}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}') AND TRY_CAST({c} AS DATE) IS NOT NULL",
    "time": f"regexp_full_match({{c}}, '{_TIME.replace('{', '{{').replace('}', '}}')}') "
    "AND TRY_CAST({c} AS TIMESTAMP) IS NOT NULL",
    "instant": f"regexp_full_match({{c}}, '{(_TIME + _ZONE).replace('{', '{{').replace('}', '}}')}')",
}
"""For each kind of text, the SQL condition for it. Text with leading zeros is no number: it would lose them."""

_BIGINT_DIGITS, _DIGITS = 18, 38
_PLACES = 9
"""A number with more places was computed in binary: a scale taken from the sample would not hold the next one."""
_SHORT, _ROOM = 18, 3
"""A decimal of 18 digits fits a 64-bit integer; _ROOM of them are left for rows outside the sample."""

_RESERVED = {"key", "table", "select", "from", "where", "order", "group", "primary", "constraint", "unique"}
_NAMED_LIKE_A_KEY = re.compile(r"(?i)id|.*_(id|key)|.*[a-z]I[dD]|key|uuid|guid")


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What the values of a column have in common. digits: before the point. fixed: a type that the file states.

    zoned: the side whose times have a zone, if the other side's have none: "changes" or "snapshot". binary:
    whether the changes have its numbers as doubles.
    """

    rows: int
    values: int
    distinct: int
    kinds: frozenset[str]
    digits: int = 0
    places: int = 0
    fixed: str = ""
    zoned: str = ""
    binary: bool = False

    def with_more(self, other: "ColumnProfile") -> "ColumnProfile":
        """The snapshot's sample combined with that of its changes; uniqueness is that of the snapshot."""
        kinds, zoned = self.kinds & other.kinds, ""
        if not kinds and "time" in self.kinds and "instant" in other.kinds:
            kinds, zoned = frozenset({"instant"}), "changes"
        elif not kinds and "instant" in self.kinds and "time" in other.kinds:
            kinds, zoned = frozenset({"instant"}), "snapshot"
        digits, places = max(self.digits, other.digits), max(self.places, other.places)
        values = self.values + other.values
        return replace(self, values=values, kinds=kinds, digits=digits, places=places, zoned=zoned)

    @property
    def identifies(self) -> bool:
        return 0 < self.rows == self.values == self.distinct

    @property
    def kind(self) -> str:
        """The column's type in Spark DDL."""
        if self.fixed:
            return self.fixed
        if not self.values:
            return "STRING"
        if "whole" in self.kinds:
            return _of_digits(self.digits)
        if "number" in self.kinds and self.places <= _PLACES and self.digits + self.places <= _DIGITS:
            digits = self.digits + self.places
            if self.binary and digits <= DOUBLE_DIGITS:
                return f"DECIMAL({DOUBLE_DIGITS},{self.places})"
            return f"DECIMAL({_SHORT if digits <= _SHORT - _ROOM else _DIGITS},{self.places})"
        named = {"boolean": "BOOLEAN", "date": "DATE", "time": "TIMESTAMP_NTZ", "instant": "TIMESTAMP"}
        return next((ddl for kind, ddl in named.items() if kind in self.kinds), "STRING")

    def remark(self, name: str) -> str:
        """What a reader should know about the type; empty if it is obvious."""
        if not self.values and not self.fixed:
            return f"'{name}' has no value in these rows: STRING until you set its type"
        if self.kind == "STRING" and "digits" in self.kinds:
            return f"'{name}' holds digits that are not a number: with leading zeros, or too many digits"
        if self.kind == "STRING" and "float" in self.kinds:
            return f"'{name}' holds numbers that neither BIGINT nor DECIMAL keeps exactly; DOUBLE would round them"
        if self.kind.startswith("DECIMAL"):
            return f"'{name}' has at most {self.digits} digits before the point and {self.places} after it"
        if self.zoned:
            bare = "snapshot" if self.zoned == "changes" else "changes"
            return (
                f"'{name}' has a time zone in the {self.zoned} only: TIMESTAMP, which reads the times of the "
                f"{bare} as UTC; if they are not UTC, write them with their zone"
            )
        if self.kind == "TIMESTAMP_NTZ":
            return f"'{name}' has no time zone: TIMESTAMP if it is UTC"
        return ""


def _of_digits(digits: int) -> str:
    if digits <= _BIGINT_DIGITS:
        return "BIGINT"
    return f"DECIMAL({_DIGITS},0)" if digits <= _DIGITS else "STRING"


def of_relation(rows: duckdb.DuckDBPyRelation, names: Sequence[str]) -> dict[str, ColumnProfile]:
    """For each column, what its texts have in common. rows: columns of text, in the order of `names`."""
    found = {}
    for name, column in zip(names, rows.columns, strict=True):
        c = identifier(column)
        wanted = [
            f"coalesce(bool_and({said.format(c=c)}) FILTER ({c} IS NOT NULL), true)" for said in _KINDS.values()
        ]
        numbers = [
            f"coalesce(max(length(regexp_extract({c}, '{part}', 1))), 0)"
            for part in ("^-?([0-9]+)", "[.]([0-9]+)$")
        ]
        told = rows.aggregate(", ".join(["count(*)", f"count({c})", f"count(DISTINCT {c})", *numbers, *wanted]))
        count, values, distinct, digits, places, *fits = told.fetchall()[0]
        kinds = frozenset(kind for kind, fit in zip(_KINDS, fits, strict=True) if fit)
        found[name] = ColumnProfile(count, values, distinct, kinds, digits, places)
    return found


def ddl(columns: Mapping[str, ColumnProfile]) -> str:
    return ", ".join(f"{spelt(name)} {seen.kind}" for name, seen in columns.items())


def spelt(name: str) -> str:
    return backticked(name) if name.lower() in _RESERVED else plain(name)


def key_of(columns: Mapping[str, ColumnProfile], table: str) -> tuple[str | None, list[str]]:
    """(the column named like this table's key, all columns that could be it). A key needs both the name and unique
    values: a wrong key loses rows."""
    able = [name for name, seen in columns.items() if seen.identifies]
    named = [name for name in able if _NAMED_LIKE_A_KEY.fullmatch(name)]
    own = {"id", f"{table}_id", f"{table}_key", f"{table.removesuffix('s')}_id", f"{table.removesuffix('s')}_key"}
    best = [name for name in named if name.lower() in own]
    for one in (best, named):
        if len(one) == 1:
            return one[0], [*named, *(name for name in able if name not in named)]
        if one:
            break
    return None, [*named, *(name for name in able if name not in named)]
