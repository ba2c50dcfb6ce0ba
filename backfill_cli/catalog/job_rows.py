"""Jobs as people see them: a row each, with its control, its numbers and its lease."""

import json
from dataclasses import dataclass, fields
from typing import Any

from backfill_cli.catalog.inbox import Refused
from backfill_cli.catalog.jobs import read_control
from backfill_cli.catalog.lease import Lease
from backfill_cli.catalog.verified import Verified
from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.model.aside import Aside
from backfill_cli.model.aside import read as read_aside
from backfill_cli.model.checkpoint import PartitionProgress, Progress, TablePartitions, Written
from backfill_cli.model.committing import Committing
from backfill_cli.model.deadline import Outlook
from backfill_cli.model.derived import Derived, Filling, derived_in
from backfill_cli.model.headroom import Headroom
from backfill_cli.model.job import ENDED, Command, Control, JobState, Phase, apply_command
from backfill_cli.model.limit import Limit
from backfill_cli.model.refill import Refill, RefillProgress
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Incomplete, SpoolView

_LIMITS = ("limited_by", "not_converging", "waiting_for", "uncomputed")
_PARTITION_FIELDS = frozenset(field.name for field in fields(PartitionProgress))


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as people see it. why: it is in its state.

    epoch: the last committed one, 0 for none. live: a runner has it now. waiting: commands not yet taken.
    verified: what was found last in each of its tables, if there was a verify. config_file: that of its last
    start; empty if not known. created: whether the catalog has the job; else it is being created, or its start was
    killed. refills: those that are pending, and the newest. aside: tables that are set aside, or are being put
    back. derived: its derived tables. refused: the newest command that was to change what the job is, if its
    barrier has refused it.
    """

    name: str
    state: JobState
    why: Limit
    phase: Phase
    epoch: int
    control: Control
    progress: Progress | None
    strategy: str
    until: str
    created_ms: int
    caught_up_ms: int | None
    lease: Lease
    live: bool
    waiting: tuple[Command, ...] = ()
    verified: tuple[Verified, ...] = ()
    config_file: str = ""
    created: bool = True
    refills: tuple[Refill, ...] = ()
    dropping: tuple[str, ...] = ()
    aside: tuple[Aside, ...] = ()
    derived: tuple[Derived, ...] = ()
    refused: Refused | None = None

    @property
    def reason(self) -> str:
        """Why it is in its state, in words."""
        return self.why.said

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def reported(self) -> Progress | None:
        """The numbers of its last runner; None before that has reported any."""
        told = self.progress
        return told if told is not None and told.token == self.lease.token else None

    @property
    def dead(self) -> bool:
        """Whether the job's runner died without releasing the job: it was killed, or its machine is gone."""
        return not self.ended and not self.live and self.lease.pid is not None

    @property
    def shown_state(self) -> JobState:
        """The state, or the one it is changing to: requested and reached are two states."""
        if self.ended and self.live and self.lease.pid is None:
            return JobState.STARTING  # the next runner holds the lock, and has not claimed the job yet
        if self.ended:
            return self.state
        if self.asked.stop:
            return JobState.STOPPING
        if self.asked.paused and not self.control.paused:
            return JobState.PAUSING
        return self.state

    @property
    def asked(self) -> Control:
        """The control once the commands that wait have been taken."""
        asked = self.control
        for command in self.waiting:
            asked = apply_command(asked, command, command.at_ms)
        return asked


def rows(db: DuckDBPyConnection) -> tuple[JobRow, ...]:
    """All jobs, oldest first; `live`, `waiting`, `verified` and `refills` are for the caller to fill in."""
    found = db.execute(
        """SELECT name, state, reason, why, phase, epoch, paused_by, paused_since_ms, rate, stop_asked, pause_all,
                  holds, table_rates, progress, strategy, until, created_ms, caught_up_ms,
                  coalesce(config_file, ''), aside, CASE WHEN contains(config, '"derived"') THEN config END,
                  coalesce(token, 0), owner, host, pid, claimed_ms, renewed_ms
           FROM jobs LEFT JOIN leases ON leases.job = jobs.name ORDER BY created_ms, name"""
    ).fetchall()
    return tuple(_row(row) for row in found)


def _row(row: tuple[Any, ...]) -> JobRow:
    name, state, reason, why, phase, epoch, *control = row[:13]
    progress, strategy, until, created_ms, caught_up_ms, config_file, aside, config = row[13:21]
    return JobRow(
        name=name,
        state=JobState(state),
        why=Limit.stored(reason, why),
        phase=Phase(phase),
        epoch=epoch,
        control=read_control(*control),
        progress=None if progress is None else read_progress(progress),
        strategy=strategy,
        until=until,
        created_ms=created_ms,
        caught_up_ms=caught_up_ms,
        lease=Lease(*row[21:]),
        live=False,
        config_file=config_file,
        aside=read_aside(aside),
        derived=derived_in(config or ""),
    )


