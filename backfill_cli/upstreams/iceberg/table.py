"""One Iceberg table at its pinned snapshot: the key ranges that it is read in, and which tables are refused."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs as pafs
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import START_OVER, BackfillError, Hint, HistoryGone, UsageError, in_config
from backfill_cli.lake.iceberg.edge import reading_metadata
from backfill_cli.lake.iceberg.metadata import Held, Look, changed_files, faulty, snapshot_files, summary_of
from backfill_cli.lake.iceberg.places import Place, Settings, template
from backfill_cli.lake.iceberg.types import TAKEN, columns
from backfill_cli.lake.key_ranges import FileKeys, Point, point_of
from backfill_cli.lake.options import moment
from backfill_cli.lake.plain_files import DataFile as PlainFile
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.lake.upstream import LakeTable, PinnedTable, require_key
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import Columns
from backfill_cli.model.units import spell_known
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.names import backticked

MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")
_COPY_ON_WRITE = ", ".join(f"'{mode}' = 'copy-on-write'" for mode in MODES)
NEWEST = in_config('pin the newest: upstream.version = "latest"')
REWRITTEN = "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
NOTHING = -1
"""Stands for the snapshot of a table that has none yet."""

_ASKED = 16
"""Snapshots remembered for errors: two for each epoch that is read, and at most two epochs are in progress."""


class Table(LakeTable):
    """A table of the job, read at `snapshot`. tag: the one that keeps it, if any.

    asked: snapshots that Spark had to read lately.
    """

    def __init__(self, spec: TableSpec, text: str, settings: Settings) -> None:
        super().__init__(spec)
        self.place = Place.of(template(text, spec.name))
        self.snapshot = NOTHING
        self.tag: str | None = None
        self.asked: deque[int] = deque(maxlen=_ASKED)
        self._look = Look(self.place, settings)

    def asked_for(self, *snapshots: int) -> None:
        """Spark has to read these: an error that names one of them is about this table."""
        self.asked.extend(one for one in snapshots if one not in self.asked)

    def if_there(self) -> Held | None:
        """The table's current metadata; None if it does not exist."""
        return self._look.now()

    def now(self) -> Held:
        """The table's current metadata. Raises UsageError if it does not exist."""
        held = self._look.now()
        if held is None:
            known = spell_known(str(self.place), self._look.beside())
            raise UsageError(
                f"{self.place}: this Iceberg table does not exist{known}", in_config("correct upstream.table")
            )
        return held

    def location(self) -> str:
        return self.now().identity

    @property
    def pinned_snapshot(self) -> int | None:
        """The snapshot that this process pinned; None if another one did, or if the table has none yet."""
        found = NOTHING if self.held is None else snapshot_of(self.held.cursor)
        return None if found == NOTHING else found

    def pinned(self, version: int | str) -> PinnedTable:
        """Once the tag exists, the snapshot that it keeps is pinned. Read from metadata only.

        The identity's `fields`: column -> its permanent id.
        """
        held = self.now()
        if held.told.format_version < 2:
            raise UsageError(
                f"{self.place}: its snapshots have no order, as it has format version {held.told.format_version}",
                self.place.in_spark(self.place.alter("SET TBLPROPERTIES ('format-version' = '2')")),
            )
        kept = None if self.tag is None else self.pinned_snapshot
        found = self._named(held, version) if kept is None else held.snapshot(kept)
        self._refuse_deletes(held, found)
        schema = schema_of(held, found)
        known = columns(self.spec.name, schema)
        self.require_names(known)
        require_key(str(self.place), self.spec, known)
        identity = {
            "id": str(held.told.table_uuid),
            "snapshot": NOTHING if found is None else found.snapshot_id,
            "tag": self.tag,
            "fields": field_ids(schema),
        }
        ms = held.told.last_updated_ms if found is None else found.timestamp_ms
        splits = self.splits([] if found is None else _file_keys(self, held, found, schema, known))
        return PinnedTable(cursor_of(found), ms, known, splits, identity, held.told.properties)

    def require_names(self, names: Iterable[str]) -> None:
        """Raises UsageError for a column with the name of one of Iceberg's own, with which changes are marked."""
        for taken in (name for name in names if name.lower() in TAKEN):
            raise UsageError(
                f"{self.place}: column {taken!r} has the name of a column of Iceberg's own, which hides it",
                self.place.in_spark(self.place.alter(f"RENAME COLUMN {backticked(taken)} TO another_name"))
                + "; then "
                + START_OVER,
            )

    def _named(self, held: Held, version: int | str) -> Snapshot | None:
        """The snapshot that the config names; None for "latest" of a table that has none yet."""
        if version == "latest":
            return held.main
        at = moment(str(version))
        if at is not None:
            older = [one for one in held.ancestors(held.main) if one.timestamp_ms <= at.timestamp() * 1000]
            if not older:
                raise UsageError(
                    f"{self.place}: no snapshot is as old as {version}, or it has expired", "name a later time"
                )
            return older[0]
        ref = held.told.refs.get(str(version))
        number = ref.snapshot_id if ref is not None else version
        found = held.snapshot(number) if isinstance(number, int) else None
        if found is None:
            known = ", ".join(sorted(held.told.refs))
            raise UsageError(
                f"{self.place}: no snapshot {version!r}: it expired, or never existed; branches and tags: {known}",
                in_config('correct upstream.version, or leave it at "latest"'),
            )
        if found.snapshot_id not in {one.snapshot_id for one in held.ancestors(held.main)}:
            raise HistoryGone(
                f"{self.place}: snapshot {found.snapshot_id} ({version}) is not an ancestor of the newest one: "
                "changes between them cannot be followed",
                NEWEST,
            )
        return found

    def _refuse_deletes(self, held: Held, found: Snapshot | None) -> None:
        """Raises UsageError for a table with delete files: Iceberg makes no changelog of them."""
        lazily = [mode for mode in MODES if held.told.properties.get(mode, "").lower() == "merge-on-read"]
        if has_deletes(found):
            raise UsageError(
                f"{self.place}: it has delete files (merge-on-read): changes after its snapshot cannot be "
                "followed",
                copied_on_write(self.place),
            )
        if lazily:
            raise UsageError(
                f"{self.place}: {lazily[0]} is merge-on-read: it would write delete files, which cannot be "
                "followed",
                self.place.in_spark(self.place.alter(f"SET TBLPROPERTIES ({_COPY_ON_WRITE})")),
            )

    def go_to(self, cursor: Cursor | None) -> None:
        self.snapshot = snapshot_of(cursor)

    def check(self) -> None:
        if self.snapshot != NOTHING and self.now().snapshot(self.snapshot) is None:
            raise self.expired(self.snapshot)

    def rows(self, spark: SparkSession) -> DataFrame:
        return self._rows_of(spark, self.snapshot)

    def rows_at(self, spark: SparkSession, cursor: Cursor | None) -> DataFrame:
        return self._rows_of(spark, self.snapshot if cursor is None else snapshot_of(cursor))

    def _rows_of(self, spark: SparkSession, snapshot: int) -> DataFrame:
        """All rows at a snapshot, with the columns that the table had then."""
        self.place.register(spark)
        self.asked_for(snapshot)
        return spark.sql(f"SELECT * FROM {self.place.sql} VERSION AS OF {snapshot}")

    def find_plain(self, columns: Columns) -> PlainFiles | None:
        """None where a data file is not Parquet on a local disk, or the snapshot is gone."""
        held = self.now()
        snapshot = None if self.snapshot == NOTHING else held.snapshot(self.snapshot)
        if snapshot is None:
            return None
        schema, key = schema_of(held, snapshot), self.spec.key[0]
        with reading_metadata(self.place):
            told = snapshot_files(held, snapshot)
        files = list(_plain_files(told, schema, key, columns))
        if len(files) < len(told):
            return None
        return PlainFiles(pafs.LocalFileSystem(), files, key, columns, ids=field_ids(schema))

    def fault(self, snapshots: Sequence[int], changed: bool, content: bool) -> BackfillError | None:
        """What is wrong with files of these snapshots; None if nothing is, or if they have expired.

        changed: only those that the snapshots added or removed. content: whether they are read to their end.
        """
        try:
            held = self.now()
            with reading_metadata(self.place):
                there = [one for number in snapshots if (one := held.snapshot(number)) is not None]
                of = changed_files if changed else snapshot_files
                return faulty(held, [file for one in there for file in of(held, one)], content)
        except BackfillError as exc:
            return exc

    def expired(self, snapshot: int) -> HistoryGone:
        return HistoryGone(
            f"{self.place}: snapshot {snapshot} has expired",
            START_OVER
            + "; keep snapshots longer than the job needs: "
            + self.place.in_spark(
                self.place.alter("SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '2592000000')")
            ),
        )


