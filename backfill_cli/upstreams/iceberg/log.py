"""Follows the snapshots of an Iceberg table: which are new, and which cannot be followed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from backfill_cli.errors import START_OVER, Fatal
from backfill_cli.lake.iceberg.metadata import Held
from backfill_cli.lake.iceberg.types import columns
from backfill_cli.model.schema import schema_text
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.upstreams.iceberg.table import (
    NEWEST,
    NOTHING,
    Table,
    copied_on_write,
    counted,
    cursor_of,
    field_ids,
    has_deletes,
    number,
    require_names,
    schema_of,
    snapshot_of,
)

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


class FollowedTable:
    """The snapshots after the last applied one. id: the table's own. fields: ids of its columns, as pinned.

    An idle table costs one lookup of its newest metadata file's name.
    """

    def __init__(self, table: Table, id: str, fields: Mapping[str, int]) -> None:
        self._table, self._id = table, id
        self._fields = dict(fields)
        self._known: tuple[str, str, list[UpstreamEpoch]] | None = None

    def epochs(self, cursor: str) -> list[UpstreamEpoch]:
        """The snapshots after this cursor, oldest first; each advances the position, with or without data."""
        held = self._table.now()
        if self._known is None or self._known[:2] != (held.file, cursor):
            self._known = (held.file, cursor, list(self._made(held, self.after(held, cursor), cursor)))
        return self._known[2]

    def after(self, held: Held, cursor: str) -> "Sequence[Snapshot]":
        """The snapshots after this cursor, oldest first. Raises as contracts.ChangeLog.observe does."""
        if str(held.told.table_uuid) != self._id:
            raise Fatal(
                f"{self._table.place}: the table was replaced: its id is {held.told.table_uuid}, the job's is "
                f"{self._id}",
                START_OVER,
            )
        begun = snapshot_of(cursor)
        found: list[Snapshot] = []
        for one in held.ancestors(held.main):
            if one.snapshot_id == begun:
                return found[::-1]
            found.append(one)
        if begun == NOTHING and held.reaches_start(held.main):
            return found[::-1]
        if not held.reaches_start(held.main):
            raise self._table.expired(begun)
        raise Fatal(
            f"{self._table.place}: snapshot {begun}, which the job has applied, is no longer an ancestor of the "
            "newest one: the table was rolled back, or its branch replaced",
            "go back to it, if it still exists: "
            + self._table.place.in_spark(self._table.place.call("set_current_snapshot", f"snapshot_id => {begun}"))
            + "; else "
            + START_OVER,
        )

    def require_columns(self, held: Held) -> None:
        """The table's columns are those of its snapshots, as changes are read with the schema that it has now.

        ALTER TABLE creates no snapshot. Raises Fatal if a name now means a different column.
        """
        for name, kept in field_ids(held.told.schema()).items():
            if self._fields.get(name, kept) != kept:
                raise Fatal(
                    f"{self._table.place}: {name!r} is a different column now: the former one was dropped or "
                    "renamed, and changes from before that are not applied yet",
                    START_OVER,
                )

    def _made(self, held: Held, found: "Sequence[Snapshot]", cursor: str) -> "Iterator[UpstreamEpoch]":
        before = held.snapshot(snapshot_of(cursor))
        ms, told = (before.timestamp_ms if before is not None else 0), before
        order = cursor
        for one in found:
            self._require(held, one)
            if cursor_of(one) <= order:
                raise Fatal(
                    f"{self._table.place}: snapshot {one.snapshot_id} does not have a later sequence number than "
                    "the one before it: it was written in format version 1",
                    NEWEST,
                )
            ms, order = max(ms, one.timestamp_ms), cursor_of(one)
            yield UpstreamEpoch(
                ((self._table.spec.name, order),), ms, rows(one), size_bytes(one), self._changed(held, told, one)
            )
            told = one

    def _changed(self, held: Held, before: "Snapshot | None", one: "Snapshot") -> tuple[tuple[str, str], ...]:
        then, now = schema_of(held, before), schema_of(held, one)
        if then.schema_id == now.schema_id:
            return ()
        name = self._table.spec.name
        require_names(self._table, columns(name, now))
        old, new = (schema_text(columns(name, schema)) for schema in (then, now))
        return ((name, new),) if old != new else ()

    def _require(self, held: Held, one: "Snapshot") -> None:
        """Raises Fatal for a snapshot that cannot be followed, naming why."""
        if has_deletes(one):
            raise Fatal(
                f"{self._table.place}: snapshot {one.snapshot_id} has delete files (merge-on-read): its changes "
                "cannot be followed",
                copied_on_write(self._table.place) + "; then " + START_OVER,
            )
        for added in schema_of(held, one).fields:
            if added.name not in self._fields and added.initial_default is not None:
                raise Fatal(
                    f"{self._table.place}: column {added.name!r} was added with the default "
                    f"{str(added.initial_default)!r}, which rows from before that have too; the sink's rows would "
                    "have NULL, and those of a new job the default",
                    START_OVER,
                )
        for name, kept in field_ids(schema_of(held, one)).items():
            if self._fields.setdefault(name, kept) != kept:
                raise Fatal(
                    f"{self._table.place}: snapshot {one.snapshot_id} has a different column {name!r}: the former "
                    "one was dropped or renamed",
                    START_OVER,
                )


def rows(one: "Snapshot") -> int | None:
    """How many changes a snapshot has; None if only reading it shows, as whole files were rewritten."""
    operation = one.summary.operation.value if one.summary is not None else ""
    if operation == "replace":
        return 0
    if operation == "append":
        return counted(one, "added-records")
    if operation == "delete" and counted(one, "deleted-records") and not number(one, "added-records"):
        return counted(one, "deleted-records")
    return None


def size_bytes(one: "Snapshot") -> int:
    if one.summary is not None and one.summary.operation.value == "replace":
        return 0
    return number(one, "added-files-size") + number(one, "removed-files-size")
