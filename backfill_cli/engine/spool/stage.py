"""Staging for a chain job: an epoch's window comes from the spool until that is drained, then from the log."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import SpoolEntry
from backfill_cli.engine.loop.ports import StagedEpoch
from backfill_cli.engine.spool import drain
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.spool.upstream import SpooledUpstream
from backfill_cli.engine.staging.files import sync
from backfill_cli.engine.staging.schemas import evolved
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.failpoint import hit
from backfill_cli.model.plan import ChangeWindow, EpochPlan, Staged, StagedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_cli.config import JobConfig


class SpooledStager(SparkStager):
    """See SparkStager."""

    def __init__(
        self, session: "Callable[[], SparkSession]", upstream: SpooledUpstream, spool: Spool, config: "JobConfig"
    ) -> None:
        super().__init__(session, upstream, config)
        self._spooled, self._spool = upstream, spool

    def _stage(self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]) -> StagedEpoch:
        if plan.window is not None and plan.spooled:
            return self._stage_spooled(plan.window, attempt, folder, schemas)
        log = self._spooled.taking_log
        if plan.window is not None and log is not None:
            return self._stage_taken(log, plan, attempt, folder, schemas)
        return super()._stage(plan, attempt, folder, schemas)

    def _stage_spooled(
        self, window: ChangeWindow, attempt: str, folder: Path, schemas: Mapping[str, str]
    ) -> StagedEpoch:
        """All tables' net changes of the entries in the window."""
        entries = [entry for entry in self._spooled.taker.entries if _within(entry, window)]
        for entry in entries:
            self._spool.require_unchanged(entry)
        now = evolved(schemas, dict(window.schema))
        tables: dict[str, StagedTable] = {}
        sinks: dict[str, str] = {}
        for table in self._config.tables:
            shape = self._config.transform_of(table.name)
            sinks[table.name] = self._sink_schema(table.name, now[table.name], schemas[table.name])
            tables[table.name] = drain.staged(
                self._spark, self._spool, entries, table.name, table.key, shape, folder
            )
            hit("table-staged")
        if any(one.changes for one in tables.values()):
            sync(folder)
        read = sum(entry.changes for entry in entries)
        return StagedEpoch(Staged(attempt, tables, (), read, window), now, sinks)


def _within(entry: SpoolEntry, window: ChangeWindow) -> bool:
    return window.after <= entry.window.after and entry.window.up_to <= window.up_to
