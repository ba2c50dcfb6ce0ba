"""The interface of the change formats: the metadata of a file, and its changes as a frame."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Any, ClassVar, Protocol

from backfill_cli.contracts import ArrowTasks, TableSpec, own
from backfill_cli.errors import BadData, Hint, in_config
from backfill_cli.formats import skip_counts
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import Columns, field, schema_text
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import CHANGES_HINT
from backfill_cli.spark.names import plain
from backfill_cli.upstreams.files.options import ChangesOptions

NO_CHANGES: Columns = {
    own.OP: field(own.OP, "string"),
    own.SEQ: field(own.SEQ, "long"),
    own.MS: field(own.MS, "long"),
}
"""The marks where there is no change."""


def nothing(columns: Columns) -> ArrowTasks:
    """No changes of a table with these columns."""
    return ArrowTasks(_nothing, (), schema_text(NO_CHANGES | columns))


def _nothing(_: object) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Inspected:
    """A change file's metadata.

    rows: number of changes, None if unknown before reading. ms: largest source time, milliseconds since 1970, or
    None. columns: the table's columns as of this file, None if it shows none (an empty file). shown_in: what of
    the file shows them, as errors name it after its path. counts: what whole numbers of a column count, as far as
    the file says it: see `connect.counted`.
    """

    file: File
    rows: int | None
    ms: int | None
    columns: Columns | None
    versions: tuple[Cursor, Cursor] | None = None
    shown_in: str = ""
    counts: Mapping[str, Any] = field_of(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Files of one log that follow each other. known, before: see `ChangeFormat.frame`."""

    files: Sequence[File]
    known: Columns
    before: File | None = None


class ChangeFormat(Protocol):
    """One table's change files of one format. `known`: the table's columns before the files.

    parts: whether the table's changes may be in several logs, without an order between them.
    """

    before_images: ClassVar[bool]
    parts: ClassVar[bool] = False

    def __init__(
        self, table: TableSpec, options: ChangesOptions, declared: Columns, quarantines: bool
    ) -> None: ...

    def inspect(self, where: Place, file: File, known: Columns, applied: bool = False) -> Inspected:
        """Reads a footer, or the first and last lines. Raises BadData naming an incomplete file.

        applied: its rows are not judged again: some may have been quarantined, whatever the options say now.
        """
        ...

    def count(self, where: Place, file: File) -> int:
        """How many records a file has; 0 if that is not known."""
        return 0

    def frame(
        self,
        spark: SparkSession,
        where: Place,
        files: Sequence[File],
        columns: Columns,
        known: Columns,
        before: File | None = None,
        skips: skip_counts.Place | None = None,
    ) -> DataFrame | None:
        """`own.OP, own.SEQ, own.MS, columns…` as contracts.Source.changes; with an epoch also `own.EPOCH`.

        columns: after the last of the files. before: the file that precedes them, in which a transaction can
        begin; its changes are not in the frame. skips: where workers tell what they skip. Returns None if the
        files hold no changes, and nothing to count.
        """
        ...

    def tasks(
        self,
        where: Place,
        runs: Sequence[Run],
        columns: Columns,
        cores: int,
        skips: skip_counts.Place | None = None,
    ) -> ArrowTasks | None:
        """The same of several logs, as contracts.Source.change_batches; None: only `frame` reads them."""
        return None


def declared(columns: Mapping[str, str]) -> Hint:
    """The option that declares these columns, as in the config file. columns: Spark DDL of each type."""
    ddl = ", ".join(f"{plain(name)} {kind}" for name, kind in columns.items())
    return in_config(f"upstream.changes.columns = {json.dumps(ddl, ensure_ascii=False)}")


def undeclared(file: File, name: str, known: Columns) -> BadData:
    """The error for a new column without a known type."""
    twin = next((first for first, other in own.twins((*known, name)) if other == name), None)
    if twin is not None:
        return BadData(f"{file.path}: column '{name}' differs from '{twin}' only in case", CHANGES_HINT)
    return BadData(
        f"{file.path}: column '{name}' is new, and its file carries no type for it",
        "declare it: " + declared({name: "STRING"}) + " (or its actual type)",
    )