def read_progress(text: str) -> Progress:
    """As the codec reads it, without pydantic, whose import costs `status` more than everything else it does."""
    known = {field.name for field in fields(Progress)}
    told = {name: value for name, value in json.loads(text).items() if name in known}
    eta_s = told.get("eta_s")
    listed = (
        {name: value for name, value in partition.items() if name in _PARTITION_FIELDS}
        for partition in told.get("partitions", ())
    )
    spool, written, headroom = told.get("spool"), told.get("written_per_s"), told.get("headroom")
    refill, deadline, newest = told.get("refill"), told.get("deadline"), told.get("incomplete")
    committing = told.get("committing")
    limits = {name: told[name] and Limit.read(told[name]) for name in _LIMITS if name in told}
    shaped = {
        "eta_s": eta_s and tuple(eta_s),
        "partitions": tuple(PartitionProgress(**one | {"state": SplitStatus(one["state"])}) for one in listed),
        "tables": tuple(
            TablePartitions(**one | {"furthest": one["furthest"] and tuple(one["furthest"])})
            for one in told.get("tables", ())
        ),
        "unfilled": None if told.get("unfilled") is None else tuple(told["unfilled"]),
        "filling": {name: Filling(**one) for name, one in told.get("filling", {}).items()},
        "spool": spool and SpoolView(**spool | {"waits": spool["waits"] and Limit.read(spool["waits"])}),
        "written_per_s": written and Written(**written),
        "headroom": headroom and Headroom.read(headroom),
        "refill": refill and RefillProgress(**refill),
        "deadline": deadline and Outlook.read(deadline),
        "incomplete": newest and Incomplete(**newest | {"lacking": tuple(newest["lacking"])}),
        "committing": committing and Committing.read(committing),
    }
    return Progress(**told | limits | shaped | {"phase": Phase(told["phase"])})


ALMOST = 0.999
"""The largest share of a group that is not read whole: an estimate of its rows can prove too low."""


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """Some splits of one table, adjacent in the pin.

    label: the table, or which of its splits. splits_read: how many are consumed (partitions: whose history is).
    rows_total: None if not known before reading. share: 0 to 1, by rows (offsets) if known, else by bytes.
    """

    label: str
    splits: int
    splits_read: int
    rows_read: int
    rows_total: int | None
    share: float


_GROUPS = """
    WITH pieces AS (
        SELECT s.table_name, s.ordinal, s.rows_total, s.size_bytes, coalesce(p.rows_read, 0) AS rows_read,
               coalesce(p.status IN ('consumed', 'awaiting live', 'finished'), s.rows_total = 0, false)
                   AS consumed,
               CASE WHEN consumed THEN 1.0
                    ELSE coalesce(try_cast(p."cursor" AS BIGINT) - s.first_offset, p.rows_read, 0)
                         / greatest(coalesce(s.rows_total, if(s.first_offset IS NULL, 1, s.size_bytes)), 1)
               END AS share
        FROM splits s LEFT JOIN split_progress p
          ON p.job = s.job AND p.table_name = s.table_name AND p.split_id = s.split_id
        WHERE s.job = $job
    ), placed AS (
        SELECT *, row_number() OVER (PARTITION BY table_name ORDER BY ordinal) AS place,
               CASE WHEN (SELECT count(DISTINCT table_name) FROM pieces) > 1 THEN 1
                    ELSE ntile($groups) OVER (PARTITION BY table_name ORDER BY ordinal) END AS part
        FROM pieces
    )
    SELECT table_name, min(place), max(place), count(*), count_if(consumed), sum(rows_read)::BIGINT,
           CASE WHEN count(rows_total) = count(*) THEN sum(rows_total)::BIGINT END,
           coalesce(CASE WHEN count(rows_total) = count(*)
                         THEN sum(share * rows_total) / nullif(sum(rows_total), 0) END,
                    sum(share * size_bytes) / nullif(sum(size_bytes), 0), avg(share)),
           (SELECT count(DISTINCT table_name) FROM pieces)
    FROM placed GROUP BY table_name, part ORDER BY min(ordinal)
"""


def split_groups(db: DuckDBPyConnection, job: str, at_most: int) -> tuple[SplitGroup, ...]:
    """The tables of a job, or the files of its only table in at most `at_most` groups, in the pin's order."""
    groups = []
    for table, first, last, splits, read, rows, total, share, tables in db.execute(
        _GROUPS, {"job": job, "groups": at_most}
    ).fetchall():
        numbers = f"part {first}" if first == last else f"parts {first}–{last}"
        share = max(0.0, min(1.0 if read == splits else ALMOST, float(share)))
        groups.append(SplitGroup(table if tables > 1 else numbers, splits, read, rows, total, share))
    return tuple(groups)


@dataclass(frozen=True, slots=True)
class SplitRow:
    """How far one split is at the last commit.

    split: a file, a range of keys or a partition, as the catalog names it. rows_read: before the transform.
    rows_total: None if that is known only once it is read; of a partition, the offsets of its history; may be an
    estimate. size_bytes: None for a partition that was added later. next: where reading goes on, as JSON; None
    before the first read, and once it is consumed. target: the offset at which the history of a partition ends.
    epoch: the commit that last moved it.
    """

    table: str
    split: str
    status: SplitStatus
    rows_read: int
    rows_total: int | None
    size_bytes: int | None
    next: str | None
    target: int | None
    epoch: int | None


def split_rows(db: DuckDBPyConnection, job: str) -> tuple[SplitRow, ...]:
    """All splits of a job in the pin's order, then partitions that were added after the pin."""
    found = db.execute(
        """SELECT table_name, split_id, coalesce(status, 'not started'), coalesce(rows_read, 0), rows_total,
                  size_bytes, "cursor", target, nullif(epoch, 0)
           FROM splits FULL JOIN split_progress USING (job, table_name, split_id)
           WHERE job = ? ORDER BY ordinal NULLS LAST, table_name, length(split_id), split_id""",
        [job],
    ).fetchall()
    return tuple(SplitRow(table, split, SplitStatus(status), *told) for table, split, status, *told in found)
