"""The spool on a file system: a folder per job, containing a self-describing folder per entry.

An entry exists once its `entry.json` does: it is written last, when everything else is on disk. A folder without
one is from an interrupted take, which was never acknowledged.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from backfill_cli.contracts import SpoolEntry
from backfill_cli.engine.staging.files import sync, sync_one
from backfill_cli.errors import RESTORE, START_OVER, StateConflict, Transient, in_config
from backfill_cli.failpoint import hit
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.position import Position

ENTRY, OWNER = "entry.json", "owner.json"

T = TypeVar("T")


class Spool:
    """A job's spool. root: the config's `spool.path`. owner: distinguishes the job from others of its name.

    shown: a position in the notation of the log's system.
    """

    def __init__(self, root: str, job: str, owner: str, shown: Callable[[Position], str] = str) -> None:
        self.job, self._owner, self._shown = job, owner, shown
        self._folder = Path(root) / job

    def open(self) -> None:
        """The folder exists and is this job's. Raises StateConflict for another's, Transient for disk errors."""
        path = self._folder / OWNER
        mine = {"job": self.job, "owner": self._owner}
        with _on_disk(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _write(path, json.dumps(mine))
            return
        if self._json(path, json.loads, "whose it is") != mine:
            raise StateConflict(
                f"the spool {self._folder} belongs to another catalog's job {self.job!r}",
                in_config("set another folder in spool.path, or drop that job"),
            )

    def place(self, name: str) -> Path:
        """The folder of an entry, by its name."""
        return self._folder / name

    def seal(self, entry: SpoolEntry) -> SpoolEntry:
        """The entry, durable and with the digests of its files, which are in its folder."""
        folder = self.place(entry.name)
        files = [file.path for table in entry.tables.values() for file in table.files]
        with _on_disk(folder):
            sealed = replace(entry, digests={path: _digest(folder / path) for path in files})
            sync(folder)
        hit("spool-before-seal")
        _write(folder / ENTRY, encode(sealed))
        with _on_disk(self._folder):
            sync_one(self._folder)
        return sealed

    def entries(self, after: Position, known: Sequence[SpoolEntry]) -> tuple[SpoolEntry, ...]:
        """The spool's entries after a position, in order: those known to the catalog, then those that follow.

        A lost catalog knows none, and one that was killed may lack the newest entry. Raises StateConflict if an
        entry that the catalog knows is gone or damaged: it was acknowledged upstream.
        """
        there = [self._json(path, _entry, "what its entry holds") for path in self._folder.glob(f"*/{ENTRY}")]
        chain = in_order(after, known, there)
        for entry in chain:
            self.require_whole(entry)
        memories = {entry.name: entry.memory for entry in there}  # the catalog keeps none
        return tuple(replace(entry, memory=memories.get(entry.name, "")) for entry in chain)

    def _json(self, path: Path, read: Callable[[str], T], what: str) -> T:
        """What a file of ours says. Raises StateConflict for a damaged one, Transient for disk errors."""
        with _on_disk(path):
            text = path.read_bytes()
        try:
            return read(text.decode())
        except ValueError as exc:
            raise self._damaged(path, f"is damaged: it does not say any more {what}") from exc

    def require_reach(self, taken: Position, after: Position, entries: Sequence[SpoolEntry]) -> None:
        """The spool reaches from a position to where the log was taken. Raises StateConflict if it does not."""
        end = entries[-1].window.up_to if entries else after
        if not taken <= end:
            raise StateConflict(
                f"job {self.job!r}: the log was read up to {self._told(taken)}, but its spool {self._folder} "
                f"ends at {self._told(end) or 'nothing'}: the upstream may no longer have what lies between",
                "restore that folder, or set the right one in spool.path, or " + START_OVER,
            )

    def require_whole(self, entry: SpoolEntry) -> None:
        """Every file of an entry exists with its size. Raises StateConflict naming the first that does not."""
        folder = self.place(entry.name)
        for file in (file for table in entry.tables.values() for file in table.files):
            path = folder / file.path
            if not path.is_file() or path.stat().st_size != file.size_bytes:
                how = "is gone" if not path.is_file() else "has the wrong size"
                raise self._damaged(path, f"{how}; {self._held(entry)}")

    def require_unchanged(self, entry: SpoolEntry) -> None:
        """As `require_whole`, and each file holds what was written. Called before it is read."""
        self.require_whole(entry)
        for name, digest in entry.digests.items():
            path = self.place(entry.name) / name
            with _on_disk(path):
                found = _digest(path)
            if found != digest:
                raise self._damaged(path, f"is damaged; {self._held(entry)}")

    def _damaged(self, path: Path, how: str) -> StateConflict:
        return StateConflict(f"job {self.job!r}: the spool's file {path} {how}", RESTORE)

    def _held(self, entry: SpoolEntry) -> str:
        after, up_to = entry.window.after, entry.window.up_to
        ends = f"{self._told(after) or 'the beginning'} to {self._told(up_to) or 'the beginning'}"
        return f"it holds the changes from {ends}, which the upstream may no longer have"

    def _told(self, position: Position) -> str:
        return self._shown(position) if position.cursors else ""

    def remove(self, entry: SpoolEntry) -> None:
        """Removes an entry that is in the sink, or was never completed."""
        shutil.rmtree(self.place(entry.name), ignore_errors=True)

    def sweep(self, keep: Sequence[SpoolEntry]) -> None:
        """Removes everything except the owner's file and these entries."""
        kept = {OWNER, *(entry.name for entry in keep)}
        for path in self._folder.iterdir():
            if path.name in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:  # of a write that was interrupted
                with suppress(OSError):
                    path.unlink()


def owned(root: str, job: str) -> bool:
    """Whether some job of this name has its spool there."""
    return (Path(root) / job / OWNER).exists()


def holds_entries(root: str, job: str) -> bool:
    """Whether the job's spool exists and holds some of its log."""
    return any((Path(root) / job).glob(f"*/{ENTRY}"))


def _entry(text: str) -> SpoolEntry:
    return decode(SpoolEntry, text)


def in_order(after: Position, known: Sequence[SpoolEntry], there: Sequence[SpoolEntry]) -> tuple[SpoolEntry, ...]:
    """What follows a position: the known entries, then those existing entries that continue from their end.

    If two continue from the same place, the one from which the spool reaches furthest is used: the take of the
    other was interrupted.
    """
    # by where an entry begins: how far the spool reaches from there, and through which entry
    follows: dict[Position, tuple[Position, SpoolEntry]] = {}
    for entry in sorted(there, key=lambda one: one.name, reverse=True):
        end = follows[entry.window.up_to][0] if entry.window.up_to in follows else entry.window.up_to
        known_end = follows[entry.window.after][0] if entry.window.after in follows else entry.window.after
        if known_end <= end:
            follows[entry.window.after] = end, entry
    chain = [entry for entry in known if not entry.window.up_to <= after]
    while (more := follows.get(chain[-1].window.up_to if chain else after)) is not None:
        chain.append(more[1])
    return tuple(chain)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _write(path: Path, text: str) -> None:
    """The file has this text and is on disk, or does not exist."""
    part = path.with_suffix(".part")
    with _on_disk(path):
        with part.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_one(path.parent)


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise Transient(f"spool {path}: {exc.strerror}", in_config("check spool.path and the disk")) from exc
