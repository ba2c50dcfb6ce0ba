"""A sink's lake tables as `verify` reads them: each at the version in which its marker was found."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from backfill_cli.contracts import SavedJob, SinkTable, Survey
from backfill_cli.contracts.refusals import gone
from backfill_cli.errors import RETRIED, BackfillError, StateConflict, Transient, command
from backfill_cli.formats.digests import DIALECT, words_digest
from backfill_cli.lake.state import JobState
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.digest import Digest, DigestSpec, KeyRanges, Word, and_sampled, range_sql, spec_of
from backfill_cli.model.schema import fields_of
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.beside import session_beside
from backfill_cli.spark.names import quoted

# Tables commit one after the other; the longest commit seen, of three tables, took 20 s.
PATIENCE_S = 120.0
RETRY_S = 0.2

Version = TypeVar("Version")

Reads = Callable[[SparkSession, SinkTable], DataFrame]
"""All rows of a table at its version, with the types of the table's Spark schema."""


class LakeCopy:
    """`contracts.SinkCopy` over versions that no commit changes.

    spark: a separate session, because `words_digest` changes a setting while the other side's session is in use.
    versions: the version that is read, by table. fault: what is wrong with the files of a table at its version.
    """

    def __init__(
        self,
        spark: SparkSession,
        reads: Reads,
        saved: SavedJob | None,
        versions: Mapping[str, object],
        fault: Callable[[str], BackfillError | None],
    ) -> None:
        self._spark, self._reads, self._saved, self._versions, self._fault = spark, reads, saved, versions, fault

    def saved(self) -> SavedJob | None:
        return self._saved

    def mark(self) -> str:
        """The versions: a version of a table always holds the same rows."""
        return json.dumps(dict(self._versions), sort_keys=True)

    def survey(self, table: SinkTable) -> Survey:
        """Spark hashes strings of any kind; the bounds come from a scan of the first key column only."""
        few = frozenset(name for name in _strings(table))
        spec = spec_of(table.schema, table.key, few)
        if spec is None or spec.columns[0].word is Word.TEXT:
            return Survey(None, None, few)
        word = F.expr(DIALECT.word(spec.columns[0]))
        with self._reading(table):
            bounds = self._reads(self._spark, table).agg(F.min(word).alias("low"), F.max(word).alias("high"))
            found = bounds.toArrow().to_pylist()[0]
        return Survey(found["low"], found["high"], few)

    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        with self._reading(table):
            return words_digest(self._spark, self._reads(self._spark, table), spec, ranges)

    @contextmanager
    def _reading(self, table: SinkTable) -> Iterator[None]:
        """A failure of Spark over the table's files becomes ours, which names the file."""
        try:
            yield
        except BackfillError:
            raise
        except Exception as exc:
            fault = self._fault(table.name)
            if fault is None:
                raise
            raise fault from exc

    def frame(
        self,
        spark: SparkSession,
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> DataFrame:
        rows = self._reads(spark, table)
        if only is not None:
            spec, ranges, parts = only
            part = range_sql(ranges, DIALECT, DIALECT.word(spec.columns[0]))
            wanted = f"{part} IN ({', '.join(str(number) for number in parts)})"
            rows = rows.where(wanted + and_sampled(spec, DIALECT))
        return rows.select(*(quoted(name) for name in columns))


@contextmanager
def copied(
    session: Callable[[], SparkSession],
    state: JobState,
    look: Callable[[], Mapping[str, tuple[Version, Marker] | None]],
    live: bool,
    rows: Callable[[SparkSession, SinkTable, Version | None], DataFrame],
    fault: Callable[[str, Version | None], BackfillError | None],
    known: Callable[[str, Version], object] = lambda _, version: version,
) -> Iterator[LakeCopy]:
    """See `contracts.VerifiableSink`. Nothing is copied: versions do not change. Raises as `at_one_epoch`.

    known: what identifies a table's version.
    """
    versions, marker = at_one_epoch(state.job, state, look, live)
    saved = None if marker is None else state.saved(marker)
    yield LakeCopy(
        session_beside(session()),
        lambda spark, table: rows(spark, table, versions.get(table.name)),
        saved,
        {name: known(name, version) for name, version in versions.items()},
        lambda name: fault(name, versions.get(name)),
    )


def at_one_epoch(
    job: str, state: JobState, look: Callable[[], Mapping[str, tuple[Version, Marker] | None]], live: bool
) -> tuple[Mapping[str, Version], Marker | None]:
    """(table → the version to read, their marker): all tables are at the marker's epoch. None: nothing committed.

    look: by table its version now and the marker there; None for a table that does not exist.
    Raises StateConflict for a table that is gone, and if no runner has the job and its tables are at several
    epochs; Transient if those of a job with a runner are never at the same epoch within PATIENCE_S.
    """
    deadline = time.monotonic() + (PATIENCE_S if live else 0)
    while True:
        found = look()
        if not state.began():
            return {}, None
        there = {table: one for table, one in found.items() if one is not None}
        _require_all(job, found, there)
        markers = {table: marker for table, (_, marker) in there.items()}
        if len({(one.epoch, one.attempt) for one in markers.values()}) <= 1:
            return {table: version for table, (version, _) in there.items()}, next(iter(markers.values()), None)
        if time.monotonic() > deadline:
            break
        time.sleep(RETRY_S)
    epochs = ", ".join(f"{table}: {marker.epoch}" for table, marker in markers.items())
    what = f"job {job!r}: its tables are at several epochs ({epochs})"
    if live:
        raise Transient(what, RETRIED)
    raise StateConflict(f"{what}: a commit was interrupted", command(f"resume {job}"))


def _require_all(job: str, tables: Mapping[str, object], there: Mapping[str, object]) -> None:
    lacking = [table for table in tables if table not in there]
    if lacking:
        raise gone(f"table {lacking[0]!r} of the sink", job)


def _strings(table: SinkTable) -> list[str]:
    return [field["name"] for field in fields_of(table.schema) if field["type"] == "string"]
