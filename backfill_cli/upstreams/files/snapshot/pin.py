"""Pins a snapshot: the files of each table, their row counts from the footers, and their common schema."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import START_OVER, BadData, Fatal, UsageError, in_config
from backfill_cli.formats import schemas
from backfill_cli.formats.listing import File, Place, touched
from backfill_cli.model.schema import Columns, counts_of, differing, same_type, shown, unlike
from backfill_cli.model.split import Split
from backfill_cli.model.units import near_names
from backfill_cli.upstreams.files.options import SnapshotFiles, table_ddl
from backfill_cli.upstreams.files.reading import avro_files, csv_files, folder_columns, json_rows, lines
from backfill_cli.upstreams.files.reading.footers import THREADS, footer, group_rows


def splits_of(
    where: Place, files: Sequence[File], table: TableSpec, options: SnapshotFiles, quarantines: bool
) -> tuple[list[Split], Columns]:
    """The splits of one table and the schema of its rows.

    quarantines: whether a row that cannot be read is no error.

    Raises UsageError without files or a key column, BadData for files that differ or are damaged.
    """
    if not files:
        raise UsageError(
            f"table '{table.name}': no {options.format} files at {where.shown}",
            in_config(
                "set upstream.snapshot.path to a folder or a glob with files; names that begin with '_' or '.' "
                "or end with .tmp are ignored"
            ),
        )
    if options.format == "parquet":
        with ThreadPoolExecutor(THREADS) as pool:
            footers = list(pool.map(lambda file: footer(where, file), files))
        columns = _one_schema(files, _of_footers(files, footers))
        rows: list[int | None] = [sum(group_rows(f)) for f in footers]
    elif options.format == "avro":
        with ThreadPoolExecutor(THREADS) as pool:
            columns = _one_schema(files, pool.map(lambda file: avro_files.columns(where, file), files))
        rows = [None] * len(files)
    else:
        columns, rows = declared(options.ddl, table.name, "upstream.snapshot.schema"), [None] * len(files)
        if options.format == "csv":
            refuse_nested(columns, f"table '{table.name}'")
            if options.csv.header:
                csv_files.refuse_other_columns(where, files, options.csv, columns, options.ignore)
        else:
            json_rows.refuse_unseen(where, files, columns, options.sparse, quarantines)
    columns = _with_folders(files, columns, declared(options.folders, table.name, folder_columns.OPTION))
    own.refuse_names(f"table '{table.name}'", columns)
    missing = [name for name in table.key if name not in columns]
    if missing:
        near = near_names(missing[0], columns) or list(columns)
        raise UsageError(
            f"table '{table.name}': key column '{missing[0]}' is not in {where.shown}",
            f"name one of its columns: {', '.join(near)}",
        )
    splits = []
    for file, count in zip(files, rows, strict=True):
        by_bytes = _has_slices(where, file, options)
        cuttable = by_bytes or options.format == "parquet"
        first = 0 if by_bytes else None
        splits.append(Split(table.name, file.name, count, file.size, cuttable, _detail(file), first))
    return splits, columns


def _has_slices(where: Place, file: File, options: SnapshotFiles) -> bool:
    """Whether slices of a file of text can be read: from a byte on, up to another."""
    if file.size <= lines.SLICED_BYTES or lines.is_compressed(file):
        return False
    match options.format:
        case "json":
            return True
        case "csv":
            return csv_files.has_slices(where, file, options.csv)
    return False


def _with_folders(files: Sequence[File], columns: Columns, folders: Columns) -> Columns:
    """The columns of files, and those of their folders. Raises BadData for folders that do not have these."""
    if not folders:
        return columns
    folder_columns.refuse_unlike(files, folders)
    for name, column in folders.items():
        if name in columns and not same_type(columns[name]["type"], column["type"]):
            here, there = shown(columns[name]["type"]), shown(column["type"])
            raise BadData(
                f"{files[0].path}: column '{name}' is {here}, and {there} in {folder_columns.OPTION}",
                "declare it there as the files have it: " + folder_columns.set_to(f"{name} {here}"),
            )
    return {**columns, **{name: column for name, column in folders.items() if name not in columns}}


def _of_footers(files: Sequence[File], footers: Sequence[Any]) -> Iterator[Columns]:
    """The columns of each Parquet file."""
    first = schemas.of_footer(files[0].path, footers[0], by_workers=True)
    for file, other in zip(files, footers, strict=True):
        same = other.schema.equals(footers[0].schema)
        yield first if same else schemas.of_footer(file.path, other, by_workers=True)


def _one_schema(files: Sequence[File], found: Iterable[Columns]) -> Columns:
    """The columns of all files, which must be the same."""
    each = iter(found)
    first = next(each)
    for file, columns in zip(files[1:], each, strict=True):
        changed = [] if columns is first else differing(first, columns)
        if changed:
            name = changed[0]
            here, there = (f"is {shown(c[name]['type'])}" if name in c else "is absent" for c in (columns, first))
            raise BadData(
                f"{file.path}: column '{name}' {here}, but {there} in {files[0].path}",
                "all files of a table's snapshot must have the same columns: rewrite that file",
            )
        if columns is not first and (odd := unlike(counts_of(first), counts_of(columns))):
            raise BadData(
                f"{file.path}: {'; '.join(odd)}: see {files[0].path}",
                "numbers of a column must count the same in all files of a table's snapshot: rewrite that file",
            )
    return first


def columns_in(where: Place, file: File, table: TableSpec, options: SnapshotFiles) -> Columns:
    """The columns of a file itself, whatever its folders have."""
    match options.format:
        case "parquet":
            return schemas.of_footer(file.path, footer(where, file), by_workers=True)
        case "avro":
            return avro_files.columns(where, file)
    return declared(options.ddl, table.name, "upstream.snapshot.schema")


def declared(ddl: str | dict[str, str] | None, table: str, option: str) -> Columns:
    """The columns that an option declares for a table; empty if it declares none."""
    text = table_ddl(ddl, table)
    if text is None:
        return {}
    try:
        return schemas.of_ddl(text)
    except schemas.Unsupported as exc:
        raise UsageError(f"{option} of table '{table}': {exc}", 'write it like "id BIGINT, note STRING"') from exc


def refuse_nested(columns: Columns, what: str) -> None:
    """Raises BadData for a column that CSV cannot hold: its type has no text form."""
    for name, column in columns.items():
        if not isinstance(column["type"], str) or column["type"] == "binary":
            raise BadData(
                f"{what}: column '{name}': csv cannot hold {shown(column['type'])}",
                "use parquet or json, or declare the column as STRING",
            )


def _detail(file: File) -> str:
    return json.dumps({"path": file.path, "size": file.size, "mtime_ns": file.mtime_ns})


def pinned_file(split: Split) -> File:
    """The file that a split was pinned to."""
    detail = json.loads(split.detail)
    return File(split.id, detail["path"], detail["size"], detail["mtime_ns"])


def real_paths(paths: Iterable[str], where: Place) -> frozenset[str]:
    """The files' paths, without symbolic links among the folders."""
    real = cache(os.path.realpath if where.local else str)
    return frozenset(f"file:{real(os.path.dirname(path))}/{os.path.basename(path)}" for path in paths)


