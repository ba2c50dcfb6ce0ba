"""What every change format answers: what a file's metadata says of it, and its changes as a frame."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from backfill_cli.contracts import TableSpec
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.files.options import ChangesOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Inspected:
    """A change file's metadata.

    rows: changes in it, None when only reading tells. ms: its largest source time, milliseconds since 1970, None
    when it tells none. columns: the table's columns as of this file, None when it shows none (an empty file).
    """

    file: File
    rows: int | None
    ms: int | None
    columns: Columns | None
    versions: tuple[Cursor, Cursor] | None = None


class ChangeFormat(Protocol):
    """One table's change files of one format. `known`: the table's columns before the file."""

    before_images: ClassVar[bool]

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns) -> None: ...

    def inspect(self, where: Place, file: File, known: Columns) -> Inspected:
        """Reads a footer, or the first and last lines. Raises BadData naming a file that is not whole."""
        ...

    def frame(
        self, spark: "SparkSession", where: Place, files: Sequence[File], columns: Columns
    ) -> "DataFrame | None":
        """`_op, _seq, _ms, columns…` as contracts.Upstream.changes; with an epoch column `_backfill_epoch`.

        None when the files hold no changes.
        """
        ...
