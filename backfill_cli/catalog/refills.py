"""Refills in the catalog: asked for by a command, taken at a barrier, done when their last epoch is marked."""

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from backfill_cli.catalog import jobs
from backfill_cli.catalog.store import Store
from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.errors import UsageError, command
from backfill_cli.model.aside import Aside
from backfill_cli.model.change import Change
from backfill_cli.model.job import Command, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.refill import PENDING, Extent, Refill, RefillPart, RefillState

if TYPE_CHECKING:
    from backfill_cli.contracts import JobDefinition

KEPT = 1_000

_SELECT = """SELECT id, table_name, condition, first_key, last_key, "by", asked_ms, state, since, began_ms,
    ended_ms, epoch, inserted, replaced, removed, reason, why FROM refills"""

_NUMBERS = ("since", "began_ms", "ended_ms", "epoch", "inserted", "replaced", "removed")

_PENDING = f"state IN ({', '.join(repr(state.value) for state in PENDING)})"


def record(
    db: DuckDBPyConnection,
    job: str,
    table: str,
    extent: Extent,
    by: str,
    now_ms: int,
    since: int | None = None,
) -> int:
    """The refill is asked for. Returns its id. since: the barrier that takes it; None if one has yet to."""
    found = db.execute("SELECT coalesce(max(id), 0) + 1 FROM refills").fetchone()
    assert found is not None
    told = [extent.where or None, extent.first, extent.last, by, now_ms, RefillState.WAITING, since]
    db.execute(
        "INSERT INTO refills VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, 0, 0, 0, NULL, NULL)",
        [found[0], job, table, *told],
    )
    db.execute(
        f"""DELETE FROM refills WHERE job = $job AND NOT {_PENDING} AND id <=
           (SELECT id FROM refills WHERE job = $job ORDER BY id DESC LIMIT 1 OFFSET $kept)""",
        {"job": job, "kept": KEPT},
    )
    return int(found[0])


def pending(db: DuckDBPyConnection, job: str) -> tuple[Refill, ...]:
    """Those that are not done, failed or cancelled, oldest first."""
    return _read(db, f"job = ? AND {_PENDING}", [job])


def newest(db: DuckDBPyConnection, job: str, last: int) -> tuple[Refill, ...]:
    """The newest `last` of a job, and all that are pending, oldest first."""
    of_these = "id IN (SELECT id FROM refills WHERE job = $job ORDER BY id DESC LIMIT $last)"
    return _read(db, f"job = $job AND ({_PENDING} OR {of_these})", {"job": job, "last": last})


def require_none(db: DuckDBPyConnection, job: str, table: str) -> None:
    """Raises UsageError while a refill of the table is pending."""
    for one in pending(db, job):
        if one.table == table:
            raise UsageError(
                f"job {job!r}: a refill of table {table!r} is pending: {one}, {one.state}, by {one.by}",
                "to see it: "
                + command(f"status {job}")
                + "; to end it: "
                + command(f"refill {job} --table {quote(table)} --cancel"),
            )


def of(db: DuckDBPyConnection, job: str, refill: int) -> Refill | None:
    found = _read(db, "job = ? AND id = ?", [job, refill])
    return found[0] if found else None


def take(db: DuckDBPyConnection, job: str, commands: Sequence[Command], epoch: int, now_ms: int) -> None:
    """What these commands ask of refills is in force from the barrier `epoch` on."""
    for one in commands:
        if one.verb is Verb.REFILL:
            _since(db, job, int(one.payload), epoch)
        elif one.verb is Verb.PUT_BACK:
            _since(db, job, Change.read(one.payload).refill or 0, epoch)
        elif one.verb is Verb.CANCEL_REFILL and (found := of(db, job, int(one.payload))) is not None:
            why = Limit(f"cancelled by {one.by}")
            note(db, job, found.given_up(job, RefillState.CANCELLED, now_ms, why))
    if any(one.verb is Verb.REFILL for one in commands):  # asked for as the table left
        known = jobs.definition(db, job)
        leave(db, job, [*(one.name for one in known.tables), *(one.table for one in known.aside)], now_ms)


def _since(db: DuckDBPyConnection, job: str, refill: int, epoch: int) -> None:
    db.execute("UPDATE refills SET since = ? WHERE job = ? AND id = ?", [epoch, job, refill])


