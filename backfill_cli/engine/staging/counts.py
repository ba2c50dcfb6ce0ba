"""How many rows reads have: as the source's metadata says, and as they were read.

Nothing else would notice a source that loses rows: an epoch's counts are those of what was staged.
"""

from collections.abc import Sequence

from backfill_cli.errors import Fatal
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.units import spell_count

NAMED = 5
"""This many splits are named."""


def require_rows(reads: Sequence[SnapshotRead], stated: Sequence[int | None], found: int) -> None:
    """These reads together gave the rows that metadata states. Raises Fatal.

    stated: of each read, see `SnapshotReads.row_count`; None of any: nothing is known. found: how many were read.
    """
    known = [rows for rows in stated if rows is not None]
    if len(known) < len(stated) or sum(known) == found:
        return
    splits = list(dict.fromkeys(read.split for read in reads))
    named = ", ".join(map(repr, splits[:NAMED])) + (f" and {len(splits) - NAMED} more" if splits[NAMED:] else "")
    raise Fatal(
        f"table {reads[0].table!r}: metadata states {spell_count(sum(known), 'row')} in {named}, but "
        f"{found:,} were read",
        "correct the upstream's plug-in: its batches, scan and row_count contradict each other",
    )
