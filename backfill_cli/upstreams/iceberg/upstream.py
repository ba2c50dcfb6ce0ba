"""Iceberg tables as a source: the tags that keep their snapshots, and what a failure over them means."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from backfill_cli.contracts import Lease, TableSpec
from backfill_cli.errors import START_OVER, BackfillError, StateConflict
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.iceberg.edge import run
from backfill_cli.lake.iceberg.places import settings_of
from backfill_cli.lake.upstream import LakeUpstream
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.spark.beside import session_beside
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.iceberg import IcebergOptions
from backfill_cli.upstreams.iceberg.log import IcebergSourceTable
from backfill_cli.upstreams.iceberg.table import NOTHING

_EXPIRED = ("is not a parent ancestor", "Cannot find snapshot", "Cannot find the end snapshot")


class IcebergUpstream(LakeUpstream[IcebergSourceTable], Lease):
    """See contracts.Source and Lease: a tag on each table keeps the pinned snapshot from expiring."""

    kind = "iceberg"
    keeps = (
        "the pinned snapshot until it is read (the job's tag keeps it from expiring), the snapshots after it "
        "until they are applied (expire_snapshots removes old ones)"
    )

    def __init__(self, options: IcebergOptions, tables: Sequence[TableSpec]) -> None:
        self._tagged = options.tag
        settings = settings_of(lambda: self._session())
        super().__init__((IcebergSourceTable(one, options.table, settings) for one in tables), options.version)
        self.lease = self

    def failure(self, exc: Exception) -> BackfillError | None:
        """Our error for a failure over these tables: a snapshot has expired, or a file is damaged, or gone."""
        text = str(exc)
        gone = next((one for one in self.tables.values() if one.tells_gone(text)), None)
        if gone is not None:
            return gone.expired(gone.snapshot)
        tables = list(self.tables.values())

        def fault(content: bool) -> BackfillError | None:
            found = (one.fault([one.snapshot], False, content) for one in tables)
            return next(filter(None, found), None)

        def log_fault(content: bool) -> BackfillError | None:
            found = (one.fault(_reached(one), True, content) for one in tables if one.asked)
            return next(filter(None, found), None)

        known = fault(content=False) or from_spark(exc, FROM_COPY) or fault(content=True)
        return known or expired_in(text, tables) or log_fault(content=False) or log_fault(content=True)

    # The tag that keeps the snapshot

    def preview(self) -> Sequence[str]:
        return [
            f"a tag on {one.place} keeps snapshot {one.pinned_snapshot} from expiring until it is read"
            for one in self.tables.values()
            if self._tagged and one.pinned_snapshot is not None
        ]

    def create(self, mark: str) -> None:
        for one in self.tables.values():
            if self._tagged and one.pinned_snapshot is not None and one.tag is None:
                if _tag(mark) not in one.now().refs:  # unless a try whose answer was lost created it
                    self._alter(one, f"CREATE TAG {_tag(mark)} AS OF VERSION {one.pinned_snapshot}")
                one.tag = _tag(mark)

    def clean_up(self, mark: str, pin: Pin) -> None:
        for one in self.tables.values():
            self._drop(one, _tag(mark))

    def join(self, mark: str) -> None:
        for one in self.tables.values():
            self._drop(one, _tag(mark))  # of a run that was killed: it keeps an older snapshot
        self.create(mark)

    def give_up(self, table: str, mark: str) -> None:
        self._drop(self.tables[table], _tag(mark))

    def leave(self, table: str, pin: Pin) -> None:
        with suppress(StateConflict):  # a table that was replaced has no tag of ours
            self.release(pin.only(table))

    def leftovers(self, mark: str) -> Sequence[str]:
        tables = self.tables.values()
        return [f"tag {_tag(mark)} on {one.place}" for one in tables if _tag(mark) in one.now().refs]

    def enforce_limit(self, position: Position, snapshot_open: bool) -> None:
        """The tag of a table whose changes are being applied is dropped: its snapshot has been read.

        Changes that are only taken meanwhile, into a spool, leave the tag where it is.
        """
        if snapshot_open:
            return
        for name, tag in _tags(self._pin).items():
            if tag is not None and position.get(name) != self._pin.position.get(name):
                self._drop(self.tables[name], tag)

    def release(self, pin: Pin) -> None:
        for one, tag in self._held_by(pin):
            self._drop(one, tag)

    def require_releasable(self, pin: Pin) -> None:
        for _ in self._held_by(pin):
            pass

    def _held_by(self, pin: Pin) -> Iterator[tuple[IcebergSourceTable, str]]:
        """The tables with the tag that the job has on each; one that is gone has none. Raises StateConflict."""
        for name, told in json.loads(pin.identity).get("iceberg", {}).items():
            one = self.tables[name]
            held = one.if_there()
            if held is None or told["tag"] is None:
                continue
            if str(held.told.table_uuid) != told["id"]:
                raise StateConflict(
                    f"{one.place}: the table was replaced: its id is {held.told.table_uuid}", START_OVER
                )
            yield one, told["tag"]

    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        tags = _tags(pin) if mark is None else dict.fromkeys(self.tables, _tag(mark))
        places = {name: self.tables[name].place for name in tags}
        return [
            str(places[name].in_spark(places[name].alter(f"DROP TAG IF EXISTS {tag}")))
            for name, tag in tags.items()
            if tag is not None
        ]

    def _drop(self, one: IcebergSourceTable, tag: str) -> None:
        """The tag does not exist. Whether it did is read from metadata, without Spark."""
        if tag in one.now().refs:
            self._alter(one, f"DROP TAG IF EXISTS {tag}")

    def _alter(self, one: IcebergSourceTable, what: str) -> None:
        run(session_beside(self._session()), one.place, f"ALTER TABLE {one.place.sql} {what}")


def expired_in(text: str, tables: Sequence[IcebergSourceTable]) -> BackfillError | None:
    """The error for a failure that names a snapshot which one of these tables asked for. None: nothing of that."""
    if any(mark in text for mark in _EXPIRED):
        for number in map(int, re.findall(r"[0-9]+", text)):
            for table in tables:
                if number in table.asked:
                    return table.expired(number)
    return None


def _reached(table: IcebergSourceTable) -> list[int]:
    """The snapshots after the oldest that Spark had to read lately; none if the table was taken back since."""
    held, found = table.now(), list[int]()
    for one in held.ancestors(held.main):
        if one.snapshot_id == table.asked[0]:
            return found
        found.append(one.snapshot_id)
    return found if table.asked[0] == NOTHING else []


def _tag(mark: str) -> str:
    return f"backfill_pin_{mark}"


def _tags(pin: Pin) -> Mapping[str, str | None]:
    return {name: told["tag"] for name, told in json.loads(pin.identity)["iceberg"].items()}
