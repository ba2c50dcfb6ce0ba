"""Jobs in the catalog: their definitions, state and control, and the row that people see."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.errors import NoSuchJob, StateConflict, UsageError, command
from backfill_cli.model.aside import Aside, spelled
from backfill_cli.model.aside import read as read_aside
from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import TRANSITIONS, Control, Hold, JobState, Phase, may_become
from backfill_cli.model.limit import Limit
from backfill_cli.model.split import Split
from backfill_cli.model.units import nearest_first, spell_known
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from backfill_cli.contracts import JobDefinition, SinkTable

_NAME = re.compile(r"[a-z0-9_-]{1,63}")


def check_name(job: str) -> str:
    """The name itself; it becomes part of file names. Raises UsageError if it is not valid."""
    if not _NAME.fullmatch(job):
        raise UsageError(
            f"{job!r} is not a valid job name: use 1 to 63 characters of a-z, 0-9, _ and -",
            "name it in the config: [job] name",
        )
    return job


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The part of a job's row that commands and runners need."""

    state: JobState
    control: Control
    epoch: int
    promised_epoch: int
    last_epoch: int
    phase: Phase


def names(db: DuckDBPyConnection) -> tuple[str, ...]:
    return tuple(row[0] for row in db.execute("SELECT name FROM jobs ORDER BY created_ms, name").fetchall())


def sections(db: DuckDBPyConnection, job: str) -> dict[str, dict[str, Any]]:
    """What the stored config of a job says of each table, also of one that is set aside; empty: no such job."""
    told = db.execute("SELECT config, aside FROM jobs WHERE name = ?", [job]).fetchone()
    return {} if told is None else sections_in(told[0], read_aside(told[1]))


def sections_in(config: str, aside: Sequence[Aside]) -> dict[str, dict[str, Any]]:
    """The same of a job's stored config, and of its tables that are set aside."""
    there = {one["name"]: one for one in json.loads(config)["tables"]}
    return {one.table: json.loads(one.section) for one in aside} | there


def create(db: DuckDBPyConnection, definition: "JobDefinition", control: Control, now_ms: int) -> None:
    """A new job exists, starting, without a checkpoint. Raises UsageError if the name is taken."""
    if definition.name in names(db):
        raise UsageError(
            f"job {definition.name!r} already exists in the catalog",
            command(f"resume {definition.name}")
            + ", or: "
            + command(f"drop {definition.name} --confirm {definition.name}"),
        )
    pin = replace(definition.pin, splits=())
    db.execute(
        """INSERT INTO jobs VALUES ($name, 'starting', 'starting', $strategy, $until, $config, $fingerprint, $pin,
           $tables, $now, 'snapshot', 0, 0, 0, $paused_by, $paused_since, $rate, $stop, NULL, NULL, $pause_all,
           $file, NULL, $holds, $rates, $aside)""",
        {
            "name": definition.name,
            "strategy": definition.strategy,
            "until": definition.until,
            "config": definition.config,
            "fingerprint": definition.fingerprint,
            "pin": encode(pin),
            "tables": spell_tables(definition.tables),
            "now": now_ms,
            "paused_by": control.paused_by,
            "paused_since": control.paused_since_ms,
            "rate": control.rate,
            "stop": control.stop,
            "pause_all": control.pause_all,
            "file": definition.config_file or None,
            "holds": spell_holds(control),
            "rates": spell_rates(control),
            "aside": spelled(definition.aside),
        },
    )
    _insert_splits(db, definition.name, definition.pin.splits)


