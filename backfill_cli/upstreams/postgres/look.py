"""The job's tables as the database's catalog describes them, read again when the catalog changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import TableSpec
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.upstreams.postgres import checks, rewritten
from backfill_cli.upstreams.postgres.tables import PgTable, described, require_names, schema_of, signature
from backfill_cli.upstreams.postgres.types import Column, spark_field

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]


class Look:
    """tables: by name. in_force: by table, the columns that the changes applied so far have, in the table's order.

    Changes that the log does not have are found by comparing each look with the previous one; across processes, by
    `storage` and `recall`.
    """

    def __init__(self, specs: Sequence[TableSpec], publication: str) -> None:
        self._specs, self._publication = specs, publication
        self.tables: dict[str, PgTable] = {}
        self.in_force: dict[str, tuple[Column, ...]] = {}
        self._signature = ""
        self._storage = rewritten.Storage({}, {}, {})
        self._compared = True  # since the last look
        self._places: dict[
            str, tuple[str, int]
        ] = {}  # by table: a schema, and the log's end when it was first seen

    @property
    def listed(self) -> tuple[PgTable, ...]:
        return tuple(self.tables.values())

    def begin(self, connection: "Connection") -> None:
        """The tables as they are now are known, for later looks to compare with; all columns are in force."""
        require_names(connection, self._specs)
        self._look(connection)
        self._storage, self._compared = self._stored(connection), True
        self.in_force = {table.name: table.columns for table in self.listed}

    def again(self, connection: "Connection") -> None:
        """The tables are as they are now. Costs one query if nothing changed."""
        if self._signed(connection) != self._signature:
            self._look(connection)

    def require_followable(self) -> None:
        """The tables, as they were last looked at, can still be followed."""
        checks.require_followable(self.listed)
        checks.require_no_heirs(self.listed)
        self.apply({name: schema_of_columns(columns) for name, columns in self.in_force.items()})

    def apply(self, schemas: Mapping[str, str]) -> None:
        """These columns are in force, as the catalog describes them now. Raises BadData if a type differs."""
        for name, text in schemas.items():
            self.in_force[name] = checks.in_force(self.tables[name], columns_of(text))

    def compare(self, connection: "Connection", log_end: Callable[[], int]) -> None:
        """Since the previous look no row got values that the log does not have. Raises BadData otherwise."""
        if not self._compared:
            storage = self._stored(connection)
            rewritten.require_same_values(self._storage, storage)
            lapsed = rewritten.lapses(self._storage, self.listed, log_end)
            self._storage, self._compared = replace(storage, lapsed=lapsed), True

    def require_kept_unique(self, connection: "Connection", unsure: Sequence[str], after: int) -> None:
        """Changes of these tables after a position are of one row each. Raises BadData otherwise."""
        rewritten.require_kept_unique(connection, self._storage, unsure, after)

    def added(self, connection: "Connection") -> dict[str, str]:
        """By table with columns not yet in force: its schema now. Raises BadData for a column with a default."""
        found = {}
        for name, table in self.tables.items():
            in_force = {column.name for column in self.in_force[name]}
            if new := [column.name for column in table.columns if column.name not in in_force]:
                checks.require_told(connection, table, new)
                found[name] = schema_of(table)
        return found

    def told_by(self, end: int, added: Mapping[str, str], log_end: Callable[[], int]) -> dict[str, str]:
        """Those whose ALTER TABLE is before `end`. log_end: called when a schema is new; it lies after that."""
        for name, schema in added.items():
            if self._places.get(name, ("", 0))[0] != schema:
                self._places[name] = (schema, log_end())
        return {name: schema for name, schema in added.items() if self._places[name][1] <= end}

    def storage(self) -> str:
        """What a later process gives to `recall`, to compare with."""
        return rewritten.as_text(self._storage)

    def recall(self, columns: Mapping[str, Sequence[str]], storage: str) -> None:
        """What an earlier process knew is known again: the columns in force, and how rows were stored."""
        for name, names in columns.items():
            self.in_force[name] = tuple(c for c in self.tables[name].columns if c.name in names)
        if storage:
            self._storage, self._compared = rewritten.of_text(storage), False

    def _stored(self, connection: "Connection") -> rewritten.Storage:
        return rewritten.seen(connection, self._specs, self.listed, self._publication)

    def _look(self, connection: "Connection") -> None:
        self._signature, self._compared = self._signed(connection), False
        self.tables = {table.name: table for table in described(connection, self._specs)}

    def _signed(self, connection: "Connection") -> str:
        """A text that changes once a new look would differ from the last one."""
        return f"{signature(connection, self._specs)} {rewritten.labels(connection, self.listed)}"


def schema_of_columns(columns: Sequence[Column]) -> str:
    """Spark's schema of rows with these columns, as JSON."""
    return schema_text({column.name: spark_field(column) for column in columns})
