"""Remembers the change files that were applied, so that late, grown, replaced and renamed files are detected.

The newest files are kept individually (name, size, time), older ones in groups with a count and a digest. If files
of a group were removed, the rest is judged by the group's newest time; no other check depends on clocks.
The errors about them have the commands that undo what is not allowed.
"""

import base64
import hashlib
import json
import shlex
import zlib
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from backfill_cli.errors import START_OVER, Fatal, Hint, HistoryGone, shell
from backfill_cli.formats.listing import File, touched
from backfill_cli.model.names import by_numbers, in_order, unlike_text
from backfill_cli.model.position import Cursor
from backfill_cli.upstreams.files.changes.connect_files import told_by

GROUP = 500
"""Files in a group. At least this many of the newest files, and fewer than twice this many, are not grouped."""

_ORDER = "numbers"
"""Of names, in what is remembered; versions that said nothing ordered them as texts."""

Entry = tuple[str, int, int]
"""(name, size, mtime_ns)"""


@dataclass(frozen=True, slots=True)
class Group:
    """Files that were applied one after the other. last: name of the last one. newest_ns: the newest time."""

    last: str
    count: int
    digest: str
    newest_ns: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """file: the file at fault. was: what was applied under its name, None if nothing was (it came late)."""

    file: File
    was: Entry | None = None


@dataclass(frozen=True, slots=True)
class AppliedFiles:
    """count: files applied since the pin. inodes: of the recent ones, 0 if unknown. highest: the largest version
    among them, for formats with versions. waiting, newest: how many files followed that were not applied yet, and
    the name of the last one. columns: what they made of the snapshot's columns, as JSON; "" if they changed none,
    or if that is not known. as_texts: an earlier version applied them, in the order of their names as texts.
    records: in the last one, if it was counted. counts: what whole numbers of a column count, as far as files said
    it: see `connect.counted`.
    """

    count: int = 0
    groups: tuple[Group, ...] = ()
    recent: tuple[Entry, ...] = ()
    inodes: tuple[int, ...] = ()
    highest: Cursor | None = None
    waiting: int = 0
    newest: str | None = None
    columns: str = ""
    as_texts: bool = False
    records: int | None = None
    counts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> str | None:
        """The name of the last file that was applied."""
        return self.recent[-1][0] if self.recent else None

    def plus(
        self,
        files: Sequence[File],
        highest: Cursor | None = None,
        columns: str = "",
        records: int | None = None,
        counts: Mapping[str, Any] = {},
    ) -> "AppliedFiles":
        """The memory after these files, in order, were applied as well. columns, records, counts: see above."""
        recent = [*self.recent, *((file.name, file.size, file.mtime_ns) for file in files)]
        groups = list(self.groups)
        while len(recent) >= 2 * GROUP:
            groups.append(_group(recent[:GROUP]))
            recent = recent[GROUP:]
        inodes = (*self.inodes, *(file.inode for file in files))[-len(recent) :] if recent else ()
        newest = highest if highest is not None else self.highest
        count = self.count + len(files)
        return AppliedFiles(
            count,
            tuple(groups),
            tuple(recent),
            inodes,
            newest,
            columns=columns,
            records=records,
            counts={**counts, **self.counts},
        )

    def without_waiting(self) -> "AppliedFiles":
        """The same of what was applied; of what followed, nothing."""
        return replace(self, waiting=0, newest=None)

    def faults(self, there: Sequence[File]) -> Iterator[Mismatch]:
        """The files that differ from what was applied. there: the existing files after the pin, up to `last`."""
        known = {entry[0]: entry for entry in self.recent}
        ends = [by_numbers(group.last) for group in self.groups]
        for at, part in groupby(there, lambda file: bisect_left(ends, by_numbers(file.name))):
            files = list(part)
            if at < len(ends):
                yield from _of_group(self.groups[at], files)
                continue
            for file in files:
                was = known.get(file.name)
                if was is None or was != (file.name, file.size, file.mtime_ns):
                    yield Mismatch(file, was)

    def renamed(self, new: Sequence[File], there: Container[str]) -> Iterator[tuple[File, Entry]]:
        """The new files that are applied ones under another name: same inode, size and time as one that is gone.

        new: files after `last`. there: the names of all files. Empty files, and times in whole seconds (as copies
        from elsewhere have), are no evidence: inodes are soon reused.
        """
        known = zip(self.recent, self.inodes, strict=True)
        gone = {inode: was for was, inode in known if inode and was[1] and was[0] not in there}
        for file in new:
            was = gone.get(file.inode)
            if was is not None and was[1:] == (file.size, file.mtime_ns) and file.mtime_ns % 1_000_000_000:
                yield file, was

    def text(self) -> str:
        """The memory as one line of text."""
        recent = zlib.compress(json.dumps(self.recent, ensure_ascii=False).encode(), 1)
        groups = [[group.last, group.count, group.digest, group.newest_ns] for group in self.groups]
        told = {"count": self.count, "groups": groups, "recent": base64.b64encode(recent).decode()}
        told |= {"inodes": self.inodes} | ({} if self.as_texts else {"order": _ORDER})
        if self.waiting:
            told |= {"waiting": self.waiting, "newest": self.newest}
        if self.columns:
            told |= {"columns": self.columns}
        if self.records is not None:
            told |= {"records": self.records}
        if self.counts:
            told |= {"counts": self.counts}
        return json.dumps(told | ({"highest": self.highest} if self.highest is not None else {}))

    @classmethod
    def of_text(cls, text: str) -> "AppliedFiles":
        told = json.loads(text)
        recent = json.loads(zlib.decompress(base64.b64decode(told["recent"])))
        return cls(
            told["count"],
            tuple(Group(*group) for group in told["groups"]),
            tuple((name, size, mtime_ns) for name, size, mtime_ns in recent),
            tuple(told.get("inodes") or [0] * len(recent)),
            told.get("highest"),
            told.get("waiting", 0),
            told.get("newest"),
            told.get("columns", ""),
            told.get("order") != _ORDER,
            told.get("records"),
            told.get("counts", {}),
        )

    def refuse_other_order(self, table: str, start: str | None, there: Iterable[str]) -> None:
        """Raises Fatal if an earlier version, for which names were texts, had applied other files by now.

        start: the file that the job began after. there: the names of all files.
        """
        last = self.last or start
        if not self.as_texts or last is None:
            return
        applied = {*(group.last for group in self.groups), *(name for name, *_ in self.recent), start or last}
        known = in_order({*applied, *(name for name in there if name <= last)})
        later = ((name, last) for name in there if name > last and by_numbers(name) < by_numbers(last))
        moved = unlike_text(known) or next(later, None)
        if moved is not None:
            raise Fatal(
                f"table '{table}': '{moved[0]}' comes before '{moved[1]}' by the numbers in their names, but the "
                "version of backfill that began this job ordered them as texts",
                "continue with that version, or " + START_OVER,
            )