def copied_on_write(place: Place) -> Hint:
    """The statements after which a table has no delete files, and gets none."""
    alter = place.alter(f"SET TBLPROPERTIES ({_COPY_ON_WRITE})")
    return place.in_spark(alter, place.call("rewrite_data_files", REWRITTEN))


def has_deletes(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and number(snapshot, "total-delete-files") > 0


def number(snapshot: Snapshot, name: str) -> int:
    """A count in its summary; 0 if its writer left it out."""
    return counted(snapshot, name) or 0


def counted(snapshot: Snapshot, name: str) -> int | None:
    """A count in its summary; None if its writer left it out: each count is optional."""
    told = summary_of(snapshot)
    return int(told[name]) if name in told else None


def cursor_of(snapshot: Snapshot | None) -> str:
    """A text that sorts in the order of snapshots: the sequence number in 19 digits, then the id."""
    if snapshot is None:
        return f"{0:019d}:{NOTHING}"
    return f"{snapshot.sequence_number or 0:019d}:{snapshot.snapshot_id}"


def snapshot_of(cursor: Cursor | None) -> int:
    return int(str(cursor).partition(":")[2])


def schema_of(held: Held, snapshot: Snapshot | None) -> Schema:
    number = held.told.current_schema_id if snapshot is None else snapshot.schema_id
    return next((one for one in held.told.schemas if one.schema_id == number), held.told.schema())


def field_ids(schema: Schema) -> dict[str, int]:
    return {one.name: one.field_id for one in schema.fields}


def _file_keys(table: Table, held: Held, snapshot: Snapshot, schema: Schema, known: Columns) -> Iterator[FileKeys]:
    key = table.spec.key[0]
    with reading_metadata(table.place):
        told = snapshot_files(held, snapshot)
    for file in told:
        bounds = _bounds_of(file, schema, key, known[key]["type"])
        yield FileKeys(*bounds, file.record_count, file.file_size_in_bytes)


def _bounds_of(file: DataFile, schema: Schema, key: str, kind: Any) -> tuple[Point | None, Point | None]:
    """A file's lowest and highest key. Writers truncate the bounds of texts, which keeps them valid bounds."""
    field = schema.find_field(key)
    text = kind if isinstance(kind, str) else ""

    def point(bounds: Mapping[int, bytes] | None) -> Point | None:
        raw = (bounds or {}).get(field.field_id)
        if raw is None or not field.field_type.is_primitive:
            return None
        try:
            return point_of(from_bytes(field.field_type, raw), text)  # type: ignore[arg-type]
        except (ValueError, OverflowError, UnicodeDecodeError):
            return None

    return point(file.lower_bounds), point(file.upper_bounds)


def _plain_files(told: Sequence[DataFile], schema: Schema, key: str, columns: Columns) -> Iterator[PlainFile]:
    """Those that are plain by what the metadata says of them."""
    field = schema.find_field(key).field_id
    for one in told:
        path = _local(one.file_path)
        if one.content == DataFileContent.DATA and one.file_format == FileFormat.PARQUET and path is not None:
            nulls: Mapping[int, int] = one.null_value_counts or {}
            known = _bounds_of(one, schema, key, columns[key]["type"]) if nulls.get(field) == 0 else (None, None)
            yield PlainFile(path, *known)


def _local(uri: str) -> str | None:
    """The path of a file on this machine; None for one that is elsewhere."""
    if uri.startswith("/"):
        return uri
    parsed = urlsplit(uri)
    return unquote(parsed.path) if parsed.scheme == "file" and not parsed.netloc else None
