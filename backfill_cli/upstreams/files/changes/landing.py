"""Lists the folder where change files land, at a cost that depends on what is new.

A local folder is listed again only if it changed, and only new names are inspected: for 100,000 known files, only
the names are read. Writing a file in place does not change its folder: see `again`. An object store lists names
with sizes and times; those of known files are kept aside until `again` is asked for them, so that the caller can
compare them with what it read.
"""

import os
import stat
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import filterfalse, pairwise

from backfill_cli.formats.listing import File, Listing, Place, hidden, readable, refuse_table
from backfill_cli.model.names import by_numbers, in_order
from backfill_cli.spark.failures import reading
from backfill_cli.upstreams.files.changes import connect_files
from backfill_cli.upstreams.files.changes.connect_files import Named

_SETTLED_NS = 1_000_000_000
"""As in listing.py: timestamps of file systems are coarse."""

_FEW = 64
"""Up to this many new names are inserted one by one; beyond that the list is sorted again."""

_AGAIN = 4
"""Listings, at most, until one finds nothing new."""

_STEP = 1_000
"""Names of two listings that are compared at a time."""


@dataclass(slots=True)
class _Folder:
    """A folder as last listed. taken_ns: when. mtime_ns: its modification time just before. names: its entries.

    listed: the names in the order listed, all of them in `names`. File systems list a folder in the same order
    each time, apart from names that were added or removed.
    """

    mtime_ns: int = 0
    taken_ns: int = 0
    names: set[str] = field(default_factory=set)
    listed: list[str] = field(default_factory=list)

    def settled(self, mtime_ns: int) -> bool:
        return mtime_ns == self.mtime_ns and self.taken_ns - mtime_ns >= _SETTLED_NS

    def take(self, there: list[str]) -> tuple[list[str], set[str]]:
        """(names that are new, names that are gone) in a newer listing, which replaces this one.

        Names in the same place as before are known, and are not looked up one by one.
        """
        begin, end = _alike(self.listed, there)
        new = list(filterfalse(self.names.__contains__, there[begin : len(there) - end]))
        lost = self.names.difference(there) if len(there) - len(new) < len(self.names) else set[str]()
        self.names -= lost
        self.names.update(new)
        self.listed = there
        return new, lost

    def forget(self, name: str) -> None:
        """The file disappeared between two listings; if it reappears, also in its old place, it counts as new."""
        self.names.discard(name)
        self.listed = []


class Landed:
    """Files in the order of the numbers in their names. files: by name. names: in that order."""

    def __init__(self, where: Place) -> None:
        self.where = where
        self.files: dict[str, File] = {}
        self.names: list[str] = []

    def between(self, after: str | None, up_to: str | None) -> Sequence[str]:
        """The names after `after`, up to `up_to`; None: no bound."""
        begin = 0 if after is None else self._after(after)
        end = len(self.names) if up_to is None else self._after(up_to)
        return self.names[begin:end]

    def before(self, name: str) -> str | None:
        """The name before this one, which need not be there; None if it would be the first."""
        at = bisect_left(self.names, by_numbers(name), key=by_numbers)
        return self.names[at - 1] if at > 0 else None

    def _after(self, name: str) -> int:
        return bisect_right(self.names, by_numbers(name), key=by_numbers)

    def _put(self, added: Sequence[File]) -> None:
        self.files.update((file.name, file) for file in added)
        self._insert(in_order(file.name for file in added))

    def _drop(self, name: str) -> File:
        del self.names[bisect_left(self.names, by_numbers(name), key=by_numbers)]
        return self.files.pop(name)

    def _insert(self, new: Sequence[str]) -> None:
        if not new:
            return
        if not self.names or by_numbers(new[0]) > by_numbers(self.names[-1]):
            self.names.extend(new)
        elif len(new) <= _FEW:
            for name in new:
                insort(self.names, name, key=by_numbers)
        else:
            self.names = in_order(self.files)


