"""What is wrong with a Delta table over which Spark failed: its log and its data files tell."""

from collections.abc import Callable, Sequence

from backfill_cli.errors import BackfillError, Fatal
from backfill_cli.lake.damage import FROM_COPY, Stored, cut, lost, unreadable
from backfill_cli.lake.delta import damage
from backfill_cli.lake.delta.edge import Where


def missing(where: Where, path: str) -> BackfillError:
    return Fatal(f"{where.shown}: {path} is missing", FROM_COPY)


def faulty(
    where: Where,
    files: Callable[[], Sequence[Stored]],
    gone: Callable[[Where, str], BackfillError] = missing,
) -> BackfillError | None:
    """What is wrong with the table's log, or with one of these data files; None if nothing is.

    gone: the error for one that does not exist.
    """
    try:
        if (fault := damage.found(where, None)) is not None:
            return fault
        known = files()
    except BackfillError as fault:
        return fault
    if (path := lost(where.place.fs, known)) is not None:
        return gone(where, path)
    return cut(where.place.fs, known) or unreadable(where.place.fs, known)
