"""Files as a change log: a folder for each table, where change files land."""

import json
from collections.abc import Collection, Mapping, Sequence

from backfill_cli.contracts import ArrowTasks, ChangeLog, Extras, TableSpec, own
from backfill_cli.errors import START_OVER, ConfigError, Fatal, in_config
from backfill_cli.formats import frames
from backfill_cli.formats.listing import File, place
from backfill_cli.model.names import in_order, unlike_text
from backfill_cli.model.position import START, Position, table_of
from backfill_cli.model.schema import Columns, columns_of
from backfill_cli.model.units import nearest_first
from backfill_cli.model.upstream import LogStart, Pin, UpstreamView
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import spark_reading
from backfill_cli.upstreams.files.changes.applied_files import AppliedFiles
from backfill_cli.upstreams.files.changes.change_folder import ChangeFolder
from backfill_cli.upstreams.files.changes.change_format import NO_CHANGES, ChangeFormat
from backfill_cli.upstreams.files.changes.debezium import Debezium
from backfill_cli.upstreams.files.changes.epochs import EpochLog, FileLog, Log
from backfill_cli.upstreams.files.changes.marked_rows import ChangeFeed, Dms
from backfill_cli.upstreams.files.changes.table_log import TableLog
from backfill_cli.upstreams.files.options import ChangesOptions, FilesOptions
from backfill_cli.upstreams.files.snapshot import pin as pins

_COLUMNS = "upstream.changes.columns"
_FORMATS: dict[str, type[ChangeFormat]] = {"debezium": Debezium, "dms": Dms, "change-feed": ChangeFeed}


