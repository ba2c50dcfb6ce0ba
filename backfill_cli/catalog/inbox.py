"""The inbox: commands insert a row, the runner polls at each barrier, `<catalog>.wake` tells it when to read.

The runner reads the wake file's stamp before the inbox; the writer touches the file after its transaction. So a
command is seen at the next poll, or else the stamp has changed again by then.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from backfill_cli.catalog import jobs, ledger, refills
from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.model.aside import with_sections
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import ENDED, OF_RUNS, REDEFINES, Barrier, Command, JobState, Verb
from backfill_cli.model.limit import Limit

# Taken commands are kept for those who wait for theirs, and for people who read the history.
KEPT_TAKEN = 1_000

_COMMAND = "id, verb, \"by\", at_ms, rate, coalesce(guard, ''), coalesce(lifts, ''), coalesce(payload, '')"

Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Taken:
    """A command that was taken. epoch: the barrier at which it took effect."""

    command: Command
    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that its barrier, of this epoch, has refused."""

    command: Command
    epoch: int
    why: Limit


def add(
    db: DuckDBPyConnection,
    job: str,
    verb: Verb,
    rate: float | None,
    by: str,
    now_ms: int,
    guard: str = "",
    lifts: str = "",
    payload: str = "",
) -> Command:
    """The command is in the inbox, not yet taken."""
    row = db.execute("SELECT coalesce(max(id), 0) + 1 FROM commands").fetchone()
    assert row is not None
    command = Command(row[0], verb, by, now_ms, rate, guard, lifts, payload)
    db.execute(
        "INSERT INTO commands VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, ?, ?, ?, NULL)",
        [command.id, job, verb, rate, by, now_ms, guard or None, lifts or None, payload or None],
    )
    return command


def waiting(db: DuckDBPyConnection, job: str) -> tuple[Command, ...]:
    """Commands not taken, oldest first."""
    found = db.execute(
        f"SELECT {_COMMAND} FROM commands WHERE job = ? AND taken_epoch IS NULL ORDER BY id", [job]
    ).fetchall()
    return tuple(Command(row[0], Verb(row[1]), *row[2:]) for row in found)


def redefining(db: DuckDBPyConnection, job: str) -> tuple[Command, ...]:
    """The commands that wait to redefine the job, oldest first."""
    return tuple(one for one in waiting(db, job) if one.verb in REDEFINES)


def refuse(db: DuckDBPyConnection, job: str, command: Command, why: Limit) -> None:
    """Its barrier says why the command has changed nothing."""
    told = json.dumps(asdict(why), ensure_ascii=False)
    db.execute("UPDATE commands SET refused = ? WHERE job = ? AND id = ?", [told, job, command.id])


def refusal(db: DuckDBPyConnection, job: str, command_id: int) -> Limit | None:
    """Why a taken command was refused; None if it was not."""
    row = db.execute("SELECT refused FROM commands WHERE job = ? AND id = ?", [job, command_id]).fetchone()
    return None if row is None or row[0] is None else Limit.read(json.loads(row[0]))


def refused_last(db: DuckDBPyConnection, job: str) -> Refused | None:
    """The newest command that was to change what the job is; None if it was not refused."""
    row = db.execute(
        f"""SELECT {_COMMAND}, taken_epoch, refused FROM commands
           WHERE job = ? AND taken_epoch IS NOT NULL AND verb IN ('set', 'add', 'remove')
           ORDER BY id DESC LIMIT 1""",
        [job],
    ).fetchone()
    if row is None or row[-1] is None:
        return None
    return Refused(Command(row[0], Verb(row[1]), *row[2:-2]), row[-2], Limit.read(json.loads(row[-1])))


def redefined(db: DuckDBPyConnection, job: str) -> tuple[Command, ...]:
    """The commands that have changed what the job is, oldest first, as far as they are kept."""
    found = db.execute(
        f"""SELECT {_COMMAND} FROM commands WHERE job = ? AND taken_epoch IS NOT NULL AND refused IS NULL
           AND verb IN ('set', 'add', 'remove') ORDER BY id""",
        [job],
    ).fetchall()
    return tuple(Command(row[0], Verb(row[1]), *row[2:]) for row in found)


