"""SQL by which DuckDB reads snapshot files, for `verify --independent`, which must not use our own readers.

Nothing is read here, and nothing is guessed: columns, types and dialect are those of the config.
"""

import csv
import re
from collections.abc import Mapping, Sequence

from backfill_cli.decode.guesses import identifier, literal
from backfill_cli.errors import UsageError
from backfill_cli.formats.listing import File, Place
from backfill_cli.upstreams.files.options import CsvOptions, SnapshotFiles

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
PATTERN = re.compile(r"[*?\[\]\\]")
JSON_DIGITS = 15
"""DuckDB reads a number in JSON as a double, which holds this many digits."""


def rows_sql(options: SnapshotFiles, where: Place, files: Sequence[File], types: Mapping[str, str]) -> str:
    """A query for the rows of the files. types: by column, as DuckDB writes them.

    Raises UsageError for files that DuckDB cannot read exactly, or not at all.
    """
    if not where.local:
        raise _refused(f"{where.uri} is not on this machine, and DuckDB reads only local files")
    paths = [file.path for file in files]
    odd = next((path for path in paths if PATTERN.search(path)), None)
    if odd is not None:
        raise _refused(f"{odd}: DuckDB takes this path for a pattern")
    if options.folders:
        raise _refused("columns in the names of folders are read by the job's own readers")
    if options.format == "avro":
        raise _refused("DuckDB reads no files of Avro by itself")
    if options.format == "csv":
        return " UNION ALL ".join(_of_csv(path, options.csv, types) for path in paths)
    named = ", ".join(map(literal, paths))
    if options.format == "parquet":
        columns = ", ".join(f"CAST({identifier(c)} AS {kind}) AS {identifier(c)}" for c, kind in types.items())
        return f"SELECT {columns} FROM read_parquet([{named}], hive_partitioning = false, union_by_name = true)"
    for column, kind in types.items():
        digits = kind.removeprefix("DECIMAL(").partition(",")[0]
        if (kind.startswith("DECIMAL(") and int(digits) > JSON_DIGITS) or "DECIMAL" in kind[1:]:
            raise _refused(f"column {column!r} is {kind}, but DuckDB reads numbers in JSON as doubles")
    shape = ", ".join(
        f"{literal(c)}: {literal('VARCHAR' if _checked(kind) else kind)}" for c, kind in types.items()
    )
    read = f"read_json([{named}], format = 'newline_delimited', columns = {{{shape}}}, hive_partitioning = false)"
    return f"SELECT {_typed(types, types)} FROM {read}"


def _of_csv(path: str, options: CsvOptions, types: Mapping[str, str]) -> str:
    if options.multi_line or options.escape != options.quote:
        raise _refused("DuckDB reads files with csv.multi_line or csv.escape differently")
    order = _header(path, options) if options.header else list(types)
    nested = next((c for c, kind in types.items() if "[" in kind or ("(" in kind and not _checked(kind))), None)
    if nested is not None:
        raise _refused(f"column {nested!r} is {types[nested]}, which CSV cannot hold")
    if not order:
        columns = ", ".join(f"CAST(NULL AS {kind}) AS {identifier(c)}" for c, kind in types.items())
        return f"SELECT {columns} WHERE false"
    return f"SELECT {_typed(types, order)} FROM {read_csv(path, options, order)}"


def read_csv(path: str, options: CsvOptions, names: Sequence[str]) -> str:
    """What reads a CSV file in SQL, as columns of text with these names."""
    shape = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    told = {
        "auto_detect": "false",
        "header": str(options.header).lower(),
        "delim": literal(options.delimiter),
        "quote": literal(options.quote),
        "escape": literal(options.escape),
        "nullstr": literal(options.null_value),
        "allow_quoted_nulls": "false",
        "hive_partitioning": "false",
        "columns": f"{{{shape}}}",
    }
    return f"read_csv({literal(path)}, {', '.join(f'{name} = {value}' for name, value in told.items())})"


def _header(path: str, options: CsvOptions) -> list[str]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file, delimiter=options.delimiter, quotechar=options.quote), [])


def _typed(types: Mapping[str, str], there: Mapping[str, str] | Sequence[str]) -> str:
    """The columns with their types; a number that DuckDB would round is an error, as with our own readers."""
    columns = []
    for column, kind in types.items():
        name = identifier(column)
        value = f"CAST({name} AS {kind})" if column in there else f"CAST(NULL AS {kind})"
        if column in there and _checked(kind):
            exact = f"TRY_CAST({name} AS DECIMAL(38, 18))"
            rounded = f"{exact} <> TRY_CAST({value} AS DECIMAL(38, 18))"
            failed = f"CAST(error({literal(f'{column}: not exact: ')} || {name}) AS {kind})"
            value = f"CASE WHEN {rounded} THEN {failed} ELSE {value} END"
        columns.append(f"{value} AS {name}")
    return ", ".join(columns)


def _checked(kind: str) -> bool:
    return kind in WHOLE or (kind.startswith("DECIMAL(") and kind.endswith(")"))


def _refused(why: str) -> UsageError:
    return UsageError(
        f"verify --independent: {why}", "leave --independent out: the job's own readers can read these files"
    )
