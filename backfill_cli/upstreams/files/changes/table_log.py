"""One table's change files as a log: what is pending after a cursor, and checks that applied files did not change.

A file is identified by its name, and the log is in the order of the numbers in names (model/names.py). Applied
files are remembered (applied_files.py), here and in the job's checkpoints, so that any process reports a file that
came late, grew or was replaced. Applied files can be removed.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER, BadData, HistoryGone, UsageError, in_config
from backfill_cli.formats.listing import File
from backfill_cli.model.names import by_numbers
from backfill_cli.model.schema import Columns, columns_of, counts_of, differing, same_type, schema_text, shown
from backfill_cli.spark.failures import CHANGES_HINT
from backfill_cli.upstreams.files.changes import applied_files, connect_files, order
from backfill_cli.upstreams.files.changes.applied_files import AppliedFiles, Mismatch
from backfill_cli.upstreams.files.changes.change_format import ChangeFormat, Inspected
from backfill_cli.upstreams.files.changes.landing import Landing, Partition
from backfill_cli.upstreams.files.reading.footers import THREADS

_WATCHED = 1_000
"""Pending files checked at each barrier, with one stat each: files can grow in place."""

_PATROLLED = 50
"""Applied files checked at each barrier, in rotation."""

_BACK = 20
"""Files searched backwards for the schema at a position."""


class TableLog:
    """The change files of one table, or those of one partition of its topic.

    versions_rise: each file's versions come after those of the file before. consecutive: what increases by one
    from file to file: `names`, `versions`, or None.
    """

    def __init__(
        self,
        table: str,
        landing: Landing | Partition,
        form: ChangeFormat,
        versions_rise: bool = True,
        consecutive: str | None = None,
    ) -> None:
        self.table, self.where, self.form = table, landing.where, form
        self._landing = landing
        self._versions_rise, self._consecutive = versions_rise, consecutive
        self._inspected: dict[str, Inspected] = {}
        self._pinned: Columns = {}
        self._base: Columns = {}
        self._base_counts: Mapping[str, Any] = {}
        self._start: str | None = None
        self._cursor: str | None = None
        self._memories: dict[str, AppliedFiles] = {"": AppliedFiles()}
        self._judged = False
        self._listed = False
        self._patrol = 0
        self._counts: dict[File, int] = {}

    def begin(self, columns: Columns, start: str | None, fresh: bool) -> None:
        """Begin after a pin. columns: the snapshot's. start: the pin's cursor. fresh: pinned by this process."""
        self._pinned = self._base = dict(columns)
        self._base_counts = counts_of(columns)
        self._start, self._judged, self._cursor = start, fresh, start
        self._memories = {start or "": AppliedFiles()}

    def recall(self, memory: str) -> None:
        """Adopt what an earlier process remembered of the files that it applied."""
        found = AppliedFiles.of_text(memory)
        self._memories[found.last or self._start or ""] = found

    def remembered(self, cursor: str | None) -> str:
        """The memory to recall once everything up to `cursor` is applied, with the files seen after that."""
        waiting = self._landing.between(cursor, None)
        newest = waiting[-1] if waiting else None
        return replace(self._memory(cursor), waiting=len(waiting), newest=newest).text()

    def must_exist(self) -> None:
        """Raises UsageError if the folder where changes land does not exist."""
        if not self._landing.exists():
            raise UsageError(
                f"table '{self.table}': folder {self.where.shown} does not exist",
                in_config(
                    f"create it: mkdir -p {shlex.quote(self.where.folder)}; or set upstream.changes.path to the "
                    "folder where changes land"
                ),
            )

    def files(self) -> Mapping[str, File]:
        """The files as last listed; lists them the first time."""
        self._look()
        return self._landing.files

    def names(self) -> Sequence[str]:
        """The files' names in order."""
        self._look()
        return self._landing.names

    def after(self, cursor: str | None) -> Sequence[str]:
        """The names of the files after `cursor`, in order."""
        self._look()
        return self._landing.between(cursor, None)

    def last_up_to(self, name: str) -> str | None:
        """The last file that comes before this one, or is it; None if there is none."""
        self._look()
        return next(iter(self._landing.between(None, name)[-1:]), None)

    def pending(self, cursor: str | None) -> list[Inspected]:
        """The metadata of the files after `cursor`, in order; each is inspected again only if it has changed.

        Raises Fatal for a file that came late, or that changed or was renamed after it was applied, HistoryGone
        for a pending one that is gone, BadData for an incomplete one.
        """
        self._memories = {at: one for at, one in self._memories.items() if _up_to(at, cursor)}
        if self._judged and self._listed:
            self._compare(*self._landing.refresh(), cursor)
        else:
            self._look()
            self.judge(cursor)
        if cursor != self._cursor:
            self._memory(cursor)  # before _move drops what was inspected up to there
            self._move(cursor)
        self._look_again(cursor)
        waiting = self._landing.between(cursor, None)
        names = waiting if cursor is None else [cursor, *waiting]
        order.refuse_unclear(self.table, names)
        if isinstance(self._landing, Partition):
            connect_files.refuse_equal_offsets(self.table, names)
        files = self._landing.files
        fresh = [files[n] for n in waiting if n not in self._inspected or self._inspected[n].file != files[n]]
        if fresh:
            self._refuse_renamed(fresh, cursor)
            with ThreadPoolExecutor(THREADS) as pool:
                for found in pool.map(self.inspect, fresh):
                    self._inspected[found.file.name] = found
        pending = [self._inspected[name] for name in waiting]
        if isinstance(self._landing, Partition):
            self._refuse_interleaved(self._landing, cursor, names)
        if self._versions_rise:
            order.refuse_older_versions(self.table, pending, self._memory(cursor).highest)
        if self._consecutive == "names":
            order.refuse_in_names(self.table, names)
        if self._consecutive == "versions":
            order.refuse_in_versions(self.table, self._memory(cursor).highest, pending)
        return pending

    def _refuse_interleaved(self, landing: Partition, cursor: str | None, names: Sequence[str]) -> None:
        """Raises BadData for a file that has offsets beyond the beginning of the next one, in another folder.

        The last file is counted as well: it may be removed once it is applied, before the next one comes.
        """
        moves = landing.moves(names)
        known, applied = self._counts, self._memory(cursor).records
        if cursor in landing.files and applied is not None:
            known = {**known, landing.files[cursor]: applied}
        wanted = dict.fromkeys((*(one for one, _ in moves), *landing.newest_by_time()))
        missing = [file for file in wanted if file not in known and connect_files.must_count(file.name)]
        with ThreadPoolExecutor(THREADS) as pool:
            found = zip(missing, pool.map(partial(self.form.count, self.where), missing), strict=True)
            self._counts = {file: known[file] for file in wanted if file in known} | dict(found)
        if cursor is not None and cursor not in landing.files and len(names) > 1:
            connect_files.refuse_interleaved(self.table, cursor, cursor, applied or 0, landing.files[names[1]])
        for one, other in moves:
            connect_files.refuse_interleaved(self.table, one.name, one.path, self._counts.get(one, 0), other)

    def inspect(self, file: File, applied: bool = False) -> Inspected:
        """One file's metadata. applied: see ChangeFormat.inspect."""
        return self.form.inspect(self.where, file, self._base, applied)

    def schemas(self, pending: Sequence[Inspected]) -> dict[str, str]:
        """File name -> schema as JSON, for the pending files at which the columns change.

        Raises BadData if the next one cannot be followed.
        """
        current, changed = self._base, dict[str, str]()
        for found in pending:
            if found.columns is not None and differing(current, found.columns):
                if found is pending[0]:
                    refuse(found, faults(current, found.columns))
                current = in_order_of(current, found.columns)
                changed[found.file.name] = schema_text(current)
        return changed

    def window(self, after: str | None, up_to: str | None) -> list[File]:
        """The files after `after`, up to `up_to`, in order; none if up_to is None.

        Raises HistoryGone if the window begins at the pin and files that were applied are gone.
        """
        if up_to is None:
            return []
        self._look()
        self.judge(up_to)
        names = self._landing.between(after, up_to)
        if after == self._cursor:  # read and remembered in their current state
            for name in names:
                self._landing.again(name)
        if after == self._start:
            applied = self._memories.get(up_to)
            if applied is not None and len(names) < applied.count:
                missing = applied.count - len(names)
                raise HistoryGone(
                    f"table '{self.table}': cannot verify: {missing} of the {applied.count} change files applied "
                    f"up to '{up_to}' are gone from {self.where.shown}",
                    "put them back, with the times that they had, to compare with them; the job itself does not "
                    "need them",
                )
        return [self._landing.files[name] for name in names]

    def preceding(self, file: File) -> File | None:
        """The file before this one, applied or not; None if there is none, or it was removed."""
        before = self._landing.before(file.name)
        return None if before is None else self._landing.again(before)

    def judge(self, cursor: str | None) -> None:
        """Once per process: every existing file that counts as applied is unchanged since.

        Raises Fatal naming the first that is not.
        """
        if self._judged:
            return
        self._judged = True
        there = [self._landing.files[n] for n in self._landing.between(self._start, cursor)] if cursor else []
        memory = self._memory(cursor)
        for one in self._memories.values():
            one.refuse_other_order(self.table, self._start, self._landing.names)
        for fault in memory.faults(there):
            raise applied_files.changed(self.table, fault, cursor or "")
        seen = self._landing.between(cursor, memory.newest) if memory.waiting else ()
        if len(seen) < memory.waiting:
            gone = memory.waiting - len(seen)
            raise HistoryGone(
                f"table '{self.table}': {gone} of {memory.waiting} change files that were in {self.where.folder} "
                f"when the job last ran, after '{cursor or 'the snapshot'}' and up to '{memory.newest}', are gone "
                "and were not read yet",
                "put them back, or " + START_OVER,
            )

    def _look(self) -> None:
        if not self._listed:
            self._landing.refresh()
            self._listed = True

    def _memory(self, cursor: str | None) -> AppliedFiles:
        """What was applied up to a cursor, continued from the nearest remembered cursor before it."""
        at = cursor or ""
        if at not in self._memories:
            before = (known for known in self._memories if _up_to(known, at))
            near = max(before, key=by_numbers, default=self._start or "")
            names = self._landing.between(near or None, cursor)
            files = [self._landing.files[name] for name in names]
            held = [one for name in names if (one := self._inspected.get(name)) is not None]
            highest = [one.versions[1] for one in held if one.versions is not None]
            base = self._memories.get(near, AppliedFiles())
            columns = self._changed(held, base.columns) if len(held) == len(names) else ""
            records = self._counts.get(files[-1]) if files else base.records
            counts = {name: what for one in reversed(held) for name, what in one.counts.items()}
            self._memories[at] = base.plus(files, max(highest, default=None), columns, records, counts)
        return self._memories[at]

    def _changed(self, found: Sequence[Inspected], before: str) -> str:
        """`AppliedFiles.columns` after these files. before: the same before them."""
        newest = next((one.columns for one in reversed(found) if one.columns is not None), None)
        if newest is None:
            return before
        return schema_text(in_order_of(self._pinned, newest)) if differing(self._pinned, newest) else ""

    def forget_before(self, cursor: str | None) -> None:
        """Everything up to `cursor` is committed: what was remembered for earlier cursors is dropped."""
        if (cursor or "") in self._memories:
            self._memories = {at: one for at, one in self._memories.items() if _up_to(cursor, at)}

    @property
    def columns(self) -> Columns:
        """The columns at the position that `pending` was last asked for."""
        return self._base

    @property
    def counts(self) -> Mapping[str, Any]:
        """What whole numbers count there, by column, as far as files said it."""
        return self._base_counts

    def columns_before(self, file: File) -> Columns:
        """The columns when a file begins."""
        before = self._landing.before(file.name)
        if _up_to(before, self._cursor) and not _up_to(file.name, self._cursor):
            return self._base
        return self._columns_at(before)

    def _columns_at(self, cursor: str | None) -> Columns:
        """The columns at a position: those of the last file up to it that shows some, or else the pinned ones.

        Any number of files without rows can follow that one: what it showed is remembered.
        """
        memory = self._memories.get(cursor or "")
        if memory is not None and memory.columns:
            return columns_of(memory.columns)
        shown = self._shown_at(cursor)
        return self._pinned if shown is None or shown.columns is None else in_order_of(self._pinned, shown.columns)

    def _counts_at(self, cursor: str | None) -> Mapping[str, Any]:
        """What whole numbers count at a position: as remembered, or by the last file up to it that says it."""
        memory = self._memories.get(cursor or "")
        if memory is not None and memory.counts:
            return {**memory.counts, **counts_of(self._pinned)}
        shown = self._shown_at(cursor)
        return {**({} if shown is None else shown.counts), **counts_of(self._pinned)}

    def _shown_at(self, cursor: str | None) -> Inspected | None:
        """The last file up to a position that shows columns."""
        consumed = self._landing.between(self._start, cursor)[-_BACK:] if cursor is not None else ()
        for name in reversed(consumed):
            file, held = self._landing.files[name], self._inspected.get(name)
            if held is None or held.file != file:
                held = self.form.inspect(self.where, file, self._pinned, True)
            if held.columns is not None:
                return held
        return None

    def _move(self, cursor: str | None) -> None:
        """Move to another position, which can be an earlier one: when a staged epoch is discarded."""
        self._cursor, self._base, self._base_counts = cursor, self._columns_at(cursor), self._counts_at(cursor)
        waiting = self._landing.between(cursor, None)
        self._inspected = {name: self._inspected[name] for name in waiting if name in self._inspected}

    def _compare(self, added: Iterable[File], gone: Iterable[File], cursor: str | None) -> None:
        for file in added:
            if cursor is not None and _up_to(file.name, cursor):
                raise applied_files.late(self.table, file, cursor)
        for file in gone:
            if not _up_to(file.name, cursor):
                raise applied_files.gone_unread(self.table, file.path)

    def _refuse_renamed(self, fresh: Sequence[File], cursor: str | None) -> None:
        for file, (was, *_) in self._memory(cursor).renamed(fresh, self._landing.files):
            raise applied_files.renamed(self.table, file, was)

    def _look_again(self, cursor: str | None) -> None:
        """Stat pending files and some applied ones: writing in place does not change their folder."""
        applied = self._landing.between(self._start, cursor) if cursor is not None else ()
        begin = self._patrol % len(applied) if applied else 0
        self._patrol = begin + _PATROLLED
        for name in {*applied[begin : begin + _PATROLLED], *applied[-1:]}:
            before = self._landing.files[name]
            now = self._landing.again(name)
            if now is not None and now != before:
                raise applied_files.changed(
                    self.table, Mismatch(now, (before.name, before.size, before.mtime_ns)), cursor or ""
                )
        for name in self._landing.between(cursor, None)[:_WATCHED]:
            if self._landing.again(name) is None:
                self._compare((), (self._landing.files[name],), cursor)


