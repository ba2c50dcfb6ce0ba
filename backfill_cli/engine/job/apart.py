"""Whether a table can leave a job, or join it, while the others go on: by the logs that its upstream has."""

from enum import StrEnum

from backfill_cli.contracts import Capabilities, JobDefinition, Pinned
from backfill_cli.model.position import table_of


class Bound(StrEnum):
    """Why a job's tables stay together, after "job 'orders': "."""

    TOPIC = "its tables are read from one topic, whose records were divided among them when it began"
    TAKEN = "its log is taken into a spool for the tables that it began with (strategy chain)"
    SPOOL = "the logs of its tables are taken into one spool (strategy chain)"
    LOG = "its tables share one log of changes, which was read for these alone"
    ALONE = "it has no other table, which would stay meanwhile"


def why_none_joins(job: JobDefinition, upstream: Capabilities) -> Bound | None:
    """Why no table can join the job; None if one can."""
    if job.strategy == "chain":
        return Bound.TAKEN
    if not upstream.apart:
        return Bound.TOPIC
    if isinstance(upstream.reads, Pinned) and not _are_apart(job, upstream.one_log):
        return Bound.LOG
    return None


def why_none_leaves(job: JobDefinition, upstream: Capabilities) -> Bound | None:
    """Why no table can leave the job; None if one can."""
    owned = [log for log, _ in job.pin.position if table_of(log, _tables(job)) is not None]
    if not upstream.apart:
        return Bound.TOPIC
    if job.strategy == "chain" and owned:
        return Bound.SPOOL
    return None


def why_none_comes_back(job: JobDefinition, upstream: Capabilities) -> Bound | None:
    """Why no table can leave the job and join it again, to be read anew; None if one can."""
    if len(_tables(job)) == 1:
        return Bound.ALONE
    return why_none_leaves(job, upstream) or why_none_joins(job, upstream)


def _are_apart(job: JobDefinition, one_log: bool) -> bool:
    """Whether each table has logs of its own, as their names say. one_log: what several tables have in common."""
    return not one_log and all(table_of(log, _tables(job)) is not None for log, _ in job.pin.position)


def _tables(job: JobDefinition) -> list[str]:
    return [one.name for one in job.tables if not one.side]
