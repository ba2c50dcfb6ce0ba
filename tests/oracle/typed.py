"""docs/types.md: what survives by which route, as the oracle measured it in this process.

`BACKFILL_ORACLE_WRITE=1 scripts/test tests/oracle` writes the page anew; without it a test fails where the page
differs from what was measured. Each half of the oracle has a part of the page between two comments.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from oracle.judge import Measured

PAGE = Path(__file__).parents[2] / "docs" / "types.md"

MEASURED: dict[tuple[str, str], Measured] = {}


def note(form: str, route: str, found: Measured) -> None:
    MEASURED[form, route] = found


def table(title: str, forms: Sequence[str]) -> str:
    """A table of the forms' routes and types, in the order in which types were met."""
    told = [(route, found) for (form, route), found in MEASURED.items() if form in forms]
    routes = list(dict.fromkeys(route for route, _ in told))
    kinds = sorted({kind for _, found in told for kind in (*found.exact, *found.refused)}, key=str.lower)
    lines = [f"## {title}", "", f"| type | {' | '.join(routes)} | refused |", "| --- " * (len(routes) + 2) + "|"]
    for kind in kinds:
        cells = [_cell([found for name, found in told if name == route], kind) for route in routes]
        reasons = sorted({_general(why) for _, found in told for why in found.reasons.get(kind, ())})
        lines.append(f"| {kind} | {' | '.join(cells)} | {'; '.join(reasons)} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def _cell(measured: Sequence[Measured], kind: str) -> str:
    if any(found.exact[kind] for found in measured):
        return "exact"
    return "refused" if any(found.refused[kind] for found in measured) else ""


def _general(why: str) -> str:
    """A reason without the value that it was given for."""
    return re.sub(r"'.*' is no", "a value that is no", re.sub(r": .*", "", why)).split("; ")[0].replace("|", "\\|")


def checked(part: str, tables: str) -> None:
    """The page's part is what was measured; it is written where BACKFILL_ORACLE_WRITE says so."""
    begin, end = f"<!-- {part}: begin -->\n", f"<!-- {part}: end -->"
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(begin)
    held, _, after = rest.partition(end)
    if os.environ.get("BACKFILL_ORACLE_WRITE"):
        PAGE.write_text(before + begin + tables + end + after, "utf-8")
        return
    assert held == tables, (
        "docs/types.md is not what was measured: BACKFILL_ORACLE_WRITE=1 scripts/test tests/oracle"
    )
