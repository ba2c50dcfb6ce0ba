"""Reads an Iceberg table's metadata with pyiceberg: each version is parsed once, and lists its data files."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from backfill_cli.errors import BackfillError, Fatal, UsageError, in_config, sql
from backfill_cli.lake import damage
from backfill_cli.lake.damage import FROM_COPY, Stored, damaged, intact
from backfill_cli.lake.iceberg.edge import reading_metadata, unknown_type
from backfill_cli.lake.iceberg.places import Place, Settings, catalog_properties, no_catalog
from backfill_cli.spark.beside import CATALOG
from backfill_cli.spark.object_store import on_s3, store, store_of

IMPLEMENTED = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
}
KINDS = ("rest", "hive", "glue", "hadoop")
_OF_A_CATALOG = re.compile(r"\d{5,}-[0-9a-f-]{36}(\.gz)?\.metadata\.json(\.gz)?")
"""Metadata files whose order only a catalog knows; a table in a folder has v1.metadata.json and so on."""
_OF_A_FOLDER = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json")
SUFFIXES = (".metadata.json", ".gz.metadata.json")


class Held:
    """A table's metadata at one moment. file: that holds it."""

    def __init__(self, file: str, told: TableMetadata, io: Any) -> None:
        self.file, self.told, self.io = file, told, io
        self._snapshots = {one.snapshot_id: one for one in told.snapshots}

    @property
    def identity(self) -> str:
        """Identifies the table, wherever it is and whatever its name: a recreated table is a different one."""
        return f"iceberg:{self.told.table_uuid}"

    @property
    def main(self) -> Snapshot | None:
        """The newest snapshot of the table; None before the first."""
        found = self.told.current_snapshot_id
        return None if found is None else self._snapshots.get(found)

    def snapshot(self, number: int) -> Snapshot | None:
        """A snapshot; None if it expired or never existed."""
        return self._snapshots.get(number)

    def ancestors(self, of: Snapshot | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, newest first, as far as they have not expired."""
        while of is not None:
            yield of
            of = None if of.parent_snapshot_id is None else self.snapshot(of.parent_snapshot_id)

    def reaches_start(self, of: Snapshot | None) -> bool:
        """Whether none of a snapshot's ancestors has expired."""
        every = list(self.ancestors(of))
        return not every or every[-1].parent_snapshot_id is None

    @property
    def refs(self) -> dict[str, int]:
        """The snapshots of branches and tags, except main."""
        return {name: ref.snapshot_id for name, ref in self.told.refs.items() if name != "main"}


@dataclass(frozen=True, slots=True)
class _File:
    """A file of metadata in a folder, as found."""

    name: str
    size: int
    mtime_ns: int


class Look:
    """Reads one table repeatedly. An unchanged table in a folder costs two file system calls."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self._place, self._settings = place, settings
        self._held: Held | None = None
        self._file_held: _File | None = None
        self._known = 0

    @cached_property
    def _io(self) -> PyArrowFileIO:
        """Of a table in a folder."""
        return file_io(self._root() or "")

    @cached_property
    def _catalog(self) -> Any:
        """Of a table that only its catalog finds."""
        return load_catalog(self._place.catalog, **{**store().for_pyiceberg(), **self._properties()})

    def now(self) -> Held | None:
        """The table's current metadata; None if there is no table."""
        with reading_metadata(self._place):
            root = self._root()
            return self._of_catalog() if root is None else self._of_folder(f"{root}/metadata")

    def beside(self) -> list[str]:
        """The tables in this table's namespace, or beside its folder if that is local, by their names.

        For an error about this table: none where they cannot be listed, or where that would cost much.
        """
        place, names = self._place, list[str]()
        with suppress(Exception):
            root = self._root()
            if root is None:
                names = sorted(found[-1] for found in self._catalog.list_tables(place.names[:-1]))
            elif place.folder is None or "://" not in root:
                names = self._folders(root.rpartition("/")[0])
        return [str(place.beside(name)) for name in names]

    def _folders(self, parent: str) -> list[str]:
        """The folders in this one that hold a table's metadata."""
        files, path = located(self._io, parent)
        found = files.get_file_info(FileSelector(path, allow_not_found=True))
        names = sorted(one.base_name for one in found if one.type == FileType.Directory)
        held = files.get_file_info([f"{path}/{name}/metadata" for name in names])
        return [name for name, one in zip(names, held, strict=True) if one.type == FileType.Directory]

    def _root(self) -> str | None:
        if self._place.folder is not None:
            return self._place.path
        told = self._properties()
        if told["type"] != "hadoop":
            return None
        return "/".join((told["warehouse"].rstrip("/"), *self._place.names))

    def _properties(self) -> dict[str, str]:
        name, settings = self._place.catalog, self._settings()
        told = catalog_properties(name, settings)
        if not told and CATALOG + name not in settings:
            raise no_catalog(name, settings)
        kind = told.pop("catalog-impl", "")
        told.setdefault("type", IMPLEMENTED.get(kind, kind))
        if told["type"] not in KINDS:
            raise UsageError(
                f"table {self._place}: its catalog is of type {told['type'] or 'nothing'!r}, but tables can be "
                f"looked up only in one of type {', '.join(KINDS)}",
                in_config(
                    f"set [spark.conf] 'spark.sql.catalog.{self._place.catalog}.type'; or name the table by its "
                    "folder"
                ),
            )
        return told

    def _of_catalog(self) -> Held | None:
        try:
            table = self._catalog.load_table(self._place.names)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        if self._held is None or self._held.file != table.metadata_location:
            self._held = Held(table.metadata_location, table.metadata, table.io)
        return self._held

    def _of_folder(self, folder: str) -> Held | None:
        # The hint is written after the version that it names, and can still name the one before.
        number, file = max(self._hinted(folder), self._known), None
        while found := self._file(folder, number + 1):
            number, file = number + 1, found
        if not number:
            self._refuse_of_catalog(folder)
            return None
        file = file or self._file(folder, number)
        if file is None and self._known:  # the table was dropped, and perhaps recreated
            self._held, self._known = None, 0
            return self._of_folder(folder)
        if file is None:
            raise Fatal(f"{folder}/v{number}{SUFFIXES[0]}, the table's newest metadata, is missing", FROM_COPY)
        if self._held is None or file != self._file_held:  # recreated, it can have the same version again
            self._held, self._file_held = Held(file.name, self._parsed(file.name), self._io), file
        self._known = number
        return self._held

    def _parsed(self, file: str) -> TableMetadata:
        with intact(file):
            try:
                return FromInputFile.table_metadata(self._io.new_input(file))
            except ValidationError as exc:
                raise unknown_type(self._place, exc) or exc from None

    def _hinted(self, folder: str) -> int:
        try:
            with self._io.new_input(f"{folder}/version-hint.text").open() as stream:
                text = stream.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return 0
        if text.isdecimal():
            return int(text)
        # Iceberg takes a hint that it cannot read for none: the newest of the files counts.
        numbers = [int(found[1]) for one in self._names(folder) if (found := _OF_A_FOLDER.fullmatch(one))]
        if not numbers:
            raise self._of_another_catalog(f"version-hint.text names {text!r}")
        return max(numbers)

    def _names(self, folder: str) -> list[str]:
        """The names of the files in this folder."""
        files, path = located(self._io, folder)
        return [one.base_name for one in files.get_file_info(FileSelector(path, allow_not_found=True))]

    def _refuse_of_catalog(self, folder: str) -> None:
        """Raises UsageError if the folder has metadata, but of a table that only its catalog can find."""
        names = sorted(one for one in self._names(folder) if _OF_A_CATALOG.fullmatch(one))
        if names:
            raise self._of_another_catalog(f"its metadata is in files like {names[-1]}")

    def _of_another_catalog(self, seen: str) -> UsageError:
        return UsageError(
            f"table {self._place}: an Iceberg table that a catalog manages, not one of a folder: {seen}",
            in_config(
                "name it as catalog.schema.table, with its catalog in [spark.conf], of type rest, hive or glue; a "
                "table of another catalog, such as pyiceberg's SqlCatalog, must be moved to one of these: "
                + sql("CALL CATALOG.system.register_table(table => 'SCHEMA.TABLE', metadata_file => 'NEWEST')")
            ),
        )

    def _file(self, folder: str, number: int) -> _File | None:
        for suffix in SUFFIXES:
            files, path = located(self._io, f"{folder}/v{number}{suffix}")
            info = files.get_file_info(path)
            if info.type != FileType.NotFound:
                return _File(f"{folder}/v{number}{suffix}", info.size or 0, info.mtime_ns or 0)
        return None


def file_io(location: str) -> PyArrowFileIO:
    """What reads and lists the files at this place."""
    return PyArrowFileIO(store_of(location).for_pyiceberg() if on_s3(location) else {})


def located(io: PyArrowFileIO, location: str) -> tuple[FileSystem, str]:
    """A file system, and the path of this place in it."""
    scheme, netloc, path = io.parse_location(location)
    return io.fs_by_scheme(scheme, netloc), path


def summary_of(snapshot: Snapshot | None) -> dict[str, str]:
    """What a snapshot's writer noted of it, each of it optional; empty for None."""
    return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties


def snapshot_files(held: Held, snapshot: Snapshot) -> list[DataFile]:
    """The snapshot's data files. Raises Fatal for a manifest that is missing, cut off or damaged."""
    return _files(held, snapshot, changed=False)


def changed_files(held: Held, snapshot: Snapshot) -> list[DataFile]:
    """The data files that the snapshot added or removed. Raises as `snapshot_files` does."""
    return _files(held, snapshot, changed=True)


def _files(held: Held, snapshot: Snapshot, changed: bool) -> list[DataFile]:
    with intact(snapshot.manifest_list):
        manifests = snapshot.manifests(held.io)
    if not manifests and summary_of(snapshot).get("total-data-files", "0") != "0":
        raise damaged(snapshot.manifest_list, "it lists no manifest")
    made: list[DataFile] = []
    for one in manifests:
        if changed and one.added_snapshot_id != snapshot.snapshot_id:
            continue
        with intact(one.manifest_path):
            entries = one.fetch_manifest_entry(held.io, discard_deleted=not changed)
        counts = [one.added_files_count, one.existing_files_count, one.deleted_files_count if changed else 0]
        expected = sum(count or 0 for count in counts)
        if None not in counts and len(entries) != expected:  # cut off where a block ends, it can be read
            raise damaged(one.manifest_path, f"it lists {len(entries)} files of {expected}")
        made += [entry.data_file for entry in entries]
    return made


def faulty(held: Held, files: Sequence[DataFile], content: bool) -> BackfillError | None:
    """What is wrong with one of these files; None if nothing is. content: whether they are read to their end."""
    if not files:
        return None
    places = [held.io.parse_location(one.file_path) for one in files]
    fs = held.io.fs_by_scheme(*places[0][:2])
    known = [
        Stored(path, one.file_size_in_bytes)
        for one, (scheme, netloc, path) in zip(files, places, strict=True)
        if (scheme, netloc) == places[0][:2]
    ]
    return damage.faulty(fs, known, content=content)


def snapshot_fault(held: Held, snapshot: Snapshot) -> BackfillError | None:
    """What is wrong with a data file of the snapshot; None if nothing is. Raises as `snapshot_files` does."""
    return faulty(held, snapshot_files(held, snapshot), content=True)
