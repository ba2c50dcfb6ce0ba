"""Checks the first lines of JSON files: a declared column that none of them has is probably misspelt."""

import difflib
from collections.abc import Sequence
from itertools import islice

from backfill_cli.errors import BadData
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.files.reading import lines

_FILES = 8
_LINES = 1_000
"""The lines per file and the files that are read: as a rule the first line shows all columns."""


def refuse_unseen(where: Place, files: Sequence[File], columns: Columns, sparse: Sequence[str]) -> None:
    """Raises BadData for a declared column that is in none of the lines read, unless it is `sparse`.

    Lines can omit NULLs, as Spark's do, and then do not show whether a column is misspelt or always NULL.
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
        hint = f"did you mean '{meant[0]}'? " if meant else ""
        raise BadData(
            f"{where.shown}: column '{name}' of upstream.snapshot.schema is in none of the {looked_at} lines read",
            f'{hint}If lines omit it when it is NULL: upstream.snapshot.sparse = ["{name}"]',
        )
