"""The folder where one table's change files land: one log, or one for each partition of a topic.

Files of a topic's partitions (connect_files.py) are in the order of their offsets, and no order is promised across
partitions: of a key, all changes are in one. What each partition's files show of the table's columns is put
together here, as each learns of an added one at another file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from backfill_cli.errors import START_OVER, BadData, Fatal, in_config
from backfill_cli.formats.listing import Place
from backfill_cli.model.schema import Columns, differing, schema_text, unlike
from backfill_cli.model.units import spell_count
from backfill_cli.upstreams.files.changes.change_format import ChangeFormat, Inspected
from backfill_cli.upstreams.files.changes.debezium import Debezium
from backfill_cli.upstreams.files.changes.landing import Landing, Partition
from backfill_cli.upstreams.files.changes.table_log import TableLog, faults, in_order_of, refuse
from backfill_cli.upstreams.files.options import ChangesOptions

_PATH = in_config("set upstream.changes.path to the folder of one partition")


class ChangeFolder:
    """See above. whole: the log of the files that are of no partition."""

    def __init__(self, table: str, where: Place, form: ChangeFormat, options: ChangesOptions) -> None:
        self.table, self.where, self.form, self._options = table, where, form, options
        self._landing = Landing(where)
        self.whole = self._made(self._landing)
        self._logs = {table: self.whole}
        self._highest: int | None = None
        self._begin: Callable[[str, TableLog], None] = lambda name, log: None

    def begin(self, columns: Columns, cursor: Callable[[str], str | None], fresh: bool) -> None:
        """Begin after a pin. columns: the snapshot's. cursor: the pin's, by log. fresh: pinned by this process."""
        for name, log in self._logs.items():
            log.begin(columns, cursor(name), fresh)
        self._begin = lambda name, log: log.begin(columns, cursor(name), False)

    def known(self) -> Mapping[str, TableLog]:
        """The logs by name, as far as they are known without listing the folder."""
        return self._logs

    def logs(self) -> Mapping[str, TableLog]:
        """The logs by name, each as its files were last listed.

        Raises BadData for files that cannot be in partitions, Fatal for a partition that was added to the topic.
        """
        beside = self.whole.names()
        there = self._landing.partitions
        new = sorted(number for number in there if self._name(number) not in self._logs)
        if new:
            self._refuse(there[new[0]], beside)
        if self._highest is not None and new and new[-1] > self._highest and not self._options.accept_growth:
            raise _grown(self.table, new[-1], self._highest)
        for number in new:
            self._add(number)
        if beside and len(self._logs) > 1:
            raise BadData(
                f"table '{self.table}': {self._landing.files[beside[0]].path} is beside folders of a topic's "
                "partitions: nobody can tell which changes come first",
                "move it elsewhere",
            )
        return self._logs

    def pending(self, cursor: Callable[[str], str | None]) -> Iterator[tuple[str, list[Inspected]]]:
        """The pending files of each log, once the folder is listed again. See TableLog.pending."""
        begun = cursor(self.table)
        self._refuse_begun(begun)
        yield self.table, self.whole.pending(begun)
        self._refuse_begun(begun)
        for name, log in self.logs().items():
            if log is not self.whole:
                yield name, log.pending(cursor(name))

    def know(self, names: Iterable[str]) -> None:
        """Logs of these names may have no file any more."""
        for name in names:
            table, _, number = name.rpartition("/partition=")
            if table == self.table and name not in self._logs:
                self._add(int(number))

    @property
    def partitions(self) -> Sequence[TableLog]:
        """The logs of a topic's partitions."""
        return [log for name, log in self._logs.items() if name != self.table]

    def warnings(self) -> Sequence[str]:
        """What `plan` says of several partitions."""
        if not self.partitions:
            return []
        count = spell_count(len(self.partitions), "partition")
        moved = (
            f"table '{self.table}': its change files are those of {count} of a topic, each in the order of its "
            "offsets, and without an order between them: a change of a row's key is a delete and an insert, which "
            "can be in two of them: for a moment the sink can have both rows, or none"
        )
        if self._options.accept_growth:
            return [moved]
        return [
            f"{moved}; if partitions were ever added to the topic, a key may have changes in two of them: older "
            "ones may overwrite newer ones; if one is added later, the job stops, unless "
            "upstream.changes.accept_growth = true says that every key stays in its partition"
        ]

    def schemas(self, pending: Sequence[tuple[str, Inspected]]) -> list[str | None]:
        """For each of the pending files, of all logs, the schema as JSON where the columns change, else None.

        pending: in the order in which they are applied, each with the name of its log. Files from one on that
        cannot be followed are left out, but if it is the next one: raises BadData then.
        """
        if not self.partitions:
            changed = self.whole.schemas([found for _, found in pending])
            return [changed.get(found.file.name) for _, found in pending]
        seen = {name: log.columns for name, log in self._logs.items()}
        current: Columns = {}
        for columns in seen.values():
            current |= {name: column for name, column in columns.items() if name not in current}
        made = list[str | None]()
        for name, found in pending:
            made.append(None)
            if found.columns is None or not differing(seen[name], found.columns):
                continue
            wrong = faults(seen[name], found.columns) or faults(current, {**current, **found.columns})
            if wrong and len(made) > 1:
                return made[:-1]
            refuse(found, wrong)
            seen[name] = in_order_of(seen[name], found.columns)
            if seen[name].keys() - current.keys():
                current = in_order_of(current, {**current, **seen[name]})
                made[-1] = schema_text(current)
        return made

    def alike(self, pending: Sequence[Inspected]) -> int:
        """How many of the pending files, in the order in which they are applied, precede one in which numbers
        count something else than before.

        Raises BadData if that is the next one.
        """
        counts: dict[str, Any] = {}
        for log in self._logs.values():
            counts |= log.counts
        for index, found in enumerate(pending):
            if wrong := unlike(counts, found.counts):
                if index == 0:
                    refuse(found, wrong)
                return index
            counts = {**found.counts, **counts}
        return len(pending)

    def _refuse_begun(self, begun: str | None) -> None:
        """Raises Fatal for files of partitions where others were applied, as one log, up to the file `begun`."""
        self.whole.names()  # lists the folder the first time
        parted = next((one for one in self._landing.partitions.values() if one.names), None)
        if begun is not None and parted is not None:
            raise Fatal(
                f"table '{self.table}': {parted.files[parted.names[0]].path} is of a topic's partition, which is "
                f"a log of its own, but the job is at '{begun}' of one log with all files in the order of their "
                "paths",
                "if an earlier version began the job, continue with that version, or "
                + START_OVER
                + "; otherwise move the file elsewhere",
            )

    def _name(self, number: int) -> str:
        return f"{self.table}/partition={number}"

    def _made(self, landing: Landing | Partition) -> TableLog:
        rise = self._options.epoch is None
        return TableLog(self.table, landing, self.form, versions_rise=rise, consecutive=self._options.consecutive)

    def _add(self, number: int) -> None:
        name, log = self._name(number), self._made(self._landing.partition(number))
        self._begin(name, log)
        self._logs[name] = log
        self._highest = max(number, self._highest or 0)
        if isinstance(self.form, Debezium):
            self.form.ordered = False

    def _refuse(self, found: Partition, beside: Sequence[str]) -> None:
        """Raises BadData if the options say what partitions do not have."""
        if not found.names:
            return
        path, options = found.files[found.names[0]].path, self._options
        if not self.form.parts:
            what = f"{options.format} is not read from files of a topic's partitions"
        elif options.epoch is not None:
            what = "upstream.changes.epoch: there is no order of epochs across a topic's partitions"
        elif options.consecutive is not None:
            what = "upstream.changes.consecutive: offsets in names do not increase by one from file to file"
        else:
            return
        raise BadData(f"table '{self.table}': {path}: {what}", _PATH)


def _grown(table: str, number: int, highest: int) -> Fatal:
    return Fatal(
        f"table '{table}': there are change files of a new partition {number} of the topic: the highest was "
        f"{highest}; changes of a key may have gone to another partition before and go to this one now, and there "
        "is no order across partitions",
        "if every key stays in the partition that it was in (only new keys go to the new ones), set "
        "upstream.changes.accept_growth = true and start again; otherwise "
        + START_OVER
        + " with the files of a topic that has each key in one partition",
    )
