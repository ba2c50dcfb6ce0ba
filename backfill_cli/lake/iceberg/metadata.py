"""Reads an Iceberg table's metadata with pyiceberg; each version is parsed once."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import RETRIED, BackfillError, Fatal, Transient, UsageError
from backfill_cli.lake.damage import FROM_COPY, intact
from backfill_cli.lake.iceberg.places import Place, Settings, catalog_properties, no_catalog
from backfill_cli.lake.iceberg.types import OTHER_TYPE
from backfill_cli.spark.beside import CATALOG
from backfill_cli.spark.object_store import meant, on_s3, store, store_of

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

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

    def __init__(self, file: str, told: "TableMetadata", io: Any) -> None:
        self.file, self.told, self.io = file, told, io
        self._snapshots = {one.snapshot_id: one for one in told.snapshots}

    @property
    def identity(self) -> str:
        """Identifies the table, wherever it is and whatever its name: a recreated table is a different one."""
        return f"iceberg:{self.told.table_uuid}"

    @property
    def main(self) -> "Snapshot | None":
        """The newest snapshot of the table; None before the first."""
        found = self.told.current_snapshot_id
        return None if found is None else self._snapshots.get(found)

    def snapshot(self, number: int) -> "Snapshot | None":
        """A snapshot; None if it expired or never existed."""
        return self._snapshots.get(number)

    def ancestors(self, of: "Snapshot | None") -> "Iterator[Snapshot]":
        """A snapshot and those before it, newest first, as far as they have not expired."""
        while of is not None:
            yield of
            of = None if of.parent_snapshot_id is None else self.snapshot(of.parent_snapshot_id)

    def reaches_start(self, of: "Snapshot | None") -> bool:
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
        self._io: PyArrowFileIO | None = None
        self._catalog: Any = None

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
        from pyarrow.fs import FileSelector, FileType

        assert self._io is not None
        scheme, netloc, path = self._io.parse_location(parent)
        files = self._io.fs_by_scheme(scheme, netloc)
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
                f"set [spark.conf] 'spark.sql.catalog.{self._place.catalog}.type'; or name the table by its "
                "folder",
            )
        return told

    def _of_catalog(self) -> Held | None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self._catalog is None:
            self._catalog = load_catalog(self._place.catalog, **{**store().for_pyiceberg(), **self._properties()})
        try:
            table = self._catalog.load_table(self._place.names)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        if self._held is None or self._held.file != table.metadata_location:
            self._held = Held(table.metadata_location, table.metadata, table.io)
        return self._held

    def _of_folder(self, folder: str) -> Held | None:
        if self._io is None:
            self._io = file_io(folder)
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

    def _parsed(self, file: str) -> "TableMetadata":
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.serializers import FromInputFile

        assert self._io is not None
        with intact(file):
            try:
                return FromInputFile.table_metadata(self._io.new_input(file))
            except ValidationError as exc:
                raise _unknown_type(self._place, exc) or exc from None

    def _hinted(self, folder: str) -> int:
        assert self._io is not None
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
        from pyarrow.fs import FileSelector

        assert self._io is not None
        scheme, netloc, path = self._io.parse_location(folder)
        found = self._io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, allow_not_found=True))
        return [one.base_name for one in found]

    def _refuse_of_catalog(self, folder: str) -> None:
        """Raises UsageError if the folder has metadata, but of a table that only its catalog can find."""
        names = sorted(one for one in self._names(folder) if _OF_A_CATALOG.fullmatch(one))
        if names:
            raise self._of_another_catalog(f"its metadata is in files like {names[-1]}")

    def _of_another_catalog(self, seen: str) -> UsageError:
        return UsageError(
            f"table {self._place}: an Iceberg table that a catalog manages, not one of a folder: {seen}",
            "name it as catalog.schema.table, with its catalog in [spark.conf], of type rest, hive or glue; a "
            "table of another catalog, such as pyiceberg's SqlCatalog, must be moved to one of these: "
            "CALL CATALOG.system.register_table(table => 'SCHEMA.TABLE', metadata_file => 'NEWEST')",
        )

    def _file(self, folder: str, number: int) -> _File | None:
        from pyarrow.fs import FileType

        assert self._io is not None
        for suffix in SUFFIXES:
            scheme, netloc, path = self._io.parse_location(f"{folder}/v{number}{suffix}")
            info = self._io.fs_by_scheme(scheme, netloc).get_file_info(path)
            if info.type != FileType.NotFound:
                return _File(f"{folder}/v{number}{suffix}", info.size or 0, info.mtime_ns or 0)
        return None


def file_io(location: str) -> "PyArrowFileIO":
    """What reads and lists the files at this place."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(store_of(location).for_pyiceberg() if on_s3(location) else {})


def _unknown_type(place: Place, exc: Exception) -> Fatal | None:
    unknown = re.search(r"Unsupported field type: '([^']+)'", str(exc))
    if unknown is None:
        return None
    return Fatal(f"table {place}: it has a column of type {unknown[1]}, which is not supported", OTHER_TYPE)


class reading_metadata:
    """pyiceberg's failures become ours."""

    def __init__(self, place: Place) -> None:
        self._place, self._option = place, f"{CATALOG}{place.catalog}."

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        import requests
        from pydantic import ValidationError
        from pyiceberg import exceptions

        if exc is None or isinstance(exc, BackfillError):
            return
        said = " ".join(str(exc).split())[:300]
        if (of_store := meant(f"table {self._place}", str(exc))) is not None:
            raise of_store from exc
        passing = (exceptions.ServerError, exceptions.ServiceUnavailableError, requests.ConnectionError)
        if isinstance(exc, (*passing, requests.Timeout)):
            raise Transient(
                f"table {self._place}: its catalog does not answer: {said}",
                f"start it, or correct [spark.conf] '{self._option}uri'; {RETRIED}",
            ) from exc
        if isinstance(exc, exceptions.UnauthorizedError | exceptions.ForbiddenError):
            raise Fatal(
                f"table {self._place}: its catalog refuses: {said}",
                f"correct [spark.conf] '{self._option}credential', or '{self._option}token'; or let its user read "
                "the table",
            ) from exc
        if isinstance(exc, ValidationError | exceptions.ValidationError):
            wrong = _unknown_type(self._place, exc)
            raise wrong or Fatal(f"table {self._place}: its metadata cannot be read: {said}", FROM_COPY) from exc
        if isinstance(exc, PermissionError):
            raise Fatal(f"table {self._place}: {said}", "give this user the right to read it") from exc
        if isinstance(exc, OSError):
            raise Transient(f"table {self._place}: {said}", RETRIED) from exc
