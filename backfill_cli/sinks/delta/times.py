"""Finds the version that a RESTORE by time restored, from the times of the commits in the table's log."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.delta.commits import commit, stamp
from backfill_cli.lake.delta.edge import Where
from backfill_cli.spark.failures import reading

EAST, WEST = timedelta(hours=14), timedelta(hours=12)
"""The largest offsets from UTC. Spark writes the time in its own time zone, without saying which."""


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
    from pyarrow.fs import FileSelector

    with reading(where.shown, "Delta log", FROM_COPY):
        files = where.place.fs.get_file_info(
            FileSelector(f"{where.place.folder}/_delta_log", allow_not_found=True)
        )
    there = sorted(int(one.base_name[:20]) for one in files if _is_commit(one.base_name))
    return [version for index, version in enumerate(there) if there[-1] - version == len(there) - 1 - index]


def _is_commit(name: str) -> bool:
    return len(name) == 25 and name.endswith(".json") and name[:20].isdigit()
