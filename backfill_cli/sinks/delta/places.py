"""Where a job's tables are, and the folder beside them that holds what the sink remembers."""

from collections.abc import Sequence

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import UsageError
from backfill_cli.formats.delta.edge import Where
from backfill_cli.formats.delta.names import Session, located, schema_folder, sql_of
from backfill_cli.formats.lake.blobs import Blobs
from backfill_cli.formats.lake.state import FOLDER
from backfill_cli.formats.listing import Place, place

TABLE = "{table}"


class Unplaced(Where):
    """A table that its catalog does not have yet: the catalog will say where it is."""

    __slots__ = ()

    @classmethod
    def called(cls, name: str) -> "Unplaced":
        from pyarrow.fs import LocalFileSystem

        return cls(Place(LocalFileSystem(), "", (), name, name, False))

    def exists(self) -> bool:
        return False


class Named:
    """Tables under names in a catalog of the session. Where one is, is asked once."""

    def __init__(self, template: str, session: Session) -> None:
        self.template, self.session = template, session
        self._found: dict[str, Where] = {}

    def name(self, table: SinkTable) -> str:
        """A side table of ours is beside the job's own one where that has no {table}."""
        if TABLE not in self.template and table.side:
            return f"{self.template.rpartition('.')[0]}.{table.target}"
        return self.template.replace(TABLE, table.target)

    def where(self, table: SinkTable) -> Where:
        name = self.name(table)
        if name not in self._found:
            found = located(self.session(), name)
            if found is None:
                return Unplaced.called(name)
            self._found[name] = found
        return self._found[name]

    def gone(self, table: SinkTable) -> None:
        """The catalog has no such table any more; its files are left where it is not the catalog's own."""
        self.session().sql(f"DROP TABLE IF EXISTS {sql_of(self.name(table))}")
        self._found.pop(self.name(table), None)


Template = str | Named


def where_of(template: Template, table: SinkTable) -> Where:
    """The table's folder. A side table of ours is beside the job's own one where that has no {table}."""
    if isinstance(template, Named):
        return template.where(table)
    if TABLE in template:
        return Where.of(template, table.target)
    return Where.of(f"{_parent(template)}/{table.target}" if table.side else template, table.target)


def state_of(template: Template) -> Blobs:
    """The folder that is the same for all tables which the option may name."""
    if isinstance(template, Named):
        found = place(f"{schema_folder(template.session(), template.template)}/{FOLDER}", "")
        return Blobs(found.fs, found.folder)
    root = _parent(template.split(TABLE)[0] + "x") if TABLE in template else _parent(template)
    found = place(f"{root}/{FOLDER}", "")
    return Blobs(found.fs, found.folder)


def require_apart(template: Template, tables: Sequence[SinkTable]) -> None:
    """Each table has a folder of its own. Raises UsageError naming two that share one."""
    seen: dict[str, str] = {}
    for table in tables:
        where = where_of(template, table)
        twin = seen.setdefault(where.uri, table.name)
        if twin != table.name:
            raise UsageError(
                f"tables {twin!r} and {table.name!r} have the same target, {where.shown}",
                'write {table} into sink.table: "lake/{table}"',
            )


def _parent(path: str) -> str:
    head = path.rstrip("/").rpartition("/")[0]
    return head or "/"
