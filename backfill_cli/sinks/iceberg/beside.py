"""Where the sink keeps its records of jobs: a folder beside its tables."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.iceberg.metadata import Look, file_io
from backfill_cli.lake.iceberg.places import Place, Settings, template
from backfill_cli.lake.state import FOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMENT = "backfill: the folder of this table holds the state of jobs that write to other tables; it has no rows."


class Beside:
    """The state folder: beside tables in folders; for tables in a catalog, the folder of a table without rows."""

    def __init__(self, table: str, settings: Settings, spark: "Callable[[], SparkSession]") -> None:
        # The same for all tables of the job, whatever their targets: only the text before {table} counts.
        self._place = Place.of(template(table, "x")).beside(FOLDER)
        self._settings, self._spark = settings, spark
        self._look = Look(self._place, settings)
        self._folder: Blobs | None = None

    def folder(self) -> Blobs | None:
        """The folder; None if its table does not exist in the catalog yet."""
        if self._folder is None:
            if self._place.folder is not None:
                self._folder = _blobs(self._place.path)
            elif (held := self._look.now()) is not None:
                self._folder = _blobs(f"{held.told.location.rstrip('/')}/_jobs")
        return self._folder

    def make(self) -> None:
        if self.folder() is None:
            self._place.register(self._spark())
            self._spark().sql(
                f"CREATE TABLE IF NOT EXISTS {self._place.sql} (nothing STRING) USING iceberg COMMENT '{COMMENT}'"
            )


def _blobs(location: str) -> Blobs:
    io = file_io(location)
    scheme, netloc, path = io.parse_location(location)
    return Blobs(io.fs_by_scheme(scheme, netloc), path)
