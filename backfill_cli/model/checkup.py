"""What `backfill doctor` finds, as values: the engine creates them, the view shows them."""

from dataclasses import dataclass
from enum import StrEnum

from backfill_cli.errors import BackfillError


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    said: what was found, for display. fix: what to do or type next; empty if nothing has to be done.
    """

    name: str
    status: Status
    said: str
    fix: str = ""


def ok(name: str, said: str) -> Check:
    return Check(name, Status.OK, said)


def warning(name: str, said: str, fix: str = "") -> Check:
    return Check(name, Status.WARNING, said, fix)


def failed(name: str, said: str, fix: str) -> Check:
    return Check(name, Status.FAILED, said, fix)


def refused(name: str, error: BackfillError) -> Check:
    """An error as a failed check."""
    return failed(name, error.message, error.hint)