class Partition(Landed):
    """Those of one partition of a topic, whatever folder they are in: their names are without it."""

    def __init__(self, of: "Landing") -> None:
        super().__init__(of.where)
        self._of = of
        self._full: dict[str, str] = {}
        self._added: list[File] = []
        self._gone: list[File] = []

    def exists(self) -> bool:
        return True

    def again(self, name: str) -> File | None:
        """See Landing."""
        found = self._of.now(self.files[name], self._full[name])
        if found is not None:
            self.files[name] = found
        return found

    def refresh(self) -> tuple[list[File], list[File]]:
        """(files that are new, files that are gone) since the last call, as the folder was last listed."""
        news = self._added, self._gone
        self._added, self._gone = [], []
        return news

    def moves(self, names: Sequence[str]) -> list[tuple[File, File]]:
        """Neighbours of these that are in different folders. names: in order; a file may be gone."""
        there = [name for name in names if name in self.files]
        folder = {name: self._full[name].rpartition("/")[0] for name in there}
        return [(self.files[a], self.files[b]) for a, b in pairwise(there) if folder[a] != folder[b]]

    def newest_by_time(self) -> Sequence[File]:
        """The last file, if the next one can come into another folder."""
        last = self.names[-1:]
        return [self.files[one] for one in last if connect_files.is_by_time(self._full[one].rpartition("/")[0])]

    def take(self, found: Sequence[tuple[Named, File]]) -> None:
        """Adopt files. Raises BadData, and adopts none, for a second one of its name."""
        new = dict[str, File]()
        for named, file in found:
            other = self.files.get(named.name) or new.setdefault(named.name, file)
            if other is not file:
                raise connect_files.twice(file.path, other.path)
        added = [replace(file, name=named.name) for named, file in found]
        self._full |= {named.name: file.name for named, file in found}
        self._put(added)
        self._added += added

    def lose(self, name: str) -> None:
        del self._full[name]
        self._gone.append(self._drop(name))


