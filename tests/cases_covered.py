"""Writes tests/CASES_COVERED.md: each known failure of other systems, and the tests here that carry its number.

python tests/cases_covered.py
"""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS / "CASES_COVERED.md"

CUTOVER = "Cannot occur here: there is no cutover yet."

CASES: dict[int, tuple[str, str]] = {
    1: ("A delete sits in a buffer, the position passes it, crash: the row lives for ever", ""),
    2: ("Changes to the copied prefix that arrive during recovery are dropped", ""),
    3: ("A finished split is reset behind an unfinished one", ""),
    4: ("A key change across the position, both ways", ""),
    5: ("Delete and insert again in one epoch", ""),
    6: ("Several updates in one transaction with equal timestamps", ""),
    7: ("Insert and partial update in one batch lose unchanged large values", ""),
    8: ("An unchanged large value becomes NULL", ""),
    9: ("Text keys: the database's order against the tool's", ""),
    10: ("Key columns in another order in split and scan", ""),
    11: ("The chunk's key is not the primary key and is updated between chunks", ""),
    12: ("Binary primary key, unique without regard to case", ""),
    13: ("A second unique key on the target", ""),
    14: ("Log position read before the slot exists", ""),
    15: ("A transaction's begin has the position of its first change", ""),
    16: ("The slot is acknowledged before the commit is known", ""),
    17: ("The slot is lost and silently made anew", ""),
    18: ("The replica is behind its primary at cutover", CUTOVER),
    19: ("Killed before the first event, or inside a batch", ""),
    20: ("A half-applied transaction is replayed", ""),
    21: ("Rows lost where snapshot and log meet", ""),
    22: ("A rollback to a savepoint in a streamed transaction", ""),
    23: ("A truncate in the middle of a run", ""),
    24: ("A row with an older time commits after the read; a cursor is rounded up", ""),
    25: ("Values that change on their way: infinities, old dates, -0, NULL, '' and 'null'", ""),
    26: ("A column is added, renamed, or dropped and added again", ""),
    27: ("A partition ends in a control record", ""),
    28: ("Gaps by compaction, aborted tails", ""),
    29: ("Idle and empty partitions", ""),
    30: ("A partition is added while reading from the latest", ""),
    31: ("Retention passes the position", ""),
    32: ("A topic is made anew; the high watermark goes back", ""),
    33: ("NULL key, tombstone, one key in several partitions", ""),
    34: ("Files of the pinned snapshot are cleaned away", ""),
    35: ("A restart scans all again, or skips the gap", ""),
    36: ("Target or catalog restored to an older point", ""),
    37: ("Two commits with one token; commit done, reply lost", ""),
    38: ("A failed checkpoint merges two epochs, deletes are lost", ""),
    39: ("The marker is compared by = instead of <=", ""),
    40: ("Two runners, one job", ""),
    41: ("The JVM outlives its Python", ""),
    42: ("A hole in the checkpoint's or the log's files", ""),
    43: ("The disk is full", ""),
    44: ("The write-ahead log does not replay after a crash with DDL", ""),
    45: ("Pause or limit misses a phase, or is lost", ""),
    46: ("A late file below the cursor; a half-written file", ""),
    47: ("A stranger writes to the target; a verifier's false alarm", ""),
    48: ("Names as data: markup and control bytes", ""),
}


def existing() -> dict[int, list[str]]:
    """number → names of the tests that carry it, sorted."""
    found: dict[int, set[str]] = {}
    for path in TESTS.rglob("*.py"):
        for name, number in re.findall(r"^ *def (test_case_(\d\d)_\w+)", path.read_text("utf-8"), re.MULTILINE):
            found.setdefault(int(number), set()).add(name)
    return {number: sorted(names) for number, names in found.items()}


def page() -> str:
    """The page as it should be: tests first, a reason only where there is none."""
    tests = existing()
    lines = [
        "# Known failures of other systems, and the tests that guard against them here",
        "",
        "Each was reported against, or measured on, a real system. Written by `python tests/cases_covered.py`.",
        "",
        "| case | what went wrong elsewhere | tests here |",
        "| --- | --- | --- |",
    ]
    for number, (title, reason) in CASES.items():
        names = "<br>".join(f"`{name}`" for name in tests.get(number, ()))
        lines.append(f"| {number} | {title} | {names or reason} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