def _insert_splits(db: DuckDBPyConnection, job: str, splits: tuple[Split, ...]) -> None:
    """Lists as parameters insert 100,000 splits in about a second; row by row it takes minutes."""
    db.execute(
        """INSERT INTO splits SELECT $job, unnest($tables), unnest($ids), unnest($ordinals), unnest($rows),
           unnest($sizes), unnest($cuttable), unnest($details), unnest($firsts::BIGINT[])""",
        {
            "job": job,
            "tables": [split.table for split in splits],
            "ids": [split.id for split in splits],
            "ordinals": list(range(len(splits))),
            "rows": [split.rows for split in splits],
            "sizes": [split.size_bytes for split in splits],
            "cuttable": [split.cuttable for split in splits],
            "details": [split.detail for split in splits],
            "firsts": [split.first for split in splits],
        },
    )


def definition(db: DuckDBPyConnection, job: str) -> "JobDefinition":
    """The job as it was created, its pin with all splits."""
    from backfill_cli.contracts import JobDefinition, SinkTable

    row = db.execute(
        "SELECT config, fingerprint, pin, until, strategy, sink_tables, coalesce(config_file, ''), aside "
        "FROM jobs WHERE name = ?",
        [job],
    ).fetchone()
    if row is None:
        raise no_such_job(db, job)
    splits = db.execute(
        """SELECT table_name, split_id, rows_total, size_bytes, cuttable, detail, first_offset FROM splits
           WHERE job = ? ORDER BY ordinal""",
        [job],
    ).fetchall()
    config, fingerprint, pin, until, strategy, tables, file, aside = row
    return JobDefinition(
        name=job,
        config=config,
        fingerprint=fingerprint,
        pin=replace(decode(Pin, pin), splits=tuple(Split(*split) for split in splits)),
        until=until,
        strategy=strategy,
        tables=decode(tuple[SinkTable, ...], tables),
        config_file=file,
        aside=read_aside(aside),
    )


def standing(db: DuckDBPyConnection, job: str) -> JobStatus:
    row = db.execute(
        """SELECT state, paused_by, paused_since_ms, rate, stop_asked, pause_all, holds, table_rates, epoch,
                  promised_epoch, last_epoch, phase
           FROM jobs WHERE name = ?""",
        [job],
    ).fetchone()
    if row is None:
        raise no_such_job(db, job)
    return JobStatus(JobState(row[0]), read_control(*row[1:8]), row[8], row[9], row[10], Phase(row[11]))


def configure(db: DuckDBPyConnection, job: str, config: str, file: str) -> None:
    """The job's config, as stored, and the file that it was read from."""
    db.execute("UPDATE jobs SET config = ?, config_file = ? WHERE name = ?", [config, file or None, job])


def redefine(db: DuckDBPyConnection, before: "JobDefinition", after: "JobDefinition") -> None:
    """The job has this definition. before: the one that it has."""
    configure(db, after.name, after.config, after.config_file)
    db.execute(
        "UPDATE jobs SET fingerprint = ?, pin = ?, sink_tables = ?, aside = ? WHERE name = ?",
        [
            after.fingerprint,
            encode(replace(after.pin, splits=())),
            spell_tables(after.tables),
            spelled(after.aside),
            after.name,
        ],
    )
    if after.pin.splits != before.pin.splits:
        db.execute("DELETE FROM splits WHERE job = ?", [after.name])
        _insert_splits(db, after.name, after.pin.splits)


def aside(db: DuckDBPyConnection, job: str) -> tuple[Aside, ...]:
    """The tables that are set aside, or are being put back."""
    row = db.execute("SELECT aside FROM jobs WHERE name = ?", [job]).fetchone()
    return () if row is None else read_aside(row[0])


def set_aside(db: DuckDBPyConnection, job: str, tables: Sequence[Aside]) -> None:
    """These tables of the job are set aside, or are being put back."""
    db.execute("UPDATE jobs SET aside = ? WHERE name = ?", [spelled(tables), job])


def set_control(db: DuckDBPyConnection, job: str, control: Control) -> None:
    db.execute(
        """UPDATE jobs SET paused_by = ?, paused_since_ms = ?, rate = ?, stop_asked = ?, pause_all = ?, holds = ?,
           table_rates = ? WHERE name = ?""",
        [
            control.paused_by,
            control.paused_since_ms,
            control.rate,
            control.stop,
            control.pause_all,
            spell_holds(control),
            spell_rates(control),
            job,
        ],
    )


