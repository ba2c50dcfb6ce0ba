"""Which data files of an Iceberg snapshot hold its rows as they are: workers read those by themselves."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyarrow import fs as pafs

from backfill_cli.lake.iceberg.edge import reading_metadata
from backfill_cli.lake.iceberg.metadata import snapshot_files
from backfill_cli.lake.plain_files import DataFile, PlainFiles
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.iceberg.table import NOTHING, Table, bounds_of, field_ids, schema_of

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as Told
    from pyiceberg.schema import Schema


def plain_files(table: Table, number: int, columns: Columns) -> PlainFiles | None:
    """The snapshot's data files; None where one is not Parquet on a local disk, or the snapshot is gone."""
    held = table.now()
    snapshot = None if number == NOTHING else held.snapshot(number)
    if snapshot is None:
        return None
    schema, key = schema_of(held, snapshot), table.spec.key[0]
    with reading_metadata(table.place):
        told = snapshot_files(held, snapshot)
    files = list(_files(told, schema, key, columns))
    if len(files) < len(told):
        return None
    return PlainFiles(pafs.LocalFileSystem(), files, key, columns, ids=field_ids(schema))


def _files(told: "list[Told]", schema: "Schema", key: str, columns: Columns) -> Iterator[DataFile]:
    """Those that are plain by what the metadata says of them."""
    from pyiceberg.manifest import DataFileContent, FileFormat

    field = schema.find_field(key).field_id
    for one in told:
        path = _local(one.file_path)
        if one.content == DataFileContent.DATA and one.file_format == FileFormat.PARQUET and path is not None:
            nulls: Mapping[int, int] = one.null_value_counts or {}
            known = bounds_of(one, schema, key, columns[key]["type"]) if nulls.get(field) == 0 else (None, None)
            yield DataFile(path, *known)


def _local(uri: str) -> str | None:
    """The path of a file on this machine; None for one that is elsewhere."""
    if uri.startswith("/"):
        return uri
    parsed = urlsplit(uri)
    return unquote(parsed.path) if parsed.scheme == "file" and not parsed.netloc else None
