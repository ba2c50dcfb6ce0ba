"""Changes of rows as others than Debezium write them (maxwell.py, canal.py, open_protocol.py), one record by one.

A format is a `Form`: what a record says of rows, and how it writes their values. All else is the same for each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol

from backfill_cli.contracts.decoder import Asked, Decoded, Fault, Found
from backfill_cli.decode import values
from backfill_cli.decode.rows import Change, Rows, changes_one_by_one
from backfill_cli.decode.source_table import Known, known_of, others, reading, remembered
from backfill_cli.decode.tokens import OPEN_PROTOCOL, Constant, Number, Token, is_open_protocol, written
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.decode.whole import IN_ROW, lacking_column, new_column
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import Columns, SparkType, columns_of, schema_text
from backfill_cli.model.skipped import Skipped
from backfill_cli.model.units import near_names
from backfill_cli.spark.failures import SHOWN

_WITHOUT = "fill it from a topic without such a record, as the rows that it removed would stay"
_EMPTIED = f"the table was emptied, which has no order with the changes in other partitions: {_WITHOUT}"
_ONE_OF_SEVERAL = (
    "table '{of}' was emptied, and others may be read with it: start over with "
    '{at}.tables = ["{of}"], or ' + _WITHOUT
)
_DROPPED = (
    "database '{of}' was dropped, of which the table may be: start over with {at}.tables = "
    '["{of}.{table}"], or ' + _WITHOUT
)
_OTHER_ROWS = (
    "a statement about {of} as a whole, whose rows are then no longer those of the records before it: fill the "
    "table anew from a topic that begins with its rows after the statement (a bootstrap); if the statement left "
    'the rows as they were (gh-ost renames a copy), on_error = "quarantine" goes on after it'
)
_ONLY_KEY = (
    "column '{column}' is not in the row, all columns of which are of its key: {writer} can have left out the "
    "others; let it send whole rows, and start over from a topic that has them"
)


@dataclass(frozen=True, slots=True)
class RowChange:
    """What a record says of one row. table: its full name. ms: when it changed, milliseconds since 1970.

    row: as it is after the change, or was before a delete. old: the values that an update changed, as they were.
    columns: those that the record says its table has, None if it does not; a row with less was not sent whole.
    only_key: whether the row has nothing but its key, which can be because the rest was not sent.
    """

    table: str
    deletes: bool
    ms: int | None
    row: Mapping[str, Token]
    old: Mapping[str, Token]
    columns: frozenset[str] | None = None
    only_key: bool = False


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a record says of tables as a whole. emptied: the full name of one without rows from here on.

    databases: those that are gone with all tables. others: full names of tables that may have other rows then.
    """

    emptied: str = ""
    databases: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()


class Form(Protocol):
    """A format. Stateless, and pickled with the `Decode`: a frozen dataclass. writer: who writes such records."""

    writer: ClassVar[str]

    def changes(self, record: bytes) -> Iterable[RowChange | TableChange]:
        """What a record changes, in order; nothing for a message. Raises Unreadable."""
        ...

    def reader(self, kind: SparkType) -> values.Reader:
        """What reads a column of this type. Raises Unsupported."""
        ...


@dataclass(frozen=True, slots=True)
class RowChanges:
    """A `Decode`. at: where the options stand, for errors. whole, ordered: see Asked."""

    form: Form
    schema: str
    key: tuple[str, ...]
    known: Known
    at: str
    whole: tuple[frozenset[str], frozenset[str]] | None = None
    ordered: bool = False

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        return _reading(self)(records)


@cache
def _reading(of: RowChanges) -> Callable[[Sequence[bytes | None]], Decoded]:
    """Made once in a worker: what does not depend on the records."""
    return _Reading(of).decoded


