"""Reads the distinct values of an epoch column in one change file, and as little else of it as possible."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from backfill_cli.contracts.refusals import as_json
from backfill_cli.decode import arrow_json
from backfill_cli.errors import BadData, Hint, in_config
from backfill_cli.formats.compute import pc
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import field
from backfill_cli.spark.failures import CHANGES_HINT, reading
from backfill_cli.upstreams.files.options import CsvOptions, FileFormat
from backfill_cli.upstreams.files.reading import avro_envelopes, avro_files, csv_files, json_rows, lines
from backfill_cli.upstreams.files.reading.footers import footer, group_rows, leaves, statistics_of
from backfill_cli.upstreams.files.reading.text_rows import TextRows

ONE_TYPE = "write the epoch as one type in all files, integers or strings: one not yet applied may be replaced"
_EVERY_ROW = "every row needs an epoch: an integer of at most 64 bits, or a string"


@dataclass(frozen=True, slots=True)
class Values:
    """The epochs that a file holds, in order, and how many rows each has. Empty for a file without rows."""

    rows: tuple[tuple[Cursor, int], ...]

    @property
    def lowest(self) -> Cursor:
        return self.rows[0][0]

    @property
    def highest(self) -> Cursor:
        return self.rows[-1][0]


def read(
    where: Place,
    file: File,
    kind: FileFormat,
    column: str,
    csv: CsvOptions,
    skip: bool = False,
    way_on: Hint = Hint(),  # noqa: B008
) -> Values:
    """The values of `column` (dots for nested ones in JSON) in a file.

    Raises BadData naming the row if it has none, or the file if they are neither integers nor strings. skip: rows
    that have none are left out, also those that cannot be read. way_on: what else can be done about such a row.
    """
    counts: dict[Any, int] = {}
    match kind:
        case "parquet":
            counts = _of_parquet(where, file, column, skip, way_on)
        case "json":
            counts = _of_json(where, file, column, skip, way_on)
        case "csv":
            counts = _of_csv(where, file, column, csv, skip, way_on)
        case "avro":
            counts = _of_avro(where, file, column)
    for value in list(counts):
        if not skip and not _is_epoch(value):
            raise BadData(f"{file.path}: {_no_epoch(column, value)}", _EVERY_ROW)
        if not _is_epoch(value):
            del counts[value]
    try:
        ordered = sorted(counts.items())
    except TypeError as exc:
        raise BadData(
            f"{file.path}: epoch column '{column}' holds both integers and strings",
            ONE_TYPE,
        ) from exc
    return Values(tuple(ordered))


def _no_epoch(column: str, value: Any) -> str:
    return f"epoch column '{column}' holds {as_json(value)}"


def _is_epoch(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    return isinstance(value, str) or -(2**63) <= value < 2**63


def bounds(where: Place, file: File, column: str) -> tuple[Cursor, Cursor] | None:
    """The lowest and the highest value from a Parquet footer; None if it lacks them or there are no rows."""
    found = statistics_of(footer(where, file), column)
    if not found or any(one is None or not one.has_min_max or one.null_count for one in found):
        return None
    return min(one.min for one in found), max(one.max for one in found)


def _of_parquet(where: Place, file: File, column: str, skip: bool, way_on: Hint) -> dict[Any, int]:
    import pyarrow.parquet as pq

    meta = footer(where, file)
    names = leaves(meta)
    if column not in names:
        raise _no_column(file, column, names)
    counts: dict[Any, int] = {}
    for rows, statistics in zip(group_rows(meta), statistics_of(meta, column), strict=True):
        known = statistics is not None and statistics.has_min_max and statistics.null_count == 0
        if not known or statistics.min != statistics.max:
            with reading(file.path, "parquet"):
                values = pq.read_table(file.path, columns=[column], filesystem=where.fs)[column]
            if values.null_count and not skip:
                row = values.is_null().index(True).as_py() + 1
                raise BadData(f"{file.path}: row {row}: {_no_epoch(column, None)}", Hint.of(_EVERY_ROW) + way_on)
            return _counted(values)
        counts[statistics.min] = counts.get(statistics.min, 0) + rows
    return counts


def _of_avro(where: Place, file: File, column: str) -> dict[Any, int]:
    if {"op", "after"} <= set(avro_envelopes.members(where, file)):
        raise BadData(
            f"{file.path}: an epoch column is not read from Debezium's files of Avro",
            in_config("remove upstream.changes.epoch, or write the changes as JSON"),
        )
    typed = avro_files.columns(where, file)
    if column not in typed:
        raise _no_column(file, column, list(typed))
    counts = Counter[Any]()
    for values in avro_files.values(where, file, {column: typed[column]}):
        counts.update(_counted(values[column]))
    return counts


def _of_json(where: Place, file: File, column: str, skip: bool, way_on: Hint) -> dict[Any, int]:
    """JSON has no column types: Arrow reads integers and texts, and plain Python the lines that it refuses."""
    counts = Counter[Any]()
    path = column.split(".")
    head = next(lines.objects(where, file, lines.forward(where, file, "json"), skip, way_on=way_on), {})
    if "payload" in head and path[0] not in head:
        path = ["payload", *path]
    leaves = (pa.string(), pa.int64()) if isinstance(_member(head, path), str) else (pa.int64(), pa.string())
    (part,) = lines.parts(where, [file], cut=False)
    with reading(file.path, "json"):
        for _, block in json_rows.blocks(part):
            left = [line for _, _, line in json_rows.numbered(block) if line != b"null"]
            for kind in leaves:
                for name in reversed(path[1:]):
                    kind = pa.struct([(name, kind)])
                columns, kept = arrow_json.parse(left, b"\n".join(left), pa.schema([(path[0], kind)]))
                values = columns[path[0]]
                for name in path[1:]:
                    values = pc.struct_field(values, name)
                counts.update(_counted(values.drop_null()))
                taken = {kept[index] for index in pc.indices_nonzero(values.is_valid()).to_pylist()}
                left = [line for index, line in enumerate(left) if index not in taken]
            for line in left:
                counts.update(_of_line(where, file, column, path, line, skip, way_on))
    return counts


def _of_line(
    where: Place, file: File, column: str, path: Sequence[str], line: bytes, skip: bool, way_on: Hint
) -> list[Cursor]:
    """The epoch of a line. Raises BadData for one that has none."""
    text = line.decode("utf-8", "surrogateescape")
    values = [_member(one, path) for one in lines.objects(where, file, [text], skip, float, way_on)]
    for value in values if not skip else ():
        if not _is_epoch(value):
            raise lines.refused(where, file, text, _no_epoch(column, value), _EVERY_ROW, way_on)
    return [value for value in values if _is_epoch(value)]  # True would be counted as 1


def _member(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _of_csv(where: Place, file: File, column: str, csv: CsvOptions, skip: bool, way_on: Hint) -> dict[Any, int]:
    """As the rows are read: a value that is NULL there must not be an epoch here."""
    if not csv.header:
        raise BadData(
            f"{file.path}: an epoch column needs a header that names it",
            in_config("set upstream.changes.csv.header = true"),
        )
    names = csv_files.header(where, file, csv)
    if not names:
        return {}
    if column not in names:
        raise _no_column(file, column, names)
    columns = {column: field(column, "string")}
    rows = TextRows(csv, tuple(names), columns, CHANGES_HINT, quarantine=skip, way_on=way_on)

    def texts(rows: TextRows) -> Counter[str]:
        found = Counter[str]()
        for part in csv_files.parts(where, [file], csv):
            for batch in csv_files.batches(rows, replace(part, name=file.path)):
                found.update({text or "": count for text, count in _counted(batch.column(column)).items()})
        return found

    counts = texts(rows)
    if counts.pop("", 0) and not skip:
        texts(replace(rows, faults=_without_value, hint=_EVERY_ROW))
    if not all(text.isascii() and text.isdigit() for text in counts):
        return counts
    numbers = Counter[int]()
    for text, count in counts.items():  # 1 and 01 are one epoch
        numbers[int(text)] += count
    return numbers


def _without_value(columns: Mapping[str, Any]) -> Mapping[int, str]:
    """The fault of the first row whose epoch is NULL or empty."""
    ((column, values),) = columns.items()
    lacks = [index for index, text in enumerate(values.to_pylist()) if not text]
    return {lacks[0]: f"epoch column '{column}' has no value"} if lacks else {}


def _no_column(file: File, column: str, names: Sequence[str]) -> BadData:
    return BadData(
        f"{file.path}: no epoch column '{column}'",
        in_config(
            f"set upstream.changes.epoch to a column that every change file has; this one has {', '.join(names)}"
        ),
    )


def _counted(values: Any) -> dict[Any, int]:
    return {entry["values"]: entry["counts"] for entry in values.value_counts().to_pylist()}
