"""Which database, slot and tables a job belongs to: a different one under the same name stops the job."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backfill_cli.errors import START_OVER, BadData, StateConflict
from backfill_cli.upstreams.postgres.publications import Published
from backfill_cli.upstreams.postgres.slot import SlotState
from backfill_cli.upstreams.postgres.tables import KnownTable, PgTable
from backfill_cli.upstreams.postgres.types import SETTINGS


def of(seen: SlotState, slot: str, published: Published, tables: Sequence[PgTable | KnownTable]) -> str:
    """JSON: the cluster's own identifier, not its address; a table's oid, not its name; columns by number, type.

    The log lacks changes of a table that left the publication for a while, or whose publication omitted operations
    for a while, and of a column that was dropped and added again, or changed its type.
    """
    columns = {table.name: dict(table.kinds) for table in tables}
    oids = {table.name: table.oid for table in tables}
    found = {
        "system": str(seen.system),
        "timeline": seen.timeline,
        "published": dict(published.ways),
        "publication": published.written,
        "publication_oid": published.oid,
        "database": seen.database,
        "slot": slot,
        "tables": oids,
        "columns": columns,
        "lc_monetary": SETTINGS["lc_monetary"],
    }
    return json.dumps(found, sort_keys=True)


def pins_money(known: str) -> bool:
    """Whether all of the job's rows were read by our own lc_monetary; older jobs read them by the database's."""
    found: object = json.loads(known).get("lc_monetary")
    return found == SETTINGS["lc_monetary"]


def require_same_database(known: str, seen: SlotState) -> None:
    """Raises StateConflict if the connection string leads to another database."""
    before = json.loads(known)
    for what, found in (("system", str(seen.system)), ("database", seen.database)):
        if before[what] != found:
            raise StateConflict(
                f"upstream.dsn leads to another database: its {what} was {before[what]}, and is now {found}",
                "correct upstream.dsn, or " + START_OVER,
            )


def require_same_history(known: str, seen: SlotState) -> None:
    """As `require_same_database`, and its log continues the one that the job knows. Raises StateConflict."""
    require_same_database(known, seen)
    before = json.loads(known)["timeline"]
    if before and seen.timeline and before != seen.timeline:
        raise StateConflict(
            f"the database was restored or failed over: its timeline was {before}, and is now "
            f"{seen.timeline}; the sink may hold rows that this database never had",
            START_OVER,
        )


def require_not_replaced(known: str, found: str, called: Callable[[int], str | None]) -> None:
    """Raises StateConflict naming a table that is another one now.

    called: the present name of the table with this oid, None if there is none.
    """
    before, now = json.loads(known), json.loads(found)
    for name, oid in before["tables"].items():
        if now["tables"].get(name, oid) != oid:
            raise _replaced(name, oid, called(oid)).of(name)


def require_same_tables(known: str, found: str) -> None:
    """Raises StateConflict naming a table that left its publication, BadData naming a changed column."""
    before, now = json.loads(known), json.loads(found)
    _require_same_publication(before, now)
    for name, columns in before.get("columns", {}).items():
        for column, (number, kind) in columns.items():
            found_number, found_kind = now["columns"][name].get(column, (None, None))
            if found_number is None:
                raise _changed(name, column, "was dropped or renamed").of(name)
            if found_number != number:
                raise _changed(name, column, "was dropped and added again").of(name)
            if found_kind != kind:
                raise _changed(name, column, "has another type now").of(name)


def _replaced(name: str, oid: int, called: str | None) -> StateConflict:
    if called is not None:
        return StateConflict(
            f"{name!r} is another table now: the job's table (oid {oid}) was renamed to {called}",
            "rename them back, or " + START_OVER,
        )
    return StateConflict(
        f"table {name!r} was recreated (its oid, {oid}, is gone), by DROP and CREATE TABLE, or by restoring a "
        "dump: the sink holds rows of the earlier table",
        START_OVER,
    )


def _require_same_publication(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """The log has had all changes of the tables so far. Raises StateConflict saying since what it has not."""
    published = now["published"]
    lost = [name for name, was in before["published"].items() if was and not _lasts(was, published.get(name, ()))]
    was = before.get("publication_oid")
    if lost and now["publication_oid"] is None:
        raise StateConflict(
            "the job's publication is gone, dropped, or missing in a copy from which the database was restored: "
            "the log lacks changes of its tables",
            START_OVER,
        )
    if lost and was not in (None, now["publication_oid"]):
        raise StateConflict(
            "the job's publication was dropped and created again, as by restoring a dump: the log lacks changes "
            "of its tables",
            START_OVER,
        )
    if lost:
        raise StateConflict(
            f"table {lost[0]!r} left the publication{_with(before['published'][lost[0]])}, at least for a while: "
            "the log lacks changes of it",
            START_OVER,
        ).of(lost[0])
    if before.get("publication") is not None and before["publication"] != now["publication"]:
        raise StateConflict(
            "ALTER PUBLICATION was run on the job's publication: the log may lack changes of its tables",
            START_OVER,
        )


def _lasts(was: Any, now: Sequence[Sequence[str]]) -> bool:
    """Whether one of the ways into the publication has been there all the while. was: of older jobs, an oid."""
    if isinstance(was, int):
        return str(was) in {way[0] for way in now}
    return any(way in now for way in was)


def _with(ways: Any) -> str:
    """How a table was published that the publication did not name."""
    found = [] if isinstance(ways, int) else [what for _, what, *_ in (way for way in ways if len(way) > 1)]
    return f", which has it with {found[0]} only" if found else ""


def _changed(table: str, column: str, what: str) -> BadData:
    return BadData(
        f"table {table!r}: column {column!r} {what}: the log does not show what became of the old values",
        START_OVER,
    )
