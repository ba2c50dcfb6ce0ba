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
    49: ("A driver stores numeric 10000.5 as 15000, and lists of a sliced batch wrongly", ""),
    50: ("JSON's null is SQL's NULL in the snapshot only", ""),
    51: ("Arrays with other bounds are refused, arrays of two dimensions are flattened", ""),
    52: ("A delete by a key of an enum, or of a domain over it, fails the batch", ""),
    53: ("One name of an enum in two schemas: NULL", ""),
    54: ("Ranges, intervals, money: texts by settings that change between snapshot and log", ""),
    55: ("Debezium's structured times", ""),
    56: ("Debezium's VariableScaleDecimal is read as NULL", ""),
    57: ("Times before 1970 are rounded toward zero", ""),
    58: ("A number beyond 64 bits in a member that nobody reads drops the record", ""),
    59: ("Empty bytes become one NUL byte", ""),
    60: ("Ranges of keys overflow at the ends of int64; fewer rows than splits", ""),
    61: ("A second table is taken for done because its split has the same id", ""),
    62: ("Text keys outside ASCII: one giant split, or thousands", ""),
    63: ("`_` in a table's name is a wildcard", ""),
    64: ("Events are told apart by the table's name without its schema", ""),
    65: ("Tables that swap names; a dropped one is replaced by a renamed one", ""),
    66: ("Changes after a transactional logical message are lost on restart", ""),
    67: ("Rows of one COPY share a position: a restart skips the rest", ""),
    68: ("A later transaction is acknowledged while an earlier one is open; crash", ""),
    69: ("A replay of an older description of a table takes a column away again", ""),
    70: ("A timeout kills each chunk, for ever; an hour of verifying is lost", ""),
    71: ("An update of the partition's value leaves the old row", ""),
    72: ("Partition values with blanks, %, /, =, '' and NULL", ""),
    73: ("A missing version of a log goes unnoticed", ""),
    74: ("`latest` is resolved after the start: a record between is skipped", ""),
    75: ("A repaired key that comes back is dropped as a no-op", ""),
    76: ("Two rows of a key under a rename or exchange inside one transaction", ""),
    77: ("Concatenated gzip and zstd members are read as the first alone", ""),
    78: ("A filter, and a change without its old row: half accepted", ""),
    79: ("50,000 deletes by a composite key in one commit", ""),
    80: ("Two jobs create the same side tables at once", ""),
    81: ("File names 999 and then 1000", ""),
    82: ("A derived sum stays 0 after the last value of its group has gone", ""),
    83: ("A derived group that was emptied never comes back", ""),
    84: ("A row that is both old and new in one batch stands twice in a derived table", ""),
    85: ("A derived aggregate without GROUP BY loses its row with the last of what it reads", ""),
    86: ("A derived sum of floats keeps the rounding of what has gone", ""),
    87: ("A derived table is filled without a transaction that began before", ""),
    88: ("An update split across the position is half of it in a derived table", ""),
    89: ("NULL as a derived table's key: rows that no change finds", ""),
    90: ("A derived row stays where its group or partition was before", ""),
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
