"""Where a job's tables are, and the folder beside them with the sink's state."""

from backfill_cli.contracts import SinkTable
from backfill_cli.formats.listing import Place, place
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.delta.names import Session, located, schema_folder, sql_of
from backfill_cli.lake.state import FOLDER

TABLE = "{table}"


class Unplaced(Where):
    """A table that the session's catalog does not have yet, and will place when it is created."""

    __slots__ = ()

    @classmethod
    def called(cls, name: str) -> "Unplaced":
        from pyarrow.fs import LocalFileSystem

        return cls(Place(LocalFileSystem(), "", (), name, name.lower(), False))  # Spark's catalogs ignore case

    def exists(self) -> bool:
        return False


class Named:
    """Tables by name in a catalog of the session. The place of each is looked up once."""

    def __init__(self, template: str, session: Session) -> None:
        self.template, self.session = template, session
        self._found: dict[str, Where] = {}

    def name(self, table: SinkTable) -> str:
        """The table's name. Without {table} in the option, a side table is beside the job's table."""
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
        """The catalog no longer has the table; the files of an external table stay."""
        self.session().sql(f"DROP TABLE IF EXISTS {sql_of(self.name(table))}")
        self._found.pop(self.name(table), None)


Template = str | Named


def where_of(template: Template, table: SinkTable) -> Where:
    """The table's folder. Without {table} in the option, a side table is beside the job's table."""
    if isinstance(template, Named):
        return template.where(table)
    if TABLE in template:
        return Where.of(template, table.target)
    return Where.of(f"{_parent(template)}/{table.target}" if table.side else template, table.target)


def state_of(template: Template) -> Blobs:
    """The state folder, the same for all tables that the option can name."""
    if isinstance(template, Named):
        found = place(f"{schema_folder(template.session(), template.template)}/{FOLDER}", "")
        return Blobs(found.fs, found.folder)
    root = _parent(template.split(TABLE)[0] + "x") if TABLE in template else _parent(template)
    found = place(f"{root}/{FOLDER}", "")
    return Blobs(found.fs, found.folder)


def _parent(path: str) -> str:
    head = path.rstrip("/").rpartition("/")[0]
    return head or "/"
