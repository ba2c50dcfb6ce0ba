"""The state of a job that a lake sink keeps beside its tables: claims, owner, the checkpoint of an epoch.

These files do not say what is committed: the marker in a table does, written with the table's rows. So every file
is written once, under a unique name:

    job-<number>.json                 who has the job, and which tables; the highest number counts
    definition-<epoch>-<digest>.json  what a lost catalog is rebuilt from; written when it changes
    epoch-<epoch>-<attempt>.json      the checkpoint of that epoch and attempt, written before its first row

An epoch's file counts once a marker names its epoch and attempt. A runner whose token is too old can still write
one, but no marker will ever name it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, unquote

from backfill_cli.contracts import EpochCommit, SavedJob, own
from backfill_cli.contracts.refusals import newer_layout, taken
from backfill_cli.errors import RESTORE, START_OVER, Fatal, StateConflict, Transient, command, retried
from backfill_cli.lake.blobs import Announced, Blobs
from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.codec import Pairs, decode, encode
from backfill_cli.model.split import SplitKey, SplitProgress

FOLDER = f"{own.PREFIX}state"
LAYOUT = 1
FEW_SPLITS = 256
"""Up to this many splits are all written with each epoch: 20 KB. Of more, only those that moved since the last."""
LONGEST_CHAIN = 50
"""Epochs between two files that hold all splits: the most files that a reader has to open."""
TRIES = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim:
    """One table of a job. place: where it is, the same text for all spellings. id: of this claim; markers of an
    earlier claim do not count. token: the job's when the table was claimed. branch: the table's branch that the
    job fills until its cutover; None for the table itself. derived: of a derived table, which the commit that
    fills it creates. anew: it has been filled before, and any next commit fills it."""

    place: str
    id: str
    token: int = 0
    branch: str | None = None
    derived: bool = False
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A table that was about to be cut over, or is: the table says which. kept: the name of what it replaced."""

    kept: str
    branch: str
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Who has a job and which tables it writes. dropped: markers of tables that `drop` removed. cuts: by table."""

    job: str
    claims: Mapping[str, Claim] = field(default_factory=dict)
    owner: Owner | None = None
    dropped: Mapping[str, Marker] = field(default_factory=dict)
    layout: int = LAYOUT
    cuts: Mapping[str, Cut] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochState:
    """The checkpoint after an epoch. definition: its file. splits: all, or those that moved since `base`."""

    definition: str
    checkpoint: Checkpoint
    splits: Annotated[Mapping[SplitKey, SplitProgress], Pairs()]
    base: str | None = None
    chain: int = 0


class JobState:
    """A job's files, below the folder of the sink that has it."""

    def __init__(self, folder: Blobs, job: str) -> None:
        self.job, self._folder, self._files = job, folder, folder.below(quote(job, safe=""))
        self._last: tuple[str, dict[SplitKey, SplitProgress]] | None = None

    def record(self) -> JobRecord | None:
        """The newest record; None if there is no state of the job. Raises Fatal if a newer backfill wrote it."""
        found = self._newest()
        return found[1] if found else None

    def beside(self, name: str) -> Blobs:
        """A folder for what is kept of one of the job's tables."""
        return self._files.below(name)

    def change(self, act: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """The record, or a first one, is what `act` makes of it; again if another process was quicker."""
        dead = ""
        for _ in range(TRIES):
            found = self._newest()
            before, record = found if found else (0, None)
            wanted = act(record or JobRecord(self.job))
            if wanted == record:
                return wanted
            try:
                self._files.create_alone(_numbered(before + 1), encode(wanted).encode())
            except Announced as other:
                dead = f"; or, if none has, one died in the middle: delete {other}"
                continue
            except FileExistsError:
                continue
            if any(other > before + 1 for other in self._records()):
                # Other processes continued while this one was stopped, and removed the name that it took.
                self._files.delete(_numbered(before + 1))
                continue
            for older in self._records():
                if older < before:  # the one before stays, for a process that has just listed it
                    self._files.delete(_numbered(older))
            return wanted
        raise self._contended(dead)

    def own(self, owner: Owner, instead_of: Owner | None) -> None:
        """`owner` has the job. Raises Held if a catalog other than `instead_of` has it by now."""

        def owned(record: JobRecord) -> JobRecord:
            held = record.owner
            if held is not None and held.catalog not in (owner.catalog, instead_of and instead_of.catalog):
                raise taken(self.job, held)
            return replace(record, owner=owner)

        self.change(owned)

    def note_dropped(self, markers: Mapping[str, Marker]) -> None:
        """The record keeps the markers of tables that are about to be dropped."""

        self.change(lambda record: replace(record, dropped={**record.dropped, **markers}))

    def save(self, commit: EpochCommit, before: Marker) -> None:
        """The state after this epoch is stored; it counts once a marker says so. before: a table's marker now.

        Called before each table of the epoch, and written once. States that no marker can name any more are
        removed: those that the state of the epoch before does not build on.
        """
        name = _name(commit.epoch, commit.attempt)
        if self._last is not None and self._last[0] == name:
            return
        held = self._state(_name(before.epoch, before.attempt)) if before.epoch else None
        kept = self._write(name, commit, before, held)
        self._last = (name, kept)
        if held is not None:
            self._clean(before, held)

    def at_one_epoch(self, markers: Mapping[str, Marker]) -> Marker | None:
        """The marker that all tables with rows have; None before the first epoch.

        Raises StateConflict if one is behind: only the catalog knows the staged rows that it lacks.
        """
        begun = {table: marker for table, marker in markers.items() if marker.epoch}
        newest = max(begun.values(), key=lambda marker: marker.epoch, default=None)
        behind = sorted(table for table, marker in begun.items() if newest and marker.epoch != newest.epoch)
        if newest is not None and behind:
            raise StateConflict(
                f"job {self.job!r}: table {behind[0]!r} is at commit {begun[behind[0]].epoch}, others at "
                f"{newest.epoch}: its runner ended between two tables, and only its catalog knows what is missing",
                "continue with that catalog: " + command(f"resume {self.job}") + "; or " + START_OVER,
            )
        return newest

    def saved(self, marker: Marker) -> SavedJob | None:
        """What `save` stored for the epoch that this marker names, all splits included; None before the first."""
        if not marker.epoch:
            return None
        name = _name(marker.epoch, marker.attempt)
        state = self._state(name)
        if state is None:
            return None
        return SavedJob(
            self._definition(state.definition), replace(state.checkpoint, splits=self._splits(name, state))
        )

    def _definition(self, name: str) -> str:
        try:
            content = self._files.read(name)
        except FileNotFoundError as exc:
            raise self._gone(name) from exc
        if _digest(content) not in name:
            raise self._damaged(name, "it is not what was written")
        return content.decode()

    def _gone(self, name: str) -> Fatal:
        return Fatal(f"job {self.job!r}: {self._files.root}/{name} is gone", RESTORE)

    def _damaged(self, name: str, why: object) -> Fatal:
        return Fatal(
            f"job {self.job!r}: {self._files.root}/{name} is damaged: {' '.join(str(why).split())[:200]}", RESTORE
        )

    def _decoded(self, kind: type[T], name: str) -> T:
        """Raises FileNotFoundError, and Fatal for a file that is not as it was written."""
        content = self._files.read(name)
        try:
            return decode(kind, content.decode())
        except ValueError as exc:
            raise self._damaged(name, exc) from exc

    def newest_epoch(self) -> int:
        """The newest epoch that was about to be committed: tables that are missing now held rows then. 0: none."""
        return max((_epoch_of(name) for name in self._files.names() if name.startswith("epoch-")), default=0)

    def leave(self, tables: Sequence[str]) -> None:
        """The job has no claim to these tables."""

        def left(record: JobRecord) -> JobRecord:
            def rest(told: Mapping[str, Any]) -> dict[str, Any]:
                return {name: one for name, one in told.items() if name not in tables}

            claims, dropped, cuts = rest(record.claims), rest(record.dropped), rest(record.cuts)
            return replace(record, claims=claims, dropped=dropped, cuts=cuts)

        self.change(left)

    def forget(self) -> None:
        """No state of the job is left, and no folder if no other job has state there."""
        self._last = None
        self._files.delete_all()
        self._folder.delete_empty()

    def _write(
        self, name: str, commit: EpochCommit, before: Marker, held: EpochState | None
    ) -> dict[SplitKey, SplitProgress]:
        moved = commit.saved.checkpoint.splits
        known = self._splits(_name(before.epoch, before.attempt), held) if held is not None else {}
        every = {**known, **moved}
        whole = held is None or len(every) <= FEW_SPLITS or held.chain >= LONGEST_CHAIN
        state = EpochState(
            definition=_definition(commit, held),
            checkpoint=replace(commit.saved.checkpoint, splits={}, plan=None, staged=None),
            splits=every if whole else moved,
            base=None if whole else _name(before.epoch, before.attempt),
            chain=0 if whole or held is None else held.chain + 1,
        )
        self._once(state.definition, commit.saved.definition)
        self._once(name, encode(state))
        return every

    def _splits(self, name: str, state: EpochState) -> dict[SplitKey, SplitProgress]:
        if self._last is not None and self._last[0] == name:
            return dict(self._last[1])
        layers = [state.splits]
        while state.base is not None:
            base = self._state(state.base)
            if base is None:
                raise self._gone(state.base)
            state = base
            layers.append(state.splits)
        return {key: split for layer in reversed(layers) for key, split in layer.items()}

    def _clean(self, before: Marker, held: EpochState) -> None:
        """Remove older states that `held` does not build on: thus a late runner removes nothing that counts."""
        oldest, state = before.epoch, held
        while state.base is not None:
            oldest, base = _epoch_of(state.base), self._state(state.base)
            if base is None:
                return
            state = base
        needed = {"epoch": oldest, "definition": _epoch_of(held.definition)}
        for name in self._files.names():
            if name.split("-")[0] in needed and _epoch_of(name) < needed[name.split("-")[0]]:
                self._files.delete(name)

    def _once(self, name: str, text: str) -> None:
        try:
            self._files.create(name, text.encode())
        except FileExistsError:
            return  # written by the same attempt, or with the same digest

    def _state(self, name: str) -> EpochState | None:
        try:
            return self._decoded(EpochState, name)
        except FileNotFoundError:
            return None

    def _newest(self) -> tuple[int, JobRecord] | None:
        for _ in range(TRIES):
            numbers = self._records()
            if not numbers:
                return None
            try:
                record = self._decoded(JobRecord, _numbered(numbers[-1]))
            except FileNotFoundError:
                continue  # a newer one exists by now
            if record.layout > LAYOUT:
                raise newer_layout(str(self._files.root), record.layout, LAYOUT)
            return numbers[-1], record
        raise self._contended()

    def _contended(self, dead: str = "") -> Transient:
        return Transient(
            f"job {self.job!r}: other processes keep changing its record in {self._files.root}",
            retried(f"let only one runner have the job, of one catalog{dead}"),
        )

    def _records(self) -> list[int]:
        return [int(name[4:-5]) for name in self._files.names() if name.startswith("job-")]


def jobs(folder: Blobs) -> list[JobRecord]:
    """The records of all jobs with state here."""
    found = (JobState(folder, unquote(name)).record() for name in folder.names())
    return [record for record in found if record is not None]


def _numbered(number: int) -> str:
    return f"job-{number:09d}.json"


def _name(epoch: int, attempt: str) -> str:
    return f"epoch-{epoch:016d}-{quote(attempt, safe='')}.json"


def _epoch_of(name: str) -> int:
    return int(name.split("-")[1])


def _digest(definition: bytes) -> str:
    return hashlib.sha256(definition).hexdigest()[:32]


def _definition(commit: EpochCommit, held: EpochState | None) -> str:
    """The name of the definition's file: that of the epoch before if the definition is the same."""
    digest = _digest(commit.saved.definition.encode())
    if held is not None and held.definition.endswith(f"-{digest}.json"):
        return held.definition
    return f"definition-{commit.epoch:016d}-{digest}.json"