def leave(db: DuckDBPyConnection, job: str, tables: Sequence[str], now_ms: int) -> None:
    """No refill is pending but of these tables, which are the job's."""
    db.execute(
        f"""UPDATE refills SET state = ?, ended_ms = ?, reason = ?, why = NULL
            WHERE job = ? AND {_PENDING} AND NOT list_contains(?, table_name)""",
        [RefillState.CANCELLED, now_ms, "the table left the job", job, list(tables)],
    )


def fail(db: DuckDBPyConnection, job: str, tables: Sequence[str], aside: Sequence[Aside], now_ms: int) -> None:
    """A refill that is pending of none of these tables has failed, as its table was set aside."""
    causes = {one.table: one.cause for one in aside}
    for one in pending(db, job):
        if one.table not in tables and one.table in causes:
            ended = replace(one, state=RefillState.FAILED, ended_ms=now_ms, why=causes[one.table])
            note(db, job, ended)


def note(db: DuckDBPyConnection, job: str, refill: Refill) -> None:
    """State, times and reason are those of `refill`, unless it has ended meanwhile."""
    reason, why = refill.why.columns
    db.execute(
        f"""UPDATE refills SET state = ?, began_ms = ?, ended_ms = ?, reason = ?, why = ?
            WHERE job = ? AND id = ? AND {_PENDING}""",
        [refill.state, refill.began_ms, refill.ended_ms, reason or None, why, job, refill.id],
    )
    if refill.state is RefillState.DONE:
        _put_back(db, job, refill.id)


def refused(db: DuckDBPyConnection, job: str, command: Command, why: Limit, now_ms: int) -> None:
    """The refill of a table that could not be put back has failed."""
    if command.verb is not Verb.PUT_BACK:
        return
    found = of(db, job, Change.read(command.payload).refill or 0)
    if found is not None:
        note(db, job, replace(found, state=RefillState.FAILED, ended_ms=now_ms, why=why))


def ask_again(db: DuckDBPyConnection, definition: "JobDefinition", since: int, now_ms: int) -> None:
    """The tables that were being put back, in a catalog that is lost, are refilled from the beginning."""
    job, again = definition.name, []
    for one in definition.aside:
        if one.refill is not None:
            number = record(db, job, one.table, Extent(), "resume --from-sink", now_ms, since)
            one = replace(one, refill=number)
        again.append(one)
    jobs.set_aside(db, job, again)


def _put_back(db: DuckDBPyConnection, job: str, refill: int) -> None:
    """The table that this refill was to put back is like any other."""
    known = jobs.aside(db, job)
    if any(one.refill == refill for one in known):
        jobs.set_aside(db, job, [one for one in known if one.refill != refill])


def applied(db: DuckDBPyConnection, job: str, part: RefillPart, epoch: int, now_ms: int) -> None:
    """The sink has this part of the refill: it is done, if that was the last one, even if it was cancelled."""
    db.execute(
        """UPDATE refills SET inserted = inserted + ?, replaced = replaced + ?, removed = removed + ?, epoch = ?
           WHERE job = ? AND id = ?""",
        [part.inserted, part.replaced, part.removed, epoch, job, part.refill],
    )
    if part.last:
        _put_back(db, job, part.refill)
        db.execute(
            "UPDATE refills SET state = ?, ended_ms = ?, reason = NULL, why = NULL WHERE job = ? AND id = ?",
            [RefillState.DONE, now_ms, job, part.refill],
        )


def _read(db: DuckDBPyConnection, where: str, names: Any) -> tuple[Refill, ...]:
    found = db.execute(f"{_SELECT} WHERE {where} ORDER BY id", names).fetchall()
    return tuple(_refill(*row) for row in found)


def _refill(number: int, table: str, where: str | None, *told: Any) -> Refill:
    first, last, by, asked_ms, state, *numbers, reason, why = told
    asked = Refill(number, table, Extent(where or "", first, last), by, asked_ms, RefillState(state))
    return replace(asked, **dict(zip(_NUMBERS, numbers, strict=True)), why=Limit.stored(reason or "", why))


class Refills:
    """The refills of one catalog's jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def pending(self, job: str) -> tuple[Refill, ...]:
        """Those that are not done, failed or cancelled, oldest first."""
        with self._store.reading() as db:
            return pending(db, job)

    def of(self, job: str, refill: int) -> Refill | None:
        with self._store.reading() as db:
            return of(db, job, refill)
