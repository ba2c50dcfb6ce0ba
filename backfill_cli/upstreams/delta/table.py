"""One Delta table at its pinned version: the key ranges that it is read in, and which tables are refused."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs as pafs

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import START_OVER, Fatal, HistoryGone, UsageError, in_config, sql
from backfill_cli.lake.delta.commits import FEED, commit, schema_fields
from backfill_cli.lake.delta.edge import Where, delta_errors
from backfill_cli.lake.delta.plain import COUNTED_ROWS, add_actions, column_values, selections
from backfill_cli.lake.key_points import point_of
from backfill_cli.lake.key_ranges import FileKeys, planned
from backfill_cli.lake.options import moment
from backfill_cli.lake.upstream import PinnedTable, require_key
from backfill_cli.model.schema import Columns, field
from backfill_cli.model.split import Split

if TYPE_CHECKING:
    from deltalake import DeltaTable

OF_THE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
PHYSICAL = "delta.columnMapping.physicalName"


def pinned(where: Where, table: TableSpec, version: int | str) -> PinnedTable:
    """The table at one version, read from its log only. Raises as contracts.Source.pin does.

    Its identity's `physical`: column -> its name in the files.
    """
    opened = _at(where, version)
    number = opened.version()
    made = commit(where, number)
    ms = made.ms if made is not None else int(opened.history(1)[0]["timestamp"])
    if (at := moment(str(version))) is not None and ms > at.timestamp() * 1000:
        raise UsageError(
            f"{where.shown}: no version is as old as {version}, the oldest is {number}", "name a later time"
        )
    metadata = opened.metadata()
    if metadata.configuration.get(FEED, "").lower() != "true":
        raise UsageError(
            f"{where.shown}: version {number} has no change data feed: changes after it cannot be followed",
            sql(f"ALTER TABLE delta.`{where.shown}` SET TBLPROPERTIES ({FEED} = true)")
            + ", and pin the version it creates",
        )
    columns, physical = columns_of_delta(opened.schema().to_json())
    require_names(where, columns)
    require_key(where.shown, table, columns)
    _require_files(where, opened)
    splits = tuple(_splits(where, table, opened, columns, physical))
    identity = {"id": str(metadata.id), "version": number, "ms": ms, "physical": physical}
    return PinnedTable(number, ms, columns, splits, identity, dict(metadata.configuration))


def _at(where: Where, version: int | str) -> "DeltaTable":
    if isinstance(version, int):
        return where.open(version)
    opened = where.open()
    if (at := moment(version)) is not None:
        with delta_errors(where.shown):
            opened.load_as_version(at)
    return opened


def require_names(where: Where, names: Iterable[str]) -> None:
    """Raises UsageError for a column that has the name of one of the change data feed's own."""
    taken = next((name for name in names if name.lower() in OF_THE_FEED), None)
    if taken is not None:
        raise UsageError(
            f"{where.shown}: column {taken!r} has the name of a column of Delta's change feed, which hides it",
            "follow a copy of the table in which the column has another name",
        )


def columns_of_delta(schema: str) -> tuple[Columns, dict[str, str]]:
    """The columns without Delta's metadata, and the name of each in the files."""
    told = schema_fields(schema)
    columns = {one["name"]: field(one["name"], _bare(one["type"])) for one in told}
    return columns, {one["name"]: str(one["metadata"].get(PHYSICAL, one["name"])) for one in told}


def _bare(kind: Any) -> Any:
    """The type without the metadata of nested fields."""
    if isinstance(kind, Mapping):
        return {name: {} if name == "metadata" else _bare(value) for name, value in kind.items()}
    return [_bare(one) for one in kind] if isinstance(kind, list) else kind


def _require_files(where: Where, opened: "DeltaTable") -> None:
    """The version's files exist. Checks those that the newest version no longer has: VACUUM may have removed some.

    Raises HistoryGone naming one of them. Without this check counts would come from statistics while rows lack.
    """
    newest = where.open()
    if newest.version() == opened.version():
        return
    now = set(_paths(newest))
    older = [path for path in _paths(opened) if path not in now]
    with delta_errors(where.shown):
        infos = where.place.fs.get_file_info([f"{where.place.folder}/{path}" for path in older])
    gone = [path for path, info in zip(older, infos, strict=True) if info.type == pafs.FileType.NotFound]
    if gone:
        raise HistoryGone(
            f"{where.shown}: version {opened.version()} lacks {len(gone)} of its files: VACUUM removed {gone[0]}",
            in_config(f'pin a newer one: upstream.version = "latest" (now {newest.version()})'),
        )


def _paths(opened: "DeltaTable") -> list[str]:
    from urllib.parse import unquote

    paths = add_actions(opened).column("path").to_pylist()
    return [unquote(path) for path in paths if "://" not in path]


def _splits(
    where: Where, table: TableSpec, opened: "DeltaTable", columns: Columns, physical: Mapping[str, str]
) -> Iterator[Split]:
    kind = columns[table.key[0]]["type"]
    deleted = _deleted(opened, where)
    files = list(_file_keys(add_actions(opened), table.key[0], physical[table.key[0]], kind))
    rows_known = deleted is not None and all(file.rows or not file.size_bytes for file in files)
    ranges = planned(files)
    if not files:
        return
    over = deleted or 0
    for index, one in enumerate(ranges):
        rows = one.rows
        if over:  # it is unknown which ranges the deleted rows are in, but the total is right
            taken = min(over, rows)
            rows, over = rows - taken, over - taken
        told = rows if rows_known else None
        yield Split(table.name, f"{index:05d}", told, one.size_bytes, one.sliced, one.to_json())


def _file_keys(files: pa.Table, key: str, physical: str, kind: Any) -> Iterator[FileKeys]:
    of_partition = f"min.{physical}" not in files.column_names
    names = [f"partition.{key}"] * 2 if of_partition else [f"min.{physical}", f"max.{physical}"]
    lows, highs, rows, sizes = (column_values(files, name) for name in (*names, "num_records", "size_bytes"))
    text = kind if isinstance(kind, str) else ""
    for low, high, count, size in zip(lows, highs, rows, sizes, strict=True):
        yield FileKeys(point_of(low, text), point_of(high, text), count or 0, size)


def _deleted(opened: "DeltaTable", where: Where) -> int | None:
    """How many rows deletion vectors remove; None if the table is too large to count them."""
    if "deletionVectors" not in (opened.protocol().reader_features or ()):
        return 0
    records = add_actions(opened).column("num_records")
    if (pc.sum(records).as_py() or 0) > COUNTED_ROWS:
        return None
    with delta_errors(where.shown):
        kept = (pc.list_flatten(batch.column("selection_vector")) for batch in selections(opened))
        return sum(len(rows) - (pc.sum(rows).as_py() or 0) for rows in kept)


def require_same_physical(where: Where, before: Mapping[str, str], after: Mapping[str, str], version: int) -> None:
    """Each name still means the same column. Raises Fatal for a column that was dropped and added again."""
    for name, held in before.items():
        if after.get(name, held) != held:
            raise Fatal(
                f"{where.shown}: version {version} has a different column {name!r}: the former one was dropped "
                "or renamed",
                START_OVER,
            )
