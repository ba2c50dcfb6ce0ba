"""Opens Delta tables at a version, and maps the Delta library's errors to ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.errors import BackfillError, Fatal, HistoryGone, Transient, UsageError
from backfill_cli.formats.listing import Place, place

if TYPE_CHECKING:
    from deltalake import DeltaTable

CHECKPOINTS = "_delta_log/_last_checkpoint"


@dataclass(frozen=True, slots=True)
class Where:
    """A Delta table's folder."""

    place: Place

    @classmethod
    def of(cls, template: str, table: str) -> "Where":
        """The folder that an option names for one table. Raises UsageError for a pattern."""
        found = place(template, table)
        if found.pattern:
            raise UsageError(
                f"{found.shown}: not a Delta table's folder", "set the path to the table's own folder"
            )
        return cls(found)

    @property
    def shown(self) -> str:
        return self.place.shown

    @property
    def uri(self) -> str:
        """The folder's URI for Spark."""
        return self.place.uri

    @property
    def library_uri(self) -> str:
        return self.place.folder if self.place.local else self.place.uri

    def exists(self) -> bool:
        """Whether the folder holds a Delta table."""
        from deltalake import DeltaTable

        with delta_errors(self.shown):
            return DeltaTable.is_deltatable(self.library_uri)

    def open(self, version: int | None = None) -> "DeltaTable":
        """The table at a version, or at the newest.

        Raises UsageError if there is no table, HistoryGone if the log no longer has that version, Fatal for an
        unsupported feature.
        """
        from deltalake import DeltaTable

        with delta_errors(self.shown, version):
            return DeltaTable(self.library_uri, version=version)

    def log_file(self, version: int) -> str:
        return f"{self.place.folder}/_delta_log/{version:020d}.json"


@contextmanager
def delta_errors(shown: str, version: int | None = None) -> Iterator[None]:
    """Any failure of the library inside becomes one of our errors, which names the table."""
    try:
        from deltalake import exceptions as known
    except ImportError:
        raise UsageError(
            "Delta tables need the package deltalake, which is not installed", "pip install 'backfill-cli[delta]'"
        ) from None
    try:
        yield
    except BackfillError:
        raise
    except known.TableNotFoundError as exc:
        raise UsageError(f"{shown}: no Delta table", "name the folder that holds _delta_log") from exc
    except (known.DeltaError, OSError, ValueError) as exc:
        raise _meaning(shown, version, exc) from exc


def _meaning(shown: str, version: int | None, exc: Exception) -> BackfillError:
    text = " ".join(str(exc).split())[:300]
    lower = text.lower()
    newest = re.search(r"end version (\d+) not the same", text)
    if version is not None and newest is not None and int(newest[1]) < version:
        return UsageError(
            f"{shown}: has no version {version}: its newest is {newest[1]}",
            'set upstream.version = "latest", or a version that exists',
        )
    if version is not None and ("version" in lower or "not found" in lower or "no such file" in lower):
        return HistoryGone(
            f"{shown}: its log no longer has version {version}: {text}",
            "start over; delta.logRetentionDuration says how long versions are kept",
        )
    if "feature" in lower or "protocol" in lower or "unsupported" in lower:
        return Fatal(f"{shown}: a feature of this table is not supported: {text}", "drop that feature")
    if "timed out" in lower or "connect" in lower or "reset" in lower:
        return Transient(f"{shown}: {text}", "it is retried automatically")
    return Fatal(f"{shown}: its log cannot be read: {text}", "repair the table")


PLACE = "delta:"


def delta_place(where: Where) -> str:
    """Where a table is, as a text that is unique to it."""
    import os

    return PLACE + (os.path.realpath(where.place.folder) if where.place.local else where.uri)


def where_at(told: str) -> Where:
    """The table of a text from `delta_place`."""
    return Where.of(told.removeprefix(PLACE), "")