def _up_to(name: str | None, cursor: str | None) -> bool:
    """Whether a name is at or before a cursor; None is before all names."""
    return by_numbers(name or "") <= by_numbers(cursor or "")


def faults(old: Columns, new: Columns) -> list[str]:
    """Columns that are gone, have another type, or differ from others only in case."""
    found = [f"column '{name}' is gone" for name in old if name not in new]
    found += [
        f"column '{name}' was {shown(column['type'])}, and is {shown(new[name]['type'])}"
        for name, column in old.items()
        if name in new and not same_type(column["type"], new[name]["type"])
    ]
    found += [f"column '{name}' differs from '{first}' only in case" for first, name in own.twins({**old, **new})]
    return found


def refuse(found: Inspected, faults: Sequence[str]) -> None:
    """Raises BadData if there are any."""
    if faults:
        raise BadData(
            f"{found.file.path}{found.shown_in}: {'; '.join(faults)}",
            CHANGES_HINT + "; if the columns did change upstream, only added ones can be followed: " + START_OVER,
        )


def in_order_of(old: Columns, new: Columns) -> Columns:
    """The new columns: first those that stayed, in their old order and with their old metadata."""
    kept = {name: column for name, column in old.items() if name in new}
    return {
        **{n: c if same_type(c["type"], new[n]["type"]) else new[n] for n, c in kept.items()},
        **{name: column for name, column in new.items() if name not in old},
    }


def ms_of(found: Inspected) -> int:
    """A change file's time: its largest source time, else when it was written."""
    return found.ms if found.ms is not None else found.file.mtime_ns // 1_000_000
