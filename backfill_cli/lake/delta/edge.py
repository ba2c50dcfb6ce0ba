"""Opens Delta tables at a version, and maps the Delta library's errors to ours."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote

from deltalake import DeltaTable, exceptions

from backfill_cli.errors import RETRIED, BackfillError, Fatal, Transient, UsageError
from backfill_cli.formats.listing import Place, place
from backfill_cli.lake.delta import commits
from backfill_cli.model.units import spell_known
from backfill_cli.spark.object_store import meant, on_s3, one_spelling, store_of

LOG = "_delta_log"
NO_TABLE_HINT = f"name the folder that holds {LOG}"

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_DEBUG = re.compile(r"\s*(\n\s*0: |: \w+ \{).*", re.DOTALL)
"""A trace of calls, or Rust's notation of a structure, at the end of the library's text."""


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

    @property
    def library_options(self) -> dict[str, str] | None:
        return store_of(self.place.uri).for_delta() if on_s3(self.place.uri) else None

    def exists(self) -> bool:
        """Whether the folder holds a Delta table."""
        with delta_errors(self.shown):
            return DeltaTable.is_deltatable(self.library_uri, self.library_options)

    def open(self, version: int | None = None) -> DeltaTable:
        """The table at a version, or at the newest.

        Raises UsageError if there is no table, HistoryGone if the log no longer has that version, Fatal for an
        unsupported feature.
        """
        with delta_errors(self.shown):
            try:
                return DeltaTable(self.library_uri, version, self.library_options)
            except exceptions.DeltaError as exc:
                if (fault := commits.found(self, version)) is not None:
                    raise fault from exc
                if isinstance(exc, exceptions.TableNotFoundError):
                    known = spell_known(*self._beside(), which="tables beside it")
                    raise UsageError(f"{self.shown}: no Delta table{known}", NO_TABLE_HINT) from exc
                raise

    def _beside(self) -> tuple[str, list[str]]:
        """The folder's name, and those beside it that hold a table: local ones only, which cost little to list."""
        parent, _, name = self.place.folder.rstrip("/").rpartition("/")
        with suppress(OSError):  # a help only: the table is missing, whatever is beside it
            if self.place.local:
                return name, sorted(one for one in os.listdir(parent) if os.path.isdir(f"{parent}/{one}/{LOG}"))
        return name, []

    def log_file(self, version: int) -> str:
        return f"{self.place.folder}/{LOG}/{version:020d}.json"


def named_in(text: str, tables: Iterable[Where]) -> Where | None:
    """The table in whose folder a path or URI in an error's text is; None if there is none."""
    for told in (text, unquote(text)):
        found = [table for table in tables if _path_of(table.place.folder).search(told)]
        if found:
            return max(found, key=lambda table: len(table.place.folder))
    return None


def _path_of(folder: str) -> re.Pattern[str]:
    """The folder itself or a path below it, and not as a part of another path."""
    return re.compile(rf"(?:^|[^\w.~%+-]){re.escape(folder)}(?:/|[^\w./~%+-]|\.?(?:\s|$))")


@contextmanager
def delta_errors(shown: str) -> Iterator[None]:
    """Any failure of the library inside becomes one of our errors, which names the table."""
    try:
        yield
    except BackfillError:
        raise
    except (exceptions.DeltaError, OSError, ValueError) as exc:
        raise _meaning(shown, exc) from exc


def _meaning(shown: str, exc: Exception) -> BackfillError:
    said = _COLOURS.sub("", str(exc))
    text = " ".join(_DEBUG.sub("", said).split())[:300]
    lower = text.lower()
    if (of_store := meant(shown, said)) is not None:
        return of_store
    if "feature" in lower or "unsupported" in lower:
        return Fatal(
            f"{shown}: a feature of this table is not supported: {text}",
            "drop that feature (ALTER TABLE … DROP FEATURE …), or use a copy of the table without it",
        )
    if "timed out" in lower or "connect" in lower or "reset" in lower:
        return Transient(f"{shown}: {text}", RETRIED)
    return Fatal(
        f"{shown}: its log cannot be read: {text}",
        f"check its path, and this user's rights to {LOG} there; or restore {LOG} from a copy of the table",
    )


PLACE = "delta:"


def delta_place(where: Where) -> str:
    """Where a table is, as a text that is unique to it."""
    return PLACE + (os.path.realpath(where.place.folder) if where.place.local else one_spelling(where.uri))


def where_at(told: str) -> Where:
    """The table of a text from `delta_place`."""
    return Where.of(told.removeprefix(PLACE), "")
