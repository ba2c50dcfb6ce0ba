"""What a sink in a lake keeps of a job beside its tables: claims, owner, the checkpoint of an epoch.

Nothing here says what is committed: the marker in a table does, written with the table's rows. So every file is
written once, under a name of its own:

    job-<number>.json                 who has the job, and which tables; the highest number counts
    definition-<epoch>-<digest>.json  what a lost catalog is rebuilt from; written when it changes
    epoch-<epoch>-<attempt>.json      the checkpoint of that epoch and attempt, written before the first row of it

An epoch's file counts once a marker names its epoch and attempt. A runner whose token is too old may still write
one, which no marker will ever name.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated
from urllib.parse import quote, unquote

from backfill_cli.contracts import EpochCommit, SavedJob
from backfill_cli.errors import Fatal, Held, StateConflict, Transient
from backfill_cli.formats.lake.blobs import Blobs
from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.codec import Pairs, decode, encode
from backfill_cli.model.split import SplitKey, SplitProgress

FOLDER = "_backfill_state"
LAYOUT = 1
FEW_SPLITS = 256
"""So many are written whole with each epoch: 20 KB. Of more, those that moved, on top of the epoch before."""
LONGEST_CHAIN = 50
"""Epochs between two files that hold all splits: what a reader has to open at most."""
TRIES = 10


@dataclass(frozen=True, slots=True)
class Claim:
    """One table of a job. place: where it is, the same text for all spellings. id: of this claim; markers of an
    earlier one do not count. token: that the job had when the table was claimed. branch: of the table, which the
    job fills until it is cut over; None for the table's own."""

    place: str
    id: str
    token: int = 0
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A table that was about to be cut over, or is: the table says which. kept: the name of what was before."""

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
    """The checkpoint after an epoch. definition: its file. splits: all of them, or what moved since `base`."""

    definition: str
    checkpoint: Checkpoint
    splits: Annotated[Mapping[SplitKey, SplitProgress], Pairs()]
    base: str | None = None
    chain: int = 0


class JobState:
    """A job's files, below the folder of the sink that has it."""

    def __init__(self, folder: Blobs, job: str) -> None:
        self._job, self._files = job, folder.below(quote(job, safe=""))
        self._last: tuple[str, dict[SplitKey, SplitProgress]] | None = None

    def record(self) -> JobRecord | None:
        """None where this sink has nothing of the job. Raises Fatal for one that a newer backfill wrote."""
        found = self._newest()
        return found[1] if found else None

    def change(self, act: Callable[[JobRecord | None], JobRecord]) -> JobRecord:
        """What `act` makes of the record is the record; asked again where another process was quicker."""
        for _ in range(TRIES):
            found = self._newest()
            before, record = found if found else (0, None)
            wanted = act(record)
            if wanted == record:
                return wanted
            try:
                self._files.create(_numbered(before + 1), encode(wanted).encode())
            except FileExistsError:
                continue
            if any(other > before + 1 for other in self._records()):
                # Others went on while this process stood still, and removed the name that it took.
                self._files.delete(_numbered(before + 1))
                continue
            for older in self._records():
                if older < before:  # the one before stays for those who just listed it
                    self._files.delete(_numbered(older))
            return wanted
        raise Transient(
            f"job {self._job!r}: others change its record in {self._files.root} all the time",
            "let one runner alone have the job: look for another catalog that runs it",
        )

    def own(self, owner: Owner, instead_of: Owner | None) -> None:
        """`owner` has the job. Raises Held when another catalog than `instead_of` has it by now."""

        def taken(record: JobRecord | None) -> JobRecord:
            held = None if record is None else record.owner
            if held is not None and held.catalog not in (owner.catalog, instead_of and instead_of.catalog):
                raise Held(
                    f"another catalog took job {self._job!r} just now: {held}",
                    f"backfill status {self._job} {held.option}",
                )
            return replace(record or JobRecord(self._job), owner=owner)

        self.change(taken)

    def began(self) -> bool:
        """Whether an epoch was about to be committed: tables that are not there any more held rows then."""
        return any(name.startswith("epoch-") for name in self._files.names())

    def save(self, commit: EpochCommit, before: Marker) -> None:
        """The state after this epoch is there; it counts once a marker says so. before: a table's marker now.

        Asked before each table of the epoch, and written once. What no marker can name any more is removed: states
        that those of the epoch before do not rest on.
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

        Raises StateConflict where one is behind: the staged rows that it lacks are known to the catalog alone.
        """
        begun = {table: marker for table, marker in markers.items() if marker.epoch}
        newest = max(begun.values(), key=lambda marker: marker.epoch, default=None)
        behind = sorted(table for table, marker in begun.items() if newest and marker.epoch != newest.epoch)
        if newest is not None and behind:
            raise StateConflict(
                f"job {self._job!r}: table {behind[0]!r} is at epoch {begun[behind[0]].epoch}, others at "
                f"{newest.epoch}: its runner died between two tables, and what is missing is known to its catalog "
                "alone",
                f"go on with that catalog: backfill resume {self._job}; or start over: backfill drop {self._job} "
                f"--with-rows --confirm {self._job}",
            )
        return newest

    def saved(self, marker: Marker) -> SavedJob | None:
        """What `save` kept of the epoch that this marker names, with all splits; None before the first epoch."""
        if not marker.epoch:
            return None
        name = _name(marker.epoch, marker.attempt)
        state = self._state(name)
        if state is None:
            return None
        definition = self._files.read(state.definition).decode()
        return SavedJob(definition, replace(state.checkpoint, splits=self._splits(name, state)))

    def newest_epoch(self) -> int:
        """Of the states that are here, committed or not; 0 where there are none."""
        return max((_epoch_of(name) for name in self._files.names() if name.startswith("epoch-")), default=0)

    def forget(self) -> None:
        """Nothing is left of the job."""
        self._last = None
        self._files.delete_all()

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
                raise Fatal(f"job {self._job!r}: {self._files.root}/{state.base} is gone", "restore it")
            state = base
            layers.append(state.splits)
        return {key: split for layer in reversed(layers) for key, split in layer.items()}

    def _clean(self, before: Marker, held: EpochState) -> None:
        """What the epoch before does not rest on goes, if older: a late runner removes nothing that counts."""
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
            return  # of the same attempt, or the same digest

    def _state(self, name: str) -> EpochState | None:
        try:
            return decode(EpochState, self._files.read(name).decode())
        except FileNotFoundError:
            return None

    def _newest(self) -> tuple[int, JobRecord] | None:
        for _ in range(TRIES):
            numbers = self._records()
            if not numbers:
                return None
            try:
                record = decode(JobRecord, self._files.read(_numbered(numbers[-1])).decode())
            except FileNotFoundError:
                continue  # a newer one is there by now
            if record.layout > LAYOUT:
                raise Fatal(
                    f"a newer backfill wrote {self._files.root} (layout {record.layout}, ours is {LAYOUT})",
                    "upgrade it",
                )
            return numbers[-1], record
        raise Transient(
            f"job {self._job!r}: others change its record in {self._files.root} all the time",
            "let one runner alone have the job: look for another catalog that runs it",
        )

    def _records(self) -> list[int]:
        return [int(name[4:-5]) for name in self._files.names() if name.startswith("job-")]


def jobs(folder: Blobs) -> list[JobRecord]:
    """The records of all jobs that have something here."""
    found = (JobState(folder, unquote(name)).record() for name in folder.names())
    return [record for record in found if record is not None]


def _numbered(number: int) -> str:
    return f"job-{number:09d}.json"


def _name(epoch: int, attempt: str) -> str:
    return f"epoch-{epoch:016d}-{quote(attempt, safe='')}.json"


def _epoch_of(name: str) -> int:
    return int(name.split("-")[1])


def _definition(commit: EpochCommit, held: EpochState | None) -> str:
    """The name of the definition's file: the one that the epoch before has, where it is the same."""
    digest = hashlib.sha256(commit.saved.definition.encode()).hexdigest()[:32]
    if held is not None and held.definition.endswith(f"-{digest}.json"):
        return held.definition
    return f"definition-{commit.epoch:016d}-{digest}.json"