class Landing(Landed):
    """The files of one place as last listed.

    partitions: the files that are of a topic's partitions, by the partition's number; they are not among `files`.
    """

    def __init__(self, where: Place) -> None:
        super().__init__(where)
        self.partitions: dict[int, Partition] = {}
        self._topic: str | None = None
        self._new = 0
        self._untold: tuple[list[File], list[File]] = [], []  # by a call that failed meanwhile
        self._parted: dict[str, Named] = {}
        self._valued = replace(where, valued=True)
        self._listing = Listing(self._valued)
        self._folders: dict[str, _Folder] = {}
        self._remote_files: Mapping[str, File] = {}

    def exists(self) -> bool:
        return self._listing.exists()

    def again(self, name: str) -> File | None:
        """One file's current state, which replaces the remembered one; None if it is gone.

        On an object store: its state when it was last listed.
        """
        found = self.now(self.files[name], name)
        if found is not None:
            self.files[name] = found
        return found

    def now(self, file: File, listed: str) -> File | None:
        """The current state of a file; None if it is gone. listed: its name below the folder."""
        if self.where.local:
            return self._listing.again(file)
        found = self._remote_files.get(listed)
        return found if found is None or listed == file.name else replace(found, name=file.name)

    def refresh(self) -> tuple[list[File], list[File]]:
        """(files that are new, files that are gone) since the last call, which `files` and `names` now show.

        Lists until nothing is new: a file can land behind a listing, and one that follows it before that listing.
        """
        for _ in range(_AGAIN):
            added, lost = self._refreshed()
            self._untold = [*self._untold[0], *added], [*self._untold[1], *lost]
            if not self._new:
                break
        (added, lost), self._untold = self._untold, ([], [])
        return [file for file in added if file.name in self.files], lost

    def _refreshed(self) -> tuple[list[File], list[File]]:
        """The same of one listing.

        After a failure the next call lists everything again: names seen by the failed call would count as known.
        """
        again = self.where.local and not self._folders
        with reading(self.where.shown, "folder"):
            try:
                added, gone = self._local() if self.where.local else self._remote()
                if again:
                    there = {file.name for file in added}
                    gone = [name for name in (*self.names, *self._parted) if name not in there]
                    added = [file for file in added if not self._knows(file.name)]
                lost = [self._drop(name) for name in gone if name in self.files]
                for name in gone:
                    if (named := self._parted.pop(name, None)) is not None:
                        self.partitions[named.partition].lose(named.name)
                self._new = len(added)
                added = self._without_parted(added)
            except BaseException:
                self._folders = {}
                raise
        self._put(added)
        return added, lost

    def _knows(self, name: str) -> bool:
        return name in self.files or name in self._parted

    def _without_parted(self, added: Sequence[File]) -> list[File]:
        """These files without those of a topic's partitions, which go there."""
        mine, parted = list[File](), dict[int, list[tuple[Named, File]]]()
        for file in added:
            named = connect_files.named(file)
            if named is None:
                mine.append(file)
            else:
                parted.setdefault(named.partition, []).append((named, file))
        for number, found in sorted(parted.items()):
            for named, file in found:
                self._topic = self._topic or named.topic
                if named.topic != self._topic:
                    raise connect_files.other_topic(file, named.topic, self._topic)
            self.partition(number).take(found)
            self._parted |= {file.name: named for named, file in found}
        return mine

    def partition(self, number: int) -> Partition:
        """The files of a partition, which need not be there yet."""
        return self.partitions.setdefault(number, Partition(self))

    def _remote(self) -> tuple[list[File], list[str]]:
        there = self._listing.files()
        added = [file for name, file in there.items() if not self._knows(name)]
        gone = [name for name in (*self.files, *self._parted) if name not in there]
        self._remote_files = there
        return added, gone

    def _local(self) -> tuple[list[File], list[str]]:
        added, gone = list[File](), list[str]()
        waiting = list(self._folders) or [""]
        while waiting:
            prefix = waiting.pop()
            there = self._listed(prefix)
            if there is None:
                folder = self._folders.pop(prefix, _Folder())
                gone += [prefix + name for name in folder.names if self._knows(prefix + name)]
                continue
            new, lost = there
            gone += [prefix + name for name in lost if self._knows(prefix + name)]
            for name in new:
                found = self._entry(prefix, name)
                if isinstance(found, File):
                    added.append(found)
                elif found is not None:
                    waiting.append(found)
        return added, gone

    def _listed(self, prefix: str) -> tuple[Iterable[str], Iterable[str]] | None:
        """(names that are new, names that are gone) of one folder; None if the folder itself is gone."""
        path = os.path.join(self.where.folder, prefix)
        folder = self._folders.setdefault(prefix, _Folder())
        try:
            mtime_ns = os.stat(path).st_mtime_ns
            if folder.settled(mtime_ns):
                return (), ()
            taken_ns, names = time.time_ns(), os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        folder.mtime_ns, folder.taken_ns = mtime_ns, taken_ns
        return folder.take(names)

    def _entry(self, prefix: str, name: str) -> File | str | None:
        """A change file, or the prefix of a folder; None for an entry that is ignored."""
        path = os.path.join(self.where.folder, prefix, name)
        refuse_table(self.where, os.path.dirname(path), name)
        if hidden(name, "=" in name and os.path.isdir(path)):
            return None
        try:
            found = os.stat(path)
        except FileNotFoundError:
            self._folders[prefix].forget(name)
            return None
        if stat.S_ISDIR(found.st_mode):
            return f"{prefix}{name}/"
        if not self.where.matches(prefix + name):
            return None
        file = File(prefix + name, path, found.st_size, found.st_mtime_ns, found.st_ino)
        return readable(self._valued, file)


def _alike(one: list[str], other: list[str]) -> tuple[int, int]:
    """(how many names are equal from the start, how many up to the end), in whole steps; none is counted twice."""
    shorter = min(len(one), len(other))
    begin, end = 0, 0
    while begin + _STEP <= shorter and one[begin : begin + _STEP] == other[begin : begin + _STEP]:
        begin += _STEP
    while begin + end + _STEP <= shorter and _from_end(one, end) == _from_end(other, end):
        end += _STEP
    return begin, end


def _from_end(names: list[str], end: int) -> list[str]:
    """The step of names before the last `end` ones."""
    return names[len(names) - end - _STEP : len(names) - end]
