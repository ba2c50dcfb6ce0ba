"""What the first lines of JSON files show: a column that none of them has is probably misspelt."""

import difflib
from collections.abc import Sequence
from itertools import islice

from backfill_cli.errors import BadData
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.files.reading import lines

_FILES = 8
_LINES = 1_000
"""So many lines of so many files are looked at: as a rule the first one shows all columns."""


def refuse_unseen(where: Place, files: Sequence[File], columns: Columns, sparse: Sequence[str]) -> None:
    """Raises BadData for a declared column that no line looked at shows, unless it is `sparse`.

    Lines may leave NULLs out, as Spark's do; whether a column is misspelt or always NULL they do not say.
    """
    missing = {name: None for name in columns if name not in sparse}
    shown: dict[str, None] = {}
    looked_at = 0
    for file in files[:_FILES]:
        for line in islice(lines.forward(where, file, "json"), _LINES):
            looked_at += 1
            for name in lines.parsed(file, line):
                missing.pop(name, None)
                shown.setdefault(name)
            if not missing:
                return
    if looked_at and missing:
        name = next(iter(missing))
        others = [other for other in shown if other not in columns]
        near = difflib.get_close_matches(name.lower(), {o.lower() for o in others}, 1, 0.6)
        meant = [other for other in others if other.lower() in near]
        hint = f"do you mean '{meant[0]}'? " if meant else ""
        raise BadData(
            f"{where.shown}: column '{name}' of upstream.snapshot.schema is in none of the {looked_at} lines "
            "looked at",
            f'{hint}If lines leave it out where it is NULL: upstream.snapshot.sparse = ["{name}"]',
        )
