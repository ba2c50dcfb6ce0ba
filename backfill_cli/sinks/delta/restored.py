"""Detects a Delta table that RESTORE took back: it keeps the transaction number but not the rows written with it.

The table lacks the rows of the versions that a RESTORE skipped. What it has is found by walking back from the
newest version, and from each RESTORE to the version that it restored: all epochs of the job must be on this path.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from backfill_cli.errors import START_OVER, StateConflict
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.delta.commits import Stamp, commit, listed, stamp
from backfill_cli.lake.delta.edge import Where
from backfill_cli.sinks.delta.marks import MarkedTable, epoch_of
from backfill_cli.spark.failures import reading

_ASKED = (b'"txn"', b'"commitInfo"')
EAST, WEST = timedelta(hours=14), timedelta(hours=12)
"""The largest offsets from UTC. Spark writes the time in its own time zone, without saying which."""
_Told = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """A version that holds the rows of all epochs up to this one. stamp: None if nobody can replace its file."""

    version: int
    epoch: int
    stamp: Stamp | None = None


class Kept:
    """What this process has already checked in each table, so that it reads only newer versions."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def require(self, table: MarkedTable, version: int, epoch: int) -> None:
        """At this version the table holds the rows of all epochs up to this one, the newest in the log.

        Raises StateConflict if a RESTORE removed some, or the log no longer shows whether one did. Reads back to
        the version checked last, or else to the previous epoch, which was checked before the newest was written;
        so if a RESTORE came while the newest was being written and its runner died, the next runner finds it.
        """
        seen = self._seen.get(table.app)
        if seen is not None and seen.stamp is not None:
            _require_same(table, seen)
        if epoch:
            _Back(table, seen).require(version, epoch)
        now = None if table.where.local else stamp(table.where, version)
        self._seen[table.app] = Seen(version, epoch, now)


def _require_same(table: MarkedTable, seen: Seen) -> None:
    """Raises StateConflict if the log's file of a version is no longer the one that was read.

    On an object store Spark writes such a file in two steps: a runner that was taken over, stopped between them,
    can replace a commit of ours.
    """
    now = stamp(table.where, seen.version)
    if now is not None and now != seen.stamp:
        raise StateConflict(
            f"{table.where.shown}: another process replaced version {seen.version} of its log after job "
            f"{table.job!r} had read it: its rows may be there twice, or not at all",
            "stop what else writes to the table, then " + START_OVER,
        )


class _Back:
    """One walk back through a table's log."""

    def __init__(self, table: MarkedTable, seen: Seen | None) -> None:
        self._table, self._where, self._seen = table, table.where, seen

    def require(self, version: int, newest: int) -> None:
        at, needed, restored, met = version, newest, False, False
        while at >= 0:
            if self._seen is not None and at == self._seen.version:
                if self._seen.epoch < needed:
                    raise self._gone("its rows are gone")
                return
            told = self._told(at)
            if told is None:
                if restored and needed:
                    raise self._gone("its rows may be gone, as that part of the log no longer exists")
                return
            epochs = self._epochs(told)
            if epochs:
                if max(epochs) < needed:
                    raise self._gone("its rows are gone")
                if met and max(epochs) < newest:
                    return
                met, needed = True, 0
            back = _restore(told)
            if back is None:
                at -= 1
                continue
            restored, found = True, _target(self._where, back, at)
            if found is None:
                raise self._gone("its rows may be gone, as the log does not show to which version")
            needed = max(needed, self._skipped(found, at))
            at = found
        if needed:
            raise self._gone("its rows are gone")

    def _skipped(self, target: int, restore: int) -> int:
        """The newest epoch among the versions that a RESTORE skipped; 0 if there is none."""
        for at in range(restore - 1, target, -1):
            told = self._told(at)
            if told is None:
                raise self._gone("its rows may be gone, as that part of the log no longer exists")
            if epochs := self._epochs(told):
                return max(epochs)
        return 0

    def _epochs(self, told: _Told) -> list[int]:
        return [epoch_of(one["version"]) for one in _of(told, "txn") if one.get("appId") == self._table.app]

    def _told(self, version: int) -> _Told | None:
        """A commit's actions other than files; None if the log no longer has the commit."""
        with reading(self._where.log_file(version), "Delta log", FROM_COPY):
            try:
                lines = self._where.read_log(version).splitlines()
            except FileNotFoundError:
                return None
            return [json.loads(line) for line in lines if any(name in line[:20] for name in _ASKED)]

    def _gone(self, what: str) -> StateConflict:
        job = self._table.job
        return StateConflict(
            f"{self._where.shown} was set back by RESTORE to before a commit of job {job!r}: {what}, but the "
            "table's log still says that they were written",
            "RESTORE it by the number of a version that has all rows, if there is one; or " + START_OVER,
        )


def _restore(told: _Told) -> Mapping[str, Any] | None:
    return next((one for one in _of(told, "commitInfo") if one.get("operation") == "RESTORE"), None)


def _target(where: Where, restore: Mapping[str, Any], at: int) -> int | None:
    """The version restored by a RESTORE that is itself version `at`; None if that is unknown."""
    parameters = restore.get("operationParameters") or {}
    told = str(parameters.get("version"))
    found = int(told) if told.isdecimal() else version_at(where, parameters)
    return found if found is not None and found < at else None


def _of(told: _Told, action: str) -> list[Mapping[str, Any]]:
    return [one[action] for one in told if action in one]


def version_at(where: Where, told: Mapping[str, Any]) -> int | None:
    """The version for the time in a RESTORE's parameters; None if time zones or clocks make it ambiguous."""
    between = _instants(told)
    if between is None:
        return None
    first, last = (_newest_until(where, one) for one in between)
    return first if first == last else None


def _instants(told: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and the last millisecond that the parameters can mean."""
    number, text = str(told.get("datetime")), told.get("timestamp")
    if number.isdecimal():  # delta-rs
        return int(number), int(number)
    try:
        at = datetime.fromisoformat(str(text))
        if at.tzinfo is not None:
            return _ms(at), _ms(at)
        return _ms(at.replace(tzinfo=UTC) - EAST), _ms(at.replace(tzinfo=UTC) + WEST)
    except (ValueError, OverflowError):
        return None


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _newest_until(where: Where, ms: int) -> int | None:
    """The version before the first one whose commit or log file is from after this time; None if there is none.

    If the two times of a version disagree the later counts, which errs towards an older version.
    """
    found = None
    for version in _versions(where):
        said, file = commit(where, version), stamp(where, version)
        if said is None or file is None or max(said.ms, file.mtime_ns // 1_000_000) > ms:
            break
        found = version
    return found


def _versions(where: Where) -> list[int]:
    """The versions that the log has without a gap up to the newest, oldest first."""
    with reading(where.shown, "Delta log", FROM_COPY):
        there = sorted(listed(where).commits)
    return [version for index, version in enumerate(there) if there[-1] - version == len(there) - 1 - index]