def digests(splits: Iterable[Split]) -> dict[str, str]:
    """A digest of each table's pinned files."""
    found: dict[str, Any] = {}
    for split in splits:
        found.setdefault(split.table, hashlib.sha256()).update(f"{split.id}\0{split.detail}\n".encode())
    return {table: digest.hexdigest()[:32] for table, digest in found.items()}


def compare(table: str, pinned: Mapping[str, File], there: Mapping[str, File]) -> None:
    """Raises Fatal naming the first file that is missing, changed or was added since the pin."""
    for name, file in pinned.items():
        now = there.get(name)
        if now is None:
            raise _changed(table, file, "is gone", _restored(file, "put it back"))
        refuse_changed(table, file, now)
    for name, file in there.items():
        if name not in pinned:
            raise _changed(table, file, "was added", "remove it")


def refuse_changed(table: str, file: File, now: File) -> None:
    """Raises Fatal if a pinned file has changed."""
    if now.size != file.size:
        how = f"changed size from {file.size} to {now.size} bytes"
        raise _changed(table, file, how, _restored(file, "restore the file as it was"))
    if now.mtime_ns != file.mtime_ns:
        same = _restored(file, "if its content is the same")
        raise _changed(table, file, "was rewritten (its modification time changed)", same)


def _restored(file: File, what: str) -> str:
    """What restores a pinned file: the time of a local one, too, which a copy may not keep."""
    local = file.path.startswith("/")
    return f"{what}, with its time: {touched(file.path, file.mtime_ns)}" if local else what


def _changed(table: str, file: File, how: str, restore: str) -> Fatal:
    return Fatal(
        f"table '{table}': {file.path} {how} since the snapshot was pinned",
        f"{restore}; or " + START_OVER,
    )