class _Reading:
    def __init__(self, of: RowChanges) -> None:
        self.of = of
        self.columns = columns_of(of.schema)
        self._readers = {name: of.form.reader(column["type"]) for name, column in self.columns.items()}

    def decoded(self, records: Sequence[bytes | None]) -> Decoded:
        return changes_one_by_one(self.columns, records, self._made)

    def _made(self, record: bytes) -> Sequence[Change] | Skipped:
        """The rows of a record. Raises Unreadable."""
        changes = list(self.of.form.changes(record))
        return [row for change in changes for row in self._of(change)] or self._skipped(changes)

    def _of(self, change: RowChange | TableChange) -> Iterable[Change]:
        known = self.of.known
        if isinstance(change, TableChange):
            return self._of_tables(change)
        if not known.reads(change.table):
            return ()
        if known.is_other(change.table):
            told = known.fault(change.table)
            if known.shared:
                raise Unreadable(told)
            raise Unreadable(told, Fault.OTHER_TABLE)
        return self._of_row(change)

    def _skipped(self, changes: Sequence[RowChange | TableChange]) -> Skipped | Sequence[Change]:
        """What a record is that changes no row here; nothing if it changes one of the job's other tables."""
        rows = {one.table for one in changes if isinstance(one, RowChange)}
        emptied = {one.emptied for one in changes if isinstance(one, TableChange)}
        if (rows | emptied) & self.of.known.theirs:
            return ()
        if rows:
            return Skipped.OTHER_TABLE
        return Skipped.STATEMENT if changes else Skipped.MARK

    def _of_tables(self, change: TableChange) -> Iterable[Change]:
        known, at = self.of.known, self.of.at
        other = next((one for one in sorted(change.others) if known.is_mine(one)), None)
        if other is not None:
            raise Unreadable(_OTHER_ROWS.format(of=f"table '{other}'"), Fault.TRUNCATED)
        database = next((one for one in sorted(change.databases) if known.is_within(one)), None)
        if database is not None and not known.is_all_of(database):
            table = (known.named or ("", "…"))[1].rpartition(".")[2]
            raise Unreadable(_DROPPED.format(of=database, at=at, table=table), Fault.TRUNCATED)
        is_emptied = known.is_mine(change.emptied)
        if is_emptied and not known.is_alone(change.emptied):
            raise Unreadable(_ONE_OF_SEVERAL.format(of=change.emptied, at=at), Fault.TRUNCATED)
        if (is_emptied or database is not None) and not self.of.ordered:
            raise Unreadable(_EMPTIED, Fault.TRUNCATED)
        if is_emptied or database is not None:
            yield "T", None, {}

    def _of_row(self, change: RowChange) -> Iterable[Change]:
        row = change.row
        key = {name: self._value(name, row) for name in self.of.key}
        lacking = next((name for name, value in key.items() if value is None), None)
        if lacking is not None:
            raise Unreadable(f"column '{lacking}': the key is NULL")
        if change.deletes:
            yield "D", change.ms, key
            return
        fault = None if change.columns is None else lacking_column(row, change.columns)
        if self.of.whole is not None:
            others, required = self.of.whole
            fault = fault or new_column(row, self.columns, others, IN_ROW) or lacking_column(row, required)
        if fault is not None:
            raise Unreadable(fault, Fault.COLUMNS)
        if change.only_key and (unsent := next((name for name in self.columns if name not in row), None)):
            raise Unreadable(_ONLY_KEY.format(column=unsent, writer=self.of.form.writer), Fault.NOT_SENT)
        new = {name: self._value(name, row) for name in self.columns}
        was = key | {name: self._value(name, change.old) for name in self.of.key if name in change.old}
        if None in was.values():
            raise Unreadable("the old key is NULL")
        if was != key:
            yield "D", change.ms, was
        yield "U", change.ms, new

    def _value(self, name: str, row: Mapping[str, Token]) -> Any:
        try:
            return self._readers[name](row.get(name))
        except Unreadable as exc:
            told = row.get(name)
            shown = (told if isinstance(told, str) else written(told))[:SHOWN]
            raise Unreadable(f"column '{name}{exc.member}': {exc.args[0]}: {shown}", exc.fault) from None