class FilesChanges(ChangeLog):
    """See contracts.ChangeLog. No folder is listed before `begin` or `observe`."""

    keeps = "the change files until they are applied"
    correctable = True

    def __init__(self, options: FilesOptions, tables: Sequence[TableSpec]) -> None:
        changes, quarantines = options.changes, options.on_error == "quarantine"
        self._tables, self._options = tables, changes
        self.extras = Extras(warnings=self._warnings, places=self._places)
        self._as_of, self._complete_at = options.snapshot.as_of, options.snapshot.complete_at
        self._folders = {t.name: _folder(t, changes, quarantines) for t in tables} if changes else {}
        by_epochs = changes is not None and changes.epoch is not None
        self._log: Log = EpochLog(self._folders, changes) if changes and by_epochs else FileLog(self._folders)
        self.before_images = changes is None or _FORMATS[changes.format].before_images
        self.one_log = len(tables) == 1 or bool(changes and changes.epoch)

    def begin(self, schema: Mapping[str, str]) -> LogStart:
        for folder in self._folders.values():
            folder.whole.must_exist()
        self._refuse_twins(schema)
        position, complete_at = self._marks()
        self._log.begin({name: columns_of(text) for name, text in schema.items()}, position, True)
        folders = {name: folder.where.uri for name, folder in self._folders.items()}
        sources = self._sources()
        self._expect(sources)
        self._refuse_lacking(position, schema)
        identity = {"change_folders": folders} | ({} if sources is None else {"sources": sources})
        return LogStart(position, self._log.ms_at(position), complete_at, schema, identity)

    def restore(self, pin: Pin) -> None:
        self._refuse_twins(pin.schema)
        self._expect(json.loads(pin.identity).get("sources"))
        self._know(pin.position)
        self._know(pin.complete_at or START)
        self._log.begin({n: columns_of(s) for n, s in pin.schema.items()}, pin.position, False)

    def observe(self, position: Position) -> UpstreamView:
        self._know(position)
        pending, incomplete = self._log.pending(position)
        if pending:
            self._refuse_shared(position)
        latest = position
        for epoch in pending:
            latest = latest.join(Position.of(dict(epoch.cursors)))
        return UpstreamView("{}", latest, tuple(pending), incomplete=incomplete)

    def _warnings(self) -> Sequence[str]:
        """For each table, that its files are in another order than their names are as texts, or in several."""
        moved = {folder.table: unlike_text(log.names()) for folder, log in self._each()}
        parted = [said for folder in self._folders.values() for said in folder.warnings()]
        return [
            *parted,
            *(
                f"table '{name}': change files are applied in the order of the numbers in their names: '{two[0]}' "
                f"before '{two[1]}', which comes first as text"
                for name, two in moved.items()
                if two is not None
            ),
        ]

    def _places(self) -> Mapping[str, frozenset[str]]:
        """The change files that each table would apply; nothing if no row could belong to two tables."""
        return self._files_after(self._marks()[0]) if self._may_share() else {}

    def _may_share(self) -> bool:
        """Whether a file that two tables read is applied to both: `tables` selects the lines of each."""
        return self._options is not None and len(self._folders) > 1 and not self._options.tables

    def _files_after(self, position: Position) -> Mapping[str, frozenset[str]]:
        found = dict[str, frozenset[str]]()
        for table, folder in self._folders.items():
            paths = (file.path for file in self._after(folder, position))
            found[table] = pins.real_paths(paths, folder.where)
        return found

    def _after(self, folder: ChangeFolder, position: Position) -> list[File]:
        """The files after a position, of all logs."""
        logs = folder.logs().items()
        return [log.files()[one] for name, log in logs for one in log.after(self._log.cursor(position, name))]

    def _each(self) -> list[tuple[ChangeFolder, TableLog]]:
        """The logs of all folders."""
        return [(folder, log) for folder in self._folders.values() for log in folder.logs().values()]

    def _know(self, position: Position) -> None:
        for folder in self._folders.values():
            folder.know(log for log, _ in position)

    def _refuse_shared(self, position: Position) -> None:
        """Raises Fatal for a pending file that two tables would apply: its name suits the paths of both."""
        owner: dict[str, str] = {}
        for name, paths in self._files_after(position).items() if self._may_share() else ():
            for path in sorted(paths):
                if (other := owner.setdefault(path, name)) != name:
                    raise Fatal(
                        f"{path.removeprefix('file:')}: a change file of table '{other}' and of table '{name}'",
                        "rename it, so that it suits upstream.changes.path for one table only; if every name "
                        "suits both, " + START_OVER + ", with a folder for each table in that path",
                    )

    def remembered(self, position: Position) -> str:
        """The files applied up to a position, for `recall` of a later process."""
        known = [one for folder in self._folders.values() for one in folder.known().items()]
        logs = {name: log.remembered(self._log.cursor(position, name)) for name, log in known}
        return json.dumps(logs) if logs else ""

    def recall(self, memory: str) -> None:
        """Adopt what an earlier process remembered; it is compared with the files when they are next listed."""
        remembered = json.loads(memory)
        for folder in self._folders.values():
            folder.know(remembered)
            for name, log in folder.known().items():
                if name in remembered:
                    log.recall(remembered[name])

    def rejoined(self, memory: str, tables: Collection[str], before: str = "") -> str:
        """What was pending as they left can have been corrected since, or removed."""

        def told(memory: str, mine: bool) -> dict[str, str]:
            logs = json.loads(memory or "{}").items()
            return {log: text for log, text in logs if (table_of(log, known) in tables) == mine}

        known = {*self._folders, *tables}
        left = {log: AppliedFiles.of_text(text) for log, text in told(before, True).items()}
        logs = told(memory, False) | {log: one.without_waiting().text() for log, one in left.items()}
        return json.dumps(logs) if logs else ""

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        columns = columns_of(schema)
        self._know(up_to)
        with spark_reading():
            found = self._log.changes(spark, table, after, up_to, columns)
            return _no_changes(spark, columns) if found is None else found

    def change_batches(
        self, table: str, after: Position, up_to: Position, schema: str, cores: int
    ) -> ArrowTasks | None:
        self._know(up_to)
        return self._log.change_batches(table, after, up_to, columns_of(schema), cores) if self._folders else None

    def acknowledge(self, position: Position) -> None:
        """No file is removed: they belong to their owner. What is remembered begins here from now on."""
        for folder in self._folders.values():
            for name, log in folder.known().items():
                log.forget_before(self._log.cursor(position, name))

    def _marks(self) -> tuple[Position, Position | None]:
        """(S, the position that covers the load's end), from the change files that the options name."""
        if not self._folders:
            return START, None
        position = self._position_of(self._as_of, "as_of") if self._as_of else START
        if self._complete_at:
            return position, self._position_of(self._complete_at, "complete_at")
        if self._as_of:
            return position, None
        end = self._log.end()
        return position, None if end == START else end

    def _position_of(self, name: str, option: str) -> Position:
        if any(folder.partitions for folder, _ in self._each()):
            raise ConfigError(
                "upstream",
                [
                    f"upstream.snapshot.{option}: '{name}' is of one partition of a topic, without an order "
                    "with others"
                ],
                in_config(f"leave {option} out: all change files are then replayed"),
            )
        names = in_order({n for _, log in self._each() for n in log.names()})
        if name not in names:
            near = nearest_first(name, names)[:3]
            hint = f"name one of: {', '.join(near)}" if near else "there are no change files yet: leave it out"
            raise ConfigError(
                "upstream", [f"upstream.snapshot.{option}: change file '{name}' does not exist"], hint
            )
        return self._log.position_at(name)

    def _sources(self) -> Mapping[str, str | None] | None:
        """The source's table for each table's files, if they name it; None without Debezium's."""
        found = {}
        for folder, form in self._debezium():
            runs = ([log.files()[one] for one in log.names()] for log in folder.logs().values())
            found[folder.table] = form.source(folder.where, runs)
        return found or None

    def _expect(self, sources: Mapping[str, str | None] | None) -> None:
        """Lines of other tables of the source are refused from now on."""
        for folder, form in self._debezium() if sources is not None else ():
            form.expect((sources or {}).get(folder.table), folder.where.folder)

    def _refuse_lacking(self, position: Position, schema: Mapping[str, str]) -> None:
        """Raises ConfigError if the options do not say how the files after a position are written."""
        for folder, form in self._debezium():
            for name, log in folder.logs().items():
                files = [log.files()[one] for one in log.after(self._log.cursor(position, name))]
                form.refuse_lacking(log.where, files, columns_of(schema[folder.table]))

    def _refuse_twins(self, schema: Mapping[str, str]) -> None:
        """Raises ConfigError for a declared column that differs from one of the snapshot's only in case."""
        ddl = None if self._options is None else self._options.columns
        for name, text in schema.items():
            declared = pins.declared(ddl, name, _COLUMNS)
            for first, other in own.twins({**columns_of(text), **declared}):
                fault = f"{_COLUMNS}: column '{other}' of '{name}' differs from '{first}' only in case"
                raise ConfigError("upstream", [fault], in_config(f"leave '{other}' out there"))

    def _debezium(self) -> list[tuple[ChangeFolder, Debezium]]:
        return [(one, one.form) for one in self._folders.values() if isinstance(one.form, Debezium)]


def _folder(table: TableSpec, options: ChangesOptions, quarantines: bool) -> ChangeFolder:
    declared: Columns = pins.declared(options.columns, table.name, _COLUMNS)
    form: ChangeFormat = _FORMATS[options.format](table, options, declared, quarantines)
    return ChangeFolder(table.name, place(options.path, table.name), form, options)


def _no_changes(spark: SparkSession, columns: Columns) -> DataFrame:
    return spark.createDataFrame([], frames.struct_type(NO_CHANGES | columns))
