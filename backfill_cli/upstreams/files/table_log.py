"""One table's change files as a log: what is pending after a cursor, and what must not have happened to it.

A file is known by its name; the log's order is the names' order. Limits: a late name is seen for certain while a
process lives; a new process takes a name at or before its position for late when its file was written more than a
minute after the position's own file.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from backfill_cli.errors import Fatal, HistoryGone
from backfill_cli.upstreams.files.change_log import ChangeFormat, Inspected
from backfill_cli.upstreams.files.pin import THREADS
from backfill_cli.upstreams.formats import schemas
from backfill_cli.upstreams.formats.listing import File, Listing, Place
from backfill_cli.upstreams.formats.schemas import Columns

_WATCHED = 1_000
"""So many pending files are looked at again at each barrier, a stat each: files may grow in place."""

_BACK = 20
"""So many files back the schema at a position is looked for."""

_LATE_NS = 60 * 1_000_000_000
"""A file at or before the position, written so long after the position's own file, came late."""


class TableLog:
    """The change files of one table."""

    def __init__(self, table: str, where: Place, form: ChangeFormat) -> None:
        self.table, self.where, self.form = table, where, form
        self._listing = Listing(where)
        self._seen: Mapping[str, File] | None = None
        self._inspected: dict[str, Inspected] = {}
        self._pinned: Columns = {}
        self._base: Columns = {}
        self._start: str | None = None
        self._fresh = True
        self._cursor: str | None = None
        self._idle: tuple[Mapping[str, File], str | None] | None = None

    def begin(self, columns: Columns, start: str | None, fresh: bool) -> None:
        """Begin after a pin. columns: the snapshot's. start: the pin's cursor. fresh: pinned by this process."""
        self._pinned = self._base = dict(columns)
        self._start, self._fresh, self._cursor = start, fresh, start

    def must_exist(self) -> None:
        """Raises Fatal when the folder where changes land is not there."""
        if not self._listing.exists():
            raise Fatal(
                f"table '{self.table}': no folder at {self.where.shown}",
                "check upstream.changes.path, or make the folder where changes will land",
            )

    def files(self) -> Mapping[str, File]:
        """The files as last listed, by name in order; lists them the first time."""
        if self._seen is None:
            self._seen = self._listing.files()
        return self._seen

    def pending(self, cursor: str | None) -> list[Inspected]:
        """The files after `cursor`, in order, inspected; each inspected once while it stays as it is.

        Raises Fatal for a name that came late or a consumed file that changed, HistoryGone for a pending file that
        is gone, BadData for one that is not whole.
        """
        listed = self._listing.files()
        if (listed, cursor) == self._idle and self._still_same(listed, cursor):
            return []
        now = dict(listed)
        if self._seen is not None:
            self._compare(self._seen, now, cursor)
        elif not self._fresh:
            self._refuse_late(now, cursor)
        if cursor != self._cursor:
            self._move(now, cursor)
        waiting = [name for name in now if cursor is None or name > cursor]
        self._look_again(now, waiting[:_WATCHED], cursor)
        self._seen = now
        fresh = [now[n] for n in waiting if n not in self._inspected or self._inspected[n].file != now[n]]
        if fresh:
            with ThreadPoolExecutor(THREADS) as pool:
                for found in pool.map(self.inspect, fresh):
                    self._inspected[found.file.name] = found
        self._idle = None if waiting else (listed, cursor)
        return [self._inspected[name] for name in waiting]

    def inspect(self, file: File) -> Inspected:
        """One file's metadata."""
        return self.form.inspect(self.where, file, self._base)

    def schemas(self, pending: Sequence[Inspected]) -> dict[str, str]:
        """File name -> schema as JSON, for the pending files at which the columns change."""
        current, changed = self._base, dict[str, str]()
        for found in pending:
            if found.columns is not None and schemas.differing(current, found.columns):
                current = _in_order(current, found.columns)
                changed[found.file.name] = schemas.to_json(current)
        return changed

    def window(self, after: str | None, up_to: str | None) -> list[File]:
        """The files with `after < name <= up_to`, in order; none when up_to is None."""
        if up_to is None:
            return []
        return [f for name, f in self.files().items() if (after is None or name > after) and name <= up_to]

    def _move(self, now: Mapping[str, File], cursor: str | None) -> None:
        """Stand at another position: the schema there is that of the last file up to it that shows one.

        A position may go back, when an epoch that was staged is thrown away.
        """
        self._cursor, self._base = cursor, self._pinned
        consumed = [file for name, file in now.items() if cursor is not None and name <= cursor]
        consumed = [file for file in consumed if self._start is None or file.name > self._start]
        for file in reversed(consumed[-_BACK:]):
            held = self._inspected.get(file.name)
            columns = held.columns if held is not None and held.file == file else self.inspect(file).columns
            if columns is not None:
                self._base = _in_order(self._pinned, columns)
                break
        self._inspected = {name: one for name, one in self._inspected.items() if cursor is None or name > cursor}

    def _refuse_late(self, now: Mapping[str, File], cursor: str | None) -> None:
        """Raises Fatal for a name that came late while no process looked, by its time."""
        at = now.get(cursor) if cursor is not None else None
        if at is None or cursor is None:
            return
        for name, file in now.items():
            after_load = self._start is None or name > self._start
            if after_load and name < cursor and file.mtime_ns > at.mtime_ns + _LATE_NS:
                raise self._late(file, cursor, f"if it was there before: touch -r '{at.path}' '{file.path}'")

    def _compare(self, before: Mapping[str, File], now: Mapping[str, File], cursor: str | None) -> None:
        for name, file in now.items():
            if cursor is not None and name <= cursor and name not in before:
                raise self._late(file, cursor, "give it a name after that one, if its changes are not in the sink")
        for name, file in before.items():
            consumed = cursor is not None and name <= cursor
            if name not in now and not consumed:
                raise HistoryGone(
                    f"table '{self.table}': change file {file.path} is gone and was not read yet",
                    "put it back, or drop the job and start over",
                )
            if consumed and name in now and now[name].size != file.size:
                raise self._rewritten(file, now[name])

    def _still_same(self, listed: Mapping[str, File], cursor: str | None) -> bool:
        """Whether the newest consumed file, the only one that is looked at while idle, is as it was."""
        file = listed.get(cursor) if cursor is not None else None
        return file is None or self._listing.again(file) == file

    def _look_again(self, now: dict[str, File], names: Sequence[str], cursor: str | None) -> None:
        """Stat pending files, and the newest consumed one: writing in place does not change their folder."""
        for name in (*names, cursor):
            if name is None or name not in now:
                continue
            again = self._listing.again(now[name])
            if again is None:
                self._listing.forget()
                self._compare(now, {n: f for n, f in now.items() if n != name}, cursor)
            elif name == cursor and again.size != now[name].size:
                raise self._rewritten(now[name], again)
            else:
                now[name] = again

    def _late(self, file: File, cursor: str, hint: str) -> Fatal:
        return Fatal(f"table '{self.table}': {file.path} came late: the job is at '{cursor}' already", hint)

    def _rewritten(self, file: File, now: File) -> Fatal:
        return Fatal(
            f"table '{self.table}': {file.path} changed from {file.size} to {now.size} bytes after it was read",
            "land change files whole: write them under another name first, then rename them",
        )


def _in_order(old: Columns, new: Columns) -> Columns:
    """The new columns, those that stayed first, in their old order and with their old metadata."""
    kept = {name: column for name, column in old.items() if name in new}
    return {
        **{n: c if schemas.same_type(c["type"], new[n]["type"]) else new[n] for n, c in kept.items()},
        **{name: column for name, column in new.items() if name not in old},
    }


def ms_of(found: Inspected) -> int:
    """A change file's time: its largest source time, else when it was written."""
    return found.ms if found.ms is not None else found.file.mtime_ns // 1_000_000