@dataclass(frozen=True, slots=True)
class ChangesOf:
    """A `Decoder` of a form: its records do not say the columns' types, which the config declares.

    keyed: see Decoder.
    """

    form: Form
    keyed: bool = False
    changes: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset(("tables",))

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        writer, reads = self.form.writer, reading(asked)
        if asked.declared is None:
            fault = f"{asked.at}.schema: missing: {writer} does not say the columns' types in Spark's words"
            hint = f'declare all columns, each with its type: {asked.at}.schema = "id BIGINT, note STRING"'
            raise ConfigError("upstream", [fault], in_config(hint))
        self._refuse_types(asked)
        shown = samples()
        if any(map(is_open_protocol, shown)):
            fault = f"{asked.at}.format: {asked.place} holds {OPEN_PROTOCOL}"
            raise ConfigError("upstream", [fault], in_config(f'set {asked.at}.format = "open-protocol"'))
        found = [one for raw in shown for one in self._shown(raw)]
        named = frozenset(one.table for one in found)
        mine = [one for one in found if reads(one.table)]
        if found and not mine and not asked.shared:
            hint = f"the tables of its records: {', '.join(sorted(named)[:5])}"
            raise ConfigError("upstream", [f"{asked.at}.tables: no record of {asked.place} is of these"], hint)
        known = remembered(asked, named)
        names = frozenset(name for one in mine for name in one.row)
        unknown = [name for name in asked.declared if names and name not in names]
        if asked.whole is None and unknown:
            near = near_names(unknown[0], sorted(names)) or sorted(names)
            fault = f"{asked.at}.schema: no record of {asked.place} has a column '{unknown[0]}'"
            raise ConfigError("upstream", [fault], f"its columns are: {', '.join(near[:10])}")
        return Found(asked.declared, names, known, others(asked, named))

    def _shown(self, raw: bytes) -> list[RowChange]:
        """The changes of a sample; none if it cannot be read, which the job will say."""
        with suppress(Unreadable, RecursionError):
            return [one for one in self.form.changes(raw) if isinstance(one, RowChange)]
        return []

    def _refuse_types(self, asked: Asked) -> None:
        faults = []
        for name, column in (asked.declared or {}).items():
            try:
                self.form.reader(column["type"])
            except Unsupported as exc:
                faults.append(f"{asked.at}: column '{name}': {exc}")
        if faults:
            raise ConfigError("upstream", faults)

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        known = known_of(asked, {"source": None, **facts})
        schema = schema_text(columns)
        return Rows(RowChanges(self.form, schema, asked.key, known, asked.at, asked.whole, asked.ordered))


def object_in(record: Mapping[str, Token], name: str, writer: str) -> Mapping[str, Token]:
    """A member that is an object. Raises Unreadable."""
    found = record.get(name)
    if not isinstance(found, dict):
        raise Unreadable(f"'{name}' is not the row that a record of {writer} has there")
    return found


def text_in(record: Mapping[str, Token], name: str, writer: str) -> str:
    """A member that is a text. Raises Unreadable."""
    found = record.get(name)
    if not isinstance(found, str) or isinstance(found, Number | Constant):
        raise Unreadable(f"no text in '{name}': not a record of {writer}")
    return found


def time_in(record: Mapping[str, Token], names: Sequence[str], writer: str) -> None:
    """Nothing, if one of these members is a number. Raises Unreadable."""
    if not any(isinstance(record.get(name), Number) for name in names):
        raise Unreadable(f"no time in '{names[0]}': not a record of {writer}")


def full_name(record: Mapping[str, Token]) -> str:
    """`database.table`, as far as the record has these."""
    return ".".join(str(part) for part in (record.get("database"), record.get("table")) if part)