def _group(entries: Sequence[Entry]) -> Group:
    return Group(entries[-1][0], len(entries), _digest(entries), max(mtime_ns for *_, mtime_ns in entries))


def _digest(entries: Sequence[Entry]) -> str:
    told = "\n".join(f"{name}\0{size}\0{mtime_ns}" for name, size, mtime_ns in entries)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _of_group(group: Group, files: Sequence[File]) -> Iterator[Mismatch]:
    """The faults in a group: judged by the digest if all its files exist, else by the time of those that do."""
    newer = [file for file in files if file.mtime_ns > group.newest_ns]
    if len(files) < group.count:
        yield from (Mismatch(file) for file in newer)
    elif _digest([(file.name, file.size, file.mtime_ns) for file in files]) != group.digest:
        yield from (Mismatch(file) for file in newer or [max(files, key=lambda file: file.mtime_ns)])


_NAME_IT_LATER = (
    "if its changes are wanted and not in the sink, rename it so that it sorts after that one; otherwise remove it"
)

_BY_OFFSET = "newer records of its partition are applied: " + START_OVER + ", with this file"


def changed(table: str, fault: Mismatch, cursor: str) -> Fatal:
    file, was = fault.file, fault.was
    if was is None:
        return late(table, file, cursor)
    grown = file.size > was[1]
    restore = touched(file.path, was[2])
    if was[1] != file.size:
        what = f"changed from {was[1]} to {file.size} bytes after it was read"
        hint: Hint | str = (
            f"restore the file as it was, with its time: {restore}; "
            "land changes as separate files with later names"
        )
        if grown:
            hint = "land the added part as a separate file with a later name, and restore this one: " + shell(
                f"truncate -s {was[1]} {shlex.quote(file.path)} && {restore}"
            )
    else:
        what = "was rewritten after it was read (its modification time changed)"
        hint = f"if its content is the same, restore its time: {restore}"
    if not file.inode:  # the time of an object cannot be restored
        hint = (
            f"land {'the added part' if grown else 'what it adds'} as a separate file with a later name, and "
            "remove this one: the job does not need applied files, but verify does"
        )
    return Fatal(f"table '{table}': {file.path} {what}", hint)


def late(table: str, file: File, cursor: str) -> Fatal:
    """For a file that is new where its name comes before applied ones.

    One of a topic's records has its place by its offset: under a later name it would undo newer changes.
    """
    of_topic = told_by(file.name.rpartition("/")[2]) is not None
    hint: Hint | str = _BY_OFFSET if of_topic else _NAME_IT_LATER
    return Fatal(f"table '{table}': {file.path} came late: the job is already at '{cursor}'", hint)


def renamed(table: str, file: File, was: str) -> Fatal:
    return Fatal(
        f"table '{table}': {file.path} is '{was}', which was already applied, under another name: "
        f"it has the same inode, size and time, and '{was}' is gone",
        f"if it holds other changes: touch {shlex.quote(file.path)}; if not, rename it back to '{was}'",
    )


def gone_unread(table: str, path: str) -> HistoryGone:
    return HistoryGone(
        f"table '{table}': change file {path} is gone and was not read yet",
        "put it back, or " + START_OVER,
    )
