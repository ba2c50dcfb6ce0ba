"""A Delta table that was taken back: RESTORE keeps a transaction's number, and not the rows that came with it."""

import json
from collections.abc import Mapping
from typing import Any

from backfill_cli.errors import StateConflict
from backfill_cli.formats.delta.edge import Where
from backfill_cli.spark.failures import reading

_ASKED = (b'"txn"', b'"commitInfo"')


def refuse_restored(job: str, where: Where, app: str, version: int, number: int) -> None:
    """The rows that came with the application's newest number are in the table at this version.

    Raises StateConflict where a RESTORE went back before them; nothing where the log has these versions no longer.
    Costs the commits since the application's own, one small file each.
    """
    at: int | None = version
    while at is not None and at >= 0:
        told = _told(where, at)
        if told is None:
            return
        numbers = [one["version"] for one in _of(told, "txn") if one.get("appId") == app]
        if numbers and max(numbers) >= number:
            return
        back = next((one for one in _of(told, "commitInfo") if one.get("operation") == "RESTORE"), None)
        if numbers or (back is not None and (found := _target(back)) is None):
            break  # a transaction before the newest; or back to nobody knows where
        at = at - 1 if back is None else found
    raise StateConflict(
        f"{where.shown} was taken back by RESTORE to before the newest epoch of job {job!r}: its rows are gone, "
        "and the table's log says still that they were written",
        "RESTORE it by the number of a version that has them; or start over: backfill drop "
        f"{job} --with-rows --confirm {job}",
    )


def _target(restore: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE went back to; None where it was told a time."""
    told = str((restore.get("operationParameters") or {}).get("version"))
    return int(told) if told.isdecimal() else None


def _told(where: Where, version: int) -> "list[Mapping[str, Any]] | None":
    """What a commit says beside its files; None where the log has it no longer."""
    with reading(where.shown, "Delta log"):
        try:
            with where.place.fs.open_input_stream(where.log_file(version)) as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return None
        return [json.loads(line) for line in lines if any(name in line[:20] for name in _ASKED)]


def _of(told: "list[Mapping[str, Any]]", action: str) -> list[Mapping[str, Any]]:
    return [one[action] for one in told if action in one]