def taken_after(db: DuckDBPyConnection, job: str, epoch: int) -> tuple[Taken, ...]:
    """Commands that were taken after this epoch, in order."""
    found = db.execute(
        f"""SELECT {_COMMAND}, taken_epoch FROM commands
           WHERE job = ? AND taken_epoch > ? ORDER BY taken_epoch, id""",
        [job, epoch],
    ).fetchall()
    return tuple(Taken(Command(row[0], Verb(row[1]), *row[2:-1]), row[-1]) for row in found)


def take(db: DuckDBPyConnection, job: str, commands: Sequence[Command], epoch: int, now_ms: int) -> None:
    """These commands are taken by the barrier `epoch`; the oldest taken ones are deleted."""
    if not commands:
        return
    refills.take(db, job, commands, epoch, now_ms)
    db.execute(
        "UPDATE commands SET taken_epoch = $epoch, taken_ms = $now WHERE job = $job AND list_contains($ids, id)",
        {"epoch": epoch, "now": now_ms, "job": job, "ids": [command.id for command in commands]},
    )
    db.execute(
        """DELETE FROM commands WHERE job = $job AND taken_epoch IS NOT NULL AND id <=
           (SELECT id FROM commands WHERE job = $job ORDER BY id DESC LIMIT 1 OFFSET $kept)""",
        {"job": job, "kept": KEPT_TAKEN},
    )


def apply(db: DuckDBPyConnection, job: str, now_ms: int) -> None:
    """The waiting commands are applied at once, because no live runner could take them: at a barrier of their own,
    which the ledger has as it has a runner's.

    A stop is reached at once; the effect of other commands is kept in the control state for the next runner. A
    table joins or leaves the job only where a runner can do it.
    """
    standing = jobs.standing(db, job)
    commands = tuple(one for one in waiting(db, job) if one.verb not in OF_RUNS)
    if not commands:
        return
    barrier = Barrier.taking(commands, standing.last_epoch, now_ms, standing.control)
    control, epoch = barrier.mutations.control, barrier.epoch
    if control.stop and standing.state not in ENDED:
        jobs.become(db, job, JobState.STOPPING)
        jobs.become(db, job, JobState.STOPPED, "a stop was requested without a live runner")
    elif control.paused and standing.state in (JobState.RUNNING, JobState.PAUSING):
        jobs.become(db, job, JobState.PAUSED, "a pause was requested without a live runner")
    for command in commands:
        if command.verb is Verb.SET:
            change = Change.read(command.payload)
            jobs.configure(db, job, change.config, change.file)
            jobs.set_aside(db, job, with_sections(jobs.aside(db, job), change.sections))
            control = change.paced(control)
    jobs.set_control(db, job, replace(control, stop=False))
    take(db, job, commands, epoch, now_ms)
    jobs.use_epoch(db, job, epoch)
    ledger.record(
        db, job, EpochRecord(epoch, barrier.prev_ms, standing.phase, epoch, mutations=barrier.mutations.verbs)
    )


def forget_stops(db: DuckDBPyConnection, job: str, now_ms: int) -> None:
    """Stops are cleared with the runner they were meant for: the next one does not stop at once. A pause stays."""
    standing = jobs.standing(db, job)
    stops = [command for command in waiting(db, job) if command.verb == Verb.STOP]
    take(db, job, stops, standing.epoch, now_ms)
    jobs.set_control(db, job, replace(standing.control, stop=False))


def taken(db: DuckDBPyConnection, job: str, command_id: int) -> int | None:
    """The epoch of the barrier that took the command; None while it waits, or if there is no such command."""
    row = db.execute("SELECT taken_epoch FROM commands WHERE job = ? AND id = ?", [job, command_id]).fetchone()
    return None if row is None else row[0]


def wake_file(catalog: Path) -> Path:
    return Path(f"{catalog}.wake")


def stamp(catalog: Path) -> Stamp:
    """A value that changes with every touch. Time alone would not: two touches can share a clock tick."""
    try:
        seen = os.stat(wake_file(catalog))
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def touch(catalog: Path) -> None:
    """Tell runners to read the inbox: the file grows by one byte."""
    handle = os.open(wake_file(catalog), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, b".")
    finally:
        os.close(handle)
