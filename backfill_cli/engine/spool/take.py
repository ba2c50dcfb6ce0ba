"""Turns a window of the log into files of a folder: what `take` writes, or what `changes` reads, unmodified."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import Taken, TakenTable, TakingUpstream, Upstream, own
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.files import folder_made, footers, listed, no_room, require_all, write
from backfill_cli.engine.staging.schemas import evolved
from backfill_cli.engine.staging.stage import null_keys, refuse_null_keys_of_log
from backfill_cli.errors import BackfillError
from backfill_cli.model.plan import ChangeWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_cli.config import JobConfig


def take(
    spark: "SparkSession",
    log: Upstream,
    config: "JobConfig",
    window: ChangeWindow,
    schemas: Mapping[str, str],
    folder: Path,
) -> Taken:
    """The window's changes are files in `folder`, not yet durable. schemas: those in force at its beginning.

    Raises what the log raises, BadData for a change of columns that cannot be followed or for a NULL key.
    """
    folder_made(folder)
    try:
        if isinstance(log, TakingUpstream):
            return log.take(spark, window, None, schemas, str(folder))
        now = evolved(schemas, dict(window.schema))
        tables = {t.name: _changes(spark, log, config, t.name, window, now[t.name], folder) for t in config.tables}
        return Taken(window, {name: one for name, one in tables.items() if one.changes}, dict(window.schema))
    except BackfillError:
        raise
    except Exception as exc:
        failure = log.failure(exc) or no_room(exc, folder)
        if failure is None:
            raise
        raise failure from exc


def _changes(
    spark: "SparkSession",
    log: Upstream,
    config: "JobConfig",
    table: str,
    window: ChangeWindow,
    schema: str,
    folder: Path,
) -> TakenTable:
    """Every single change of one table: a later drain nets them over many entries."""
    from pyspark.sql import functions as F

    frame = log.changes(spark, table, window.after, window.up_to, schema)
    key = config.table(table).key
    path = folder / table
    counts = {f"null_{i}": column for i, column in enumerate(null_keys(key))}
    counts["U"] = F.when(F.col(own.OP) == "U", 1)
    counts["images"] = F.when(transform.is_image(frame), 1)
    written = write(frame, path, counts=counts)
    files = listed(path, folder)
    require_all(path, written["rows"], footers(folder, files, ()))
    nulls = [written[f"null_{i}"] for i in range(len(key))]
    refuse_null_keys_of_log(log, table, key, nulls)
    rows, put = written["rows"], written["U"]
    return TakenTable(files, False, changes=rows - written["images"], changed=put, deleted=rows - put)
