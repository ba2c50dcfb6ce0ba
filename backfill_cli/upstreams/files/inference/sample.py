"""Samples files through DuckDB, as text columns: no value is converted before its type has been guessed."""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa

from backfill_cli.decode import guesses
from backfill_cli.decode.guesses import identifier, literal
from backfill_cli.errors import UsageError, command
from backfill_cli.formats.listing import File, Listing, Place, ValueInFolder, place
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.files.options import CsvOptions, FileFormat, extension
from backfill_cli.upstreams.files.reading import avro_files, csv_files, lines
from backfill_cli.upstreams.files.snapshot.by_duckdb import PATTERN, read_csv

_BYTES, _ROWS = 32 << 20, 100_000
"""Limits of a sample: bytes of all files, and rows per file. Reading it takes a few seconds."""

_VALUE = re.compile(r"[-+]?[0-9][-+0-9.,:/ TZe]*")
"""Text that is not a column name: DuckDB takes the first record of a short file for a header in any case."""

_WITHOUT_PATH = command("init") + ", without --from"

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


def folder(path: str, valued: bool = False, connect: bool = False) -> Folder:
    """The files at `path`. Raises UsageError if there are none, or none that DuckDB can read.

    valued: whether names of folders may hold values of columns. connect: whether they may be Kafka Connect's.
    """
    where = place(path, "{table}")
    if not where.local:
        raise UsageError(f"{path} is not on this machine, and init reads only local files", _WITHOUT_PATH)
    try:
        files = tuple(Listing(where).files().values())
    except ValueInFolder as exc:
        if not (connect if exc.connect else valued or connect):
            raise
        where = replace(where, valued=True)
        files = tuple(Listing(where).files().values())
    if not files:
        raise UsageError(
            f"{path}: there are no files",
            "give a folder or a glob with files; names that begin with '_' or '.' or end with .tmp are ignored",
        )
    if not any(file.size for file in files):
        raise UsageError(f"{path}: every file is empty, of 0 bytes", "give a folder or a file with rows")
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
    if len(several := sorted(kind for kind in kinds if kind is not None)) > 1:
        pattern = f"{path.rstrip('/')}/*.{several[0]}"
        raise UsageError(
            f"{path}: files of different formats: {', '.join(several)}",
            f"name those of one by a pattern: --from {shlex.quote(pattern)}",
        )
    named = len(kinds) == 1 and None not in kinds
    kind = next(iter(kinds)) if named else _by_content(where, files[0])
    return Folder(where, files, tuple(sample), kind, named)


def _by_content(where: Place, file: File) -> FileFormat | None:
    with where.fs.open_input_stream(file.path, compression="detect") as stream:
        begin = stream.read(4).removeprefix(b"\xef\xbb\xbf").lstrip()
    found: dict[bytes, FileFormat] = {b"PAR1": "parquet", b"Obj\x01": "avro"}
    return found.get(begin) or ("json" if begin.startswith(b"{") else None)


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


def of_avro(db: duckdb.DuckDBPyConnection, found: Folder, typed: Columns) -> duckdb.DuckDBPyRelation:
    """The same of files of Avro, which DuckDB does not read by itself."""
    rows = pa.concat_tables([avro_files.first_rows(found.where, file, typed) for file in found.sample])
    return db.from_arrow(rows)


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


def of_json(
    db: duckdb.DuckDBPyConnection, found: Folder
) -> tuple[Mapping[str, Any], duckdb.DuckDBPyRelation, list[bytes]]:
    """See guesses.of_json; and the objects as they are written.

    Raises UsageError for files that do not hold an object per line.
    """
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
    shape, rows = guesses.of_json(db, "looked")
    if shape is None:
        raise UsageError(f"{found.files[0].path}: its lines are not JSON objects", "write one object per line")
    return shape, rows, [text.encode() for (text,) in db.sql("SELECT json::VARCHAR FROM looked").fetchall()]


def _first_record(found: Folder, told: CsvOptions) -> tuple[str, ...]:
    line = lines.first(found.where, found.sample[0], "csv")
    return tuple(csv_files.fields(line.removeprefix("\ufeff"), told)) if line is not None else ()