def spell_holds(control: Control) -> str | None:
    """What guards did, as the catalog keeps it; None for nothing."""
    if not (control.holds or control.overridden):
        return None
    told = {"holds": [asdict(hold) for hold in control.holds], "overridden": control.overridden}
    return json.dumps(told, ensure_ascii=False)


def spell_rates(control: Control) -> str | None:
    """The rates of single tables, as the catalog keeps them; None for none."""
    return json.dumps(control.rates, ensure_ascii=False) if control.tables else None


def read_control(
    paused_by: str | None,
    paused_since_ms: int | None,
    rate: float | None,
    stop: bool,
    pause_all: bool,
    holds: str | None,
    rates: str | None,
) -> Control:
    """The control that a job's row has, by its columns."""
    told = {"holds": (), "overridden": ()} if holds is None else json.loads(holds)
    held = tuple(Hold(**hold) for hold in told["holds"])
    tables = () if rates is None else tuple(sorted(json.loads(rates).items()))
    return Control(paused_by, paused_since_ms, rate, stop, pause_all, held, tuple(told["overridden"]), tables)


def spell_tables(tables: Sequence["SinkTable"]) -> str:
    """As the catalog keeps them: JSON."""
    return f"[{', '.join(encode(table) for table in tables)}]"


def become(db: DuckDBPyConnection, job: str, then: JobState, reason: Limit | str = "") -> None:
    """Make one transition. reason: the transition's own if empty. Raises StateConflict if it is not allowed."""
    now = standing(db, job).state
    if not may_become(now, then):
        raise StateConflict(f"job {job!r} is {now}: it cannot become {then}", command(f"status {job}"))
    if now == then and not reason:
        return
    why = Limit.of(reason or TRANSITIONS[now, then])
    db.execute("UPDATE jobs SET state = ?, reason = ?, why = ? WHERE name = ?", [then, *why.columns, job])


def use_epoch(db: DuckDBPyConnection, job: str, epoch: int) -> None:
    """The number is used by a barrier that carries only control. Raises StateConflict if it was used before."""
    last = standing(db, job).last_epoch
    if epoch <= last:
        raise StateConflict(
            f"job {job!r}: commit {epoch} is not after commit {last}, the newest one", command(f"status {job}")
        )
    db.execute("UPDATE jobs SET last_epoch = ? WHERE name = ?", [epoch, job])


def set_progress(db: DuckDBPyConnection, job: str, progress: Progress) -> None:
    db.execute(
        "UPDATE jobs SET progress = ?, caught_up_ms = coalesce(caught_up_ms, ?) WHERE name = ?",
        [encode(progress), progress.caught_up_ms, job],
    )


def forget(db: DuckDBPyConnection, job: str) -> None:
    """Only the job's token is left, so that a runner that outlived the job is still refused."""
    db.execute("DELETE FROM jobs WHERE name = ?", [job])
    for table in (
        "splits",
        "split_progress",
        "checkpoints",
        "commands",
        "ledger",
        "ledger_hours",
        "runs",
        "spool",
        "verified",
        "compared",
        "refills",
    ):
        db.execute(f"DELETE FROM {table} WHERE job = ?", [job])


def no_such_job(db: DuckDBPyConnection, job: str) -> NoSuchJob:
    return unknown(job, names(db))


def unknown(job: str, known: tuple[str, ...]) -> NoSuchJob:
    """The error that names the job meant, or those that exist."""
    if not known:
        return NoSuchJob(f"job {job!r} does not exist: the catalog is empty", command("start --config job.toml"))
    said = f"job {job!r} does not exist{spell_known(job, known, 'jobs')}"
    return NoSuchJob(said, command(f"status {nearest_first(job, known)[0]}"))
