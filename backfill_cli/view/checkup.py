"""What `doctor` finds: a line per check, printed as it is made, with its fix; or one JSON document."""

import sys
from collections.abc import Iterable
from dataclasses import asdict

from backfill_cli.model.checkup import Check, Status
from backfill_cli.view.console import RED, RESET, answer, answer_json, coloured, say, told_hint, wrapped
from backfill_cli.view.model import SCHEMA

GREEN, YELLOW = "\x1b[32m", "\x1b[33m"
COLOURS = {Status.OK: GREEN, Status.WARNING: YELLOW, Status.FAILED: RED}
NAMES = 16
"""As wide as the longest name of our own checks."""


def show_checks(checks: Iterable[Check], as_json: bool) -> bool:
    """Print the checks to stdout. Returns whether none failed."""
    found = []
    for check in checks:
        found.append(check)
        if not as_json:
            _show(check)
    well = all(check.status is not Status.FAILED for check in found)
    if as_json:
        answer_json({"schema": SCHEMA, "ok": well, "checks": [asdict(check) for check in found]})
        return well
    counts = {status: sum(check.status is status for check in found) for status in Status}
    say(", ".join(f"{count} {status}" for status, count in counts.items() if count))
    return well


def _show(check: Check) -> None:
    """The first word in its colour; the rest may hold names from outside, and is printed as text."""
    status = check.status.value.ljust(8)
    lead = f"{COLOURS[check.status]}{status}{RESET}" if coloured(sys.stdout) else status
    print(lead, end="")
    answer(check_text(check))


def check_text(check: Check) -> str:
    """What follows the status: the name and the finding, with the fix below, as in an error."""
    said = check.said.replace("\n", "\n  ")
    status = check.status.value.ljust(8)
    line = wrapped(f"{status}{check.name:<{NAMES}}{said}", len(status) + NAMES).removeprefix(status)
    return f"{line}\n        Try: {told_hint(check.fix, sys.stdout, len(status))}" if check.fix else line
