"""Debezium envelopes as changes of a table: one row each, two for a change of the key, none for a message.

The schema of an envelope says how it is written (block.py), or the options if it has none. Tombstones add nothing
to the delete before them.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, Decode, Decoded, Edges, Fault, Found, Opened
from backfill_cli.decode import block, debezium_forms, messages, order, resolved, stored, values
from backfill_cli.decode.connect import Connect, encoding, is_time
from backfill_cli.decode.documents import Document, Documents, Group
from backfill_cli.decode.encodings import Encoding, Undecided, schemaless
from backfill_cli.decode.json_documents import IN_BLOCKS
from backfill_cli.decode.order import blanks, can_be_late, comparable
from backfill_cli.decode.registered import Registered, Seen, fitting
from backfill_cli.decode.resolved import Member, Resolved
from backfill_cli.decode.source_table import Known, known_of, others, reading, remembered, source_of
from backfill_cli.decode.tokens import DEEP, Token, written
from backfill_cli.decode.unreadable import Misfit, Rounded, Unreadable
from backfill_cli.decode.unsent import NAMES, UNAVAILABLE
from backfill_cli.decode.whole import IN_BLOCK, IN_ROW, lacking_column, new_column
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import Columns, SparkType, columns_of, decimal_of, field, schema_text
from backfill_cli.model.skipped import Skipped
from backfill_cli.model.units import near_names
from backfill_cli.spark.api import Column, DataFrame
from backfill_cli.spark.failures import SHOWN

if TYPE_CHECKING:
    import pyarrow as pa

NO_BLOCK = "a schema block that is not Kafka Connect's"

_TRUNCATE = "a truncate, which has no order with the changes in other partitions"
_ONE_OF_SEVERAL = "a truncate of '{of}', while other tables may be read with it, whose rows stay"
_FLAT = "no 'op': not a Debezium envelope"
_MONGODB = "an envelope of MongoDB, which holds documents as text"
_ROUNDED = "a number with a fraction in a column that is read as text: its digits would be rounded"
_NO_ENVELOPE = "not a Debezium envelope of the table's columns"
_OF_TOPICS = {
    Fault.NOT_SENT: "; ALTER TABLE … REPLICA IDENTITY FULL at the source sends it",
    Fault.TRUNCATED: ': set skipped.operations = "t" in the connector, and fill the table from a topic without '
    "such a record, as the rows that it removed would stay",
    Fault.ONE_OF_SEVERAL: "; start over with it in full as the only one of {at}.tables, or from a topic "
    "without such a record",
    Fault.UNWRAPPED: '; rows that ExtractNewRecordState has unwrapped are read with value.format = "rows"',
    Fault.DOCUMENT: ': read them with value.format = "debezium-mongodb"',
}
"""How an error of a topic's record goes on: what to do about it."""

_WRITES = ("c", "r", "u")
_KNOWN_SCHEMAS = 64


@dataclass(frozen=True, slots=True)
class Envelopes:
    """A `Decode` of Debezium's envelopes.

    schema: of the columns. how: each column's encoding. at: where a topic's options stand, which errors name;
    None: records are lines of files. allowed: the columns that rows may have; None: any. required: those that no
    row may lack, nor those of its own block. blockless: the fault of a record without a block, None if it is read
    as the others are. ordered: whether a truncate can be applied. images: the columns whose old values `order`
    compares; None: the order of the records cannot prove anything. epoch: a member (dotted if nested) that
    `own.EPOCH` holds as text. taken: see Asked.
    """

    schema: str
    key: tuple[str, ...]
    how: tuple[tuple[str, Encoding], ...]
    at: str | None
    known: Known
    allowed: frozenset[str] | None = None
    required: frozenset[str] = frozenset()
    blockless: str | None = None
    ordered: bool = True
    images: tuple[str, ...] | None = None
    epoch: str | None = None
    documents: Documents = IN_BLOCKS
    taken: frozenset[str] = frozenset()

    @property
    def beside(self) -> Columns:
        found = {own.UNSENT: field(own.UNSENT, NAMES)}
        found |= {} if self.epoch is None else {own.EPOCH: field(own.EPOCH, "string")}
        return found if self.images is None else found | order.beside(self.images, columns_of(self.schema))

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        return _reading(self)(records)

    @property
    def has_block(self) -> bool:
        """Whether schemas say how columns are written."""
        return any(block.told_of(column) is not None for column in columns_of(self.schema).values())

    def edges(self, rows: "pa.Table") -> Edges | None:
        """See contracts.decoder.InOrder."""
        from backfill_cli.decode.order_arrow import edges

        if self.images is None:
            return Edges()
        return edges(rows, self.key, self.images, self.has_block, not self.known.of_one)


@cache
def _reading(of: Envelopes) -> Callable[[Sequence[bytes | None]], Decoded]:
    """Made once in a worker: what does not depend on the records."""
    from backfill_cli.decode.debezium_arrow import ByArrow

    slow = OneByOne(of)
    return ByArrow(of, slow).decoded


@dataclass(frozen=True, slots=True)
class Block:
    """What an envelope's schema says. fault: how it differs from how records are read, as `Unreadable` takes it.

    by: how its rows are read. blanks: by column, see order.py. names: the columns that it has, of those that are
    read.
    """

    fault: tuple[str, Fault | None] | None
    by: Resolved
    blanks: Mapping[str, frozenset[str]]
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """What one row of an envelope is. row: by column, as stored. epoch, trace, unsent: what stands beside it."""

    op: str
    ms: int | None
    row: tuple[Any, ...]
    epoch: str | None
    trace: tuple[Any, ...] | None
    unsent: tuple[str, ...] | None = None


class OneByOne:
    """Reads envelopes in plain Python: every rule, record by record."""

    def __init__(self, of: Envelopes) -> None:
        self.of = of
        self.columns = columns_of(of.schema)
        self.how = dict(of.how)
        told = {
            name: Member(name, how, values.of_debezium(self.columns[name]["type"], how))
            for name, how in self.how.items()
        }
        self.by_name = Resolved(self.columns, told, {})
        self._there = [name for name in self.columns if of.allowed is None or name in of.allowed]
        self._blocks: dict[int, tuple[Connect, Block]] = {}

    def block_of(self, of: Group | Document) -> Block | None:
        """What an envelope's schema says; None if it has none."""
        schema = of.schema
        if schema is None:
            return None
        known = self._blocks.get(id(schema))
        if known is None or known[0] is not schema:
            if len(self._blocks) >= _KNOWN_SCHEMAS:
                self._blocks.clear()
            known = self._blocks[id(schema)] = (schema, self._block(schema, of.written))
        return known[1]

    def _block(self, schema: Connect, written: str | None) -> Block:
        try:
            row = block.row_of(schema)
            by_name = {str(one.get("field")): one for one in row or ()}
            by = self.by_name
            fault: tuple[str, Fault | None] | None
            if written is None:
                may_lack = self.of.at is None
                fault = block.disagreement(
                    row, self.columns, self.how, self.of.allowed, may_lack, taken=self.of.taken
                )
                names = frozenset(by_name) & self.columns.keys()
            else:
                by = self._resolved(by_name, written)
                fault, names = by.fault, frozenset(by.members)
            told = {name: by_name[by.members[name].name] for name in names}
            certain = {name: found for name, one in told.items() if (found := blanks(one)) is not None}
        except (*block.MALFORMED, Unreadable):
            return Block((NO_BLOCK, Fault.SCHEMA_BLOCK), self.by_name, {})
        return Block(fault, by, certain, names)

    def _resolved(self, fields: Mapping[str, Connect], written: str) -> Resolved:
        """How the rows of a registry's schema are read, which has these fields."""
        schema = {"type": "struct", "fields": list(fields.values())}
        allowed = self.of.allowed
        found = resolved.by_schema(
            resolved.without_defaults(self.columns, self.of.key),
            schema,
            written,
            () if allowed is None else fields.keys() - allowed,
            False,
            self.of.taken,
        )
        if found.fault is None and found.unread:
            name, word = next(iter(found.unread.items()))
            return replace(found, fault=(resolved.not_read(name, word, written), None))
        untold = (n for n, c in self.columns.items() if n not in found.members and block.told_of(c) is None)
        lacking = next(untold, None)
        if found.fault is None and lacking is not None and self.of.at is not None:  # files may lack any
            return replace(found, fault=(f"column '{lacking}' is not in {written}", Fault.BLOCK_COLUMNS))
        return found

    # The envelope

    def _of_envelope(self, envelope: Token, known: Block | None) -> list[Change] | Skipped:
        if envelope is None:
            raise Unreadable(_FLAT, Fault.UNWRAPPED)
        of = source_of(envelope) if isinstance(envelope, dict) else ""
        if not self.of.known.reads(of):
            message = messages.kind_of(envelope) if isinstance(envelope, dict) else None
            return message or (Skipped.OTHER_TABLE if of not in self.of.known.theirs else [])
        if not self._has_shape(envelope):
            raise _no_documents() if _is_mongodb(envelope) else Unreadable(_NO_ENVELOPE)
        source = envelope.get("source") or {}
        if (message := messages.kind_of(envelope)) is not None:
            return message
        before, after = envelope.get("before"), envelope.get("after")
        op = _text(envelope.get("op"))
        by = self.by_name if known is None else known.by
        unsent = self._unsent(op, after, by)
        new, new_faults = self._row(after, [name for name in self._there if name not in unsent], by)
        old, old_faults = self._row(before, self.of.key, by)
        self._refuse_kinds(new_faults, old_faults, _is_mongodb(envelope))
        if op is None:
            raise Unreadable(_FLAT, Fault.UNWRAPPED)
        self._refuse(op, before, after, known, by, of)
        for name in self._there:
            for image, faults in ((after, new_faults), (before, old_faults)):
                if (fault := faults.get(name)) is not None:
                    shown = _shown(by.token(name, image))
                    raise Unreadable(f"column '{name}{fault.member}': {fault}: {shown}", fault.fault)
            used = [after] if op in _WRITES else []
            used += [before] if op in ("u", "d") and name in self.of.key else []
            if name in unsent and name not in self.of.key:
                continue
            if any(image is not None and by.is_unsent(name, image) for image in used):
                why = f"column '{name}': {UNAVAILABLE}: the value did not change and was not sent"
                raise Unreadable(why, Fault.NOT_SENT)
        return self._rows(op, envelope, source, before, new, old, known, unsent)

    def _has_shape(self, envelope: Token) -> bool:
        if not isinstance(envelope, dict):
            return False
        if not all(isinstance(envelope.get(part), dict | None) for part in ("source", "before", "after")):
            return False
        times = [holder.get("ts_ms") for holder in (envelope, envelope.get("source") or {})]
        return all(
            ms is None
            or (isinstance(ms, str) and re.fullmatch("-?[0-9]{1,19}", ms) and -(2**63) <= int(ms) < 2**63)
            for ms in times
        )

    def _row(self, image: Token, names: Any, by: Resolved) -> tuple[dict[str, Any], dict[str, Unreadable]]:
        """The values of these columns, None for what cannot be read, and why it cannot."""
        found: dict[str, Any] = {}
        faults: dict[str, Unreadable] = {}
        for name in names if image is not None else ():
            try:
                found[name] = by.value(name, by.token(name, image))
            except Unreadable as exc:
                found[name], faults[name] = None, exc
        return found, faults

    def _refuse_kinds(
        self, new: Mapping[str, Unreadable], old: Mapping[str, Unreadable], is_mongodb: bool
    ) -> None:
        """Raises for values of another kind than their columns'."""
        faults = [(name, fault) for part in (new, old) for name, fault in part.items()]
        for name, fault in faults:
            if isinstance(fault, Rounded):
                raise Unreadable(f"{_ROUNDED}: column '{name}{fault.member}': {fault}", fault.fault)
        if is_mongodb:
            raise _no_documents()
        for name, fault in faults:
            if isinstance(fault, Misfit):
                raise Unreadable(f"{_NO_ENVELOPE}: column '{name}{fault.member}': {fault}", fault.fault)

    def _refuse(self, op: str, before: Any, after: Any, known: Block | None, by: Resolved, of: str) -> None:
        rules = self.of
        if rules.known.is_other(of):
            raise Unreadable(rules.known.fault(of), None if rules.known.shared else Fault.OTHER_TABLE)
        if op == "t" and not rules.known.is_alone(of):
            raise Unreadable(_ONE_OF_SEVERAL.format(of=of), Fault.ONE_OF_SEVERAL)
        if op == "t" and not rules.ordered:
            raise Unreadable(_TRUNCATE, Fault.TRUNCATED)
        if op not in (*_WRITES, "d", "t"):
            raise Unreadable(f"unknown op {op}")
        if op == "t":
            return
        if op in _WRITES and after is None:
            raise Unreadable(f"no 'after' in an envelope with op {op}")
        if op == "d" and before is None:
            raise Unreadable("no 'before', so no key, in an envelope with op d")
        keyed = [after] if op in _WRITES else []
        keyed += [before] if op in ("u", "d") and before is not None else []
        lacking = next((name for image in keyed for name in rules.key if by.is_null(name, image)), None)
        if lacking is not None:
            raise Unreadable(f"column '{lacking}': the key is NULL")
        if known is not None and known.fault is not None:
            raise Unreadable(*known.fault)
        fault = None
        if rules.allowed is not None and known is None and after is not None:
            fault = new_column(after, rules.allowed, (), IN_ROW)
        if fault is None and op in _WRITES:
            there = [name for name in self.columns if by.has(name, after)]
            fault = lacking_column(there, rules.required if known is None else rules.required | known.names)
        if fault is None and op in _WRITES and known is not None:
            told = (name for name in self._there if by.token(name, after) is not None)
            fault = lacking_column(known.names, told, IN_BLOCK)
        if fault is not None:
            raise Unreadable(fault, Fault.COLUMNS)
        if known is None and rules.blockless is not None:
            raise Unreadable(rules.blockless, Fault.SCHEMA_BLOCK)

    def _unsent(self, op: str | None, after: Token, by: Resolved) -> tuple[str, ...]:
        """The columns of which an update sent no value, as it did not change them."""
        if op != "u" or after is None:
            return ()
        return tuple(name for name in self._there if by.is_placeholder(name, after))

    def _rows(
        self,
        op: str,
        envelope: Any,
        source: Any,
        before: Any,
        new: Any,
        old: Any,
        known: Block | None,
        unsent: tuple[str, ...],
    ) -> list[Change]:
        told = source.get("ts_ms") if source.get("ts_ms") is not None else envelope.get("ts_ms")
        ms = None if told is None else int(told)
        if op == "t":
            return [Change("T", ms, (None,) * len(self.columns), self._epoch(envelope), None)]
        gone = tuple(old.get(name) if name in self.of.key else None for name in self.columns)
        there = tuple(new.get(name) for name in self.columns)
        epoch = self._epoch(envelope)
        removes, puts = self._trace(source, before or {}, known), self._trace(source, None, known)
        if op == "d":
            return [Change("D", ms, gone, epoch, removes)]
        if op == "u" and any(old.get(n) is not None and old[n] != new[n] for n in self.of.key):
            if unsent:
                why = f"column '{unsent[0]}': {UNAVAILABLE}: the value was not sent, of a row whose key changed"
                raise Unreadable(why, Fault.NOT_SENT)
            return [Change("D", ms, gone, epoch, removes), Change("U", ms, there, epoch, puts)]
        return [Change("U", ms, there, epoch, removes if op == "u" else puts, unsent or None)]

    def _epoch(self, envelope: Token) -> str | None:
        if self.of.epoch is None:
            return None
        for name in self.of.epoch.split("."):
            envelope = envelope.get(name) if isinstance(envelope, dict) else None
        return _text(envelope)

    def _trace(self, source: Any, before: Any, known: Block | None) -> tuple[Any, ...] | None:
        """before: the old row that the change removes, None if it removes none."""
        if self.of.images is None:
            return None
        gone: tuple[Any, ...] | None = None
        sure: list[bool] | None = None
        if before is not None:
            by = self.by_name if known is None else known.by
            gone = tuple(self._old(name, before, by) for name in self.of.images)
            sure = [self._is_sure(name, by.token(name, before), known) for name in self.of.images]
        has = order.had(self.of.images, None if known is None else known.names)
        return (*order.place_of(source), has, *([gone] if self.of.images else []), sure)

    def _is_sure(self, name: str, raw: Token, known: Block | None) -> bool:
        blank = None if known is None else known.blanks.get(name)
        return blank is not None and raw is not None and _text(raw) not in blank

    def _old(self, name: str, before: Mapping[str, Token], by: Resolved) -> Any:
        """The value of an old row, None where it was not sent or cannot be read."""
        raw = by.token(name, before)
        if raw is None or by.is_unsent(name, before):
            return None
        try:
            return by.value(name, raw)
        except Unreadable:
            return None

    # Rows

    def decoded(self, documents: Mapping[int, Document]) -> Decoded:
        """The rows of these documents, by the indices of their records."""
        import pyarrow as pa

        indices: list[int] = []
        changes: list[Change | None] = []
        faults: list[Unreadable | None] = []
        skipped = Counter[Skipped]()
        for index, document in sorted(documents.items()):
            made: list[Change | None] = [None]
            fault = None
            try:
                told = self._of_envelope(document.token(), self.block_of(document))
                skipped.update([told] if isinstance(told, Skipped) else ())
                made = [] if isinstance(told, Skipped) else [*told]
            except Unreadable as exc:
                fault = exc
            except RecursionError:  # nested hundreds deep
                fault = Unreadable(DEEP)
            indices += [index] * len(made)
            changes += made
            faults += [fault] * len(made)
        columns = {
            name: stored.array([None if c is None else c.row[i] for c in changes], column["type"])
            for i, (name, column) in enumerate(self.columns.items())
        }
        of_names = {own.EPOCH: "epoch", own.TRACE: "trace", own.UNSENT: "unsent"}
        beside = {
            name: stored.array([None if c is None else getattr(c, of_names[name]) for c in changes], kind["type"])
            for name, kind in self.of.beside.items()
        }
        return Decoded(
            columns,
            pa.array(indices, pa.int32()),
            pa.array(["U" if c is None else c.op for c in changes], pa.string()),
            pa.array([None if c is None else c.ms for c in changes], pa.int64()),
            pa.array([None if fault is None else self._told(fault) for fault in faults], pa.string()),
            pa.array([None if fault is None else fault.fault for fault in faults], pa.string()),
            beside,
            skipped,
        )

    def _told(self, fault: Unreadable) -> str:
        why = str(fault.args[0])
        if self.of.at is None or fault.fault is None:
            return why
        return why + _OF_TOPICS.get(fault.fault, "").format(at=self.of.at)


def _is_mongodb(envelope: Token) -> bool:
    source = envelope.get("source") if isinstance(envelope, dict) else None
    return isinstance(source, dict) and source.get("connector") == "mongodb"


def _text(token: Token) -> str | None:
    return None if token is None else token if isinstance(token, str) else written(token)


def _shown(token: Token) -> str:
    return str(_text(token))[:SHOWN]


def _no_documents() -> Unreadable:
    return Unreadable(_MONGODB, Fault.DOCUMENT)


# On the driver


def encodings(
    columns: Columns, timestamps: str | None, decimals: str | None, at: str
) -> tuple[Mapping[str, Encoding], str | None]:
    """How each column is written, and the fault of records without a schema block, None if it is no fault.

    at: where the options stand. Raises ConfigError if neither a block nor the options say it.
    """
    found, faults, unlike = {}, [], []
    for name, column in columns.items():
        told = block.told_of(column)
        try:
            if told is not None:
                found[name] = block.encoding_of(told, column["type"])
                if not _alike(found[name], column["type"], timestamps, decimals):
                    unlike.append(name)
            else:
                found[name] = schemaless(column["type"], timestamps, decimals)
        except Undecided as exc:
            forms = '"precise", or "string", or "double"'
            faults.append(f"{at}: column '{name}': {exc}: set {at}.decimals = {forms}")
        except Unsupported as exc:
            faults.append(f"{at}: column '{name}': {exc}")
    if faults:
        raise ConfigError("upstream", faults)
    blockless = f"no schema block, which is needed to say how these are written: {', '.join(unlike)}"
    return found, blockless if unlike else None


def _alike(how: Encoding, kind: SparkType, timestamps: str | None, decimals: str | None) -> bool:
    """Whether a value without a block is read the same way."""
    try:
        mine = schemaless(kind, timestamps, decimals)
    except Unsupported:
        return False
    if mine.kind == "unscaled" and how.kind == "unscaled":
        return how.scale == decimal_of(str(kind))[1]
    return mine == how or (mine.kind == "instant" and (how.kind == "text" or how.unit == mine.unit))


class _Opened:
    """See contracts.decoder.Opened."""

    def __init__(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> None:
        options = asked.options
        how, blockless = encodings(columns, options.get("timestamps"), options.get("decimals"), asked.at)
        self._how, self._columns, self._key = how, columns, asked.key
        others = frozenset[str]() if asked.declared is None else None
        others, required = (others, frozenset[str]()) if asked.whole is None else asked.whole
        allowed = None if others is None else others | frozenset(columns)
        known = known_of(asked, facts)
        self._documents = asked.documents
        self._envelopes = Envelopes(
            schema_text(columns),
            asked.key,
            tuple(how.items()),
            asked.at,
            known,
            allowed,
            required,
            blockless,
            documents=IN_BLOCKS if asked.documents is None else asked.documents,
        )
        self._envelopes = replace(self._envelopes, ordered=asked.ordered, taken=asked.taken)
        self._late: bool | None = None

    def decode(self, recent: Callable[[], Sequence[bytes]]) -> Decode:
        images = comparable(self._key, self._columns, self._how) if self._can_be_late(recent) else None
        return replace(self._envelopes, images=images)

    def _can_be_late(self, recent: Callable[[], Sequence[bytes]]) -> bool:
        """Whether the order can prove that the source checks keys late, by the first window that has a change."""
        if self._late is None:
            found = [envelope for envelope, _ in _seen(self._documents, recent())]
            if not any(one.get("op") in ("c", "u", "d") for one in found):
                return True
            self._late = can_be_late(found)
        return self._late

    def checked(self, rows: DataFrame, decode: Decode, place: Column) -> DataFrame:
        assert isinstance(decode, Envelopes)
        if decode.images is None:
            return rows
        return order.refusing(rows, self._key, decode.images, decode.has_block, place)


def _seen(
    documents: Registered | None, values: Sequence[bytes]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """(envelope, its schema if it has one) of each of these values that is one."""
    if documents is None:
        return [one for one in map(block.envelope_of, values) if one is not None]
    found: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = []
    for group in documents.groups(values)[0]:
        for number in range(len(group.at)):
            with suppress(Unreadable):
                envelope = group.token(number)
                if isinstance(envelope, dict) and "op" in envelope:
                    found.append((envelope, group.schema))
    return found


class Debezium:
    """See contracts.decoder.Decoder."""

    changes: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset(("timestamps", "decimals", "tables", "encoding"))

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        reads, values = reading(asked), samples()
        found = [one for one in _seen(asked.documents, values) if messages.kind_of(one[0]) is None]
        _refuse_messages(asked, values)
        others_too = any if not asked.sets_aside else all
        if found and others_too(_is_mongodb(envelope) for envelope, _ in found):
            way = f'read its envelopes as documents: {asked.at}.format = "debezium-mongodb"'
            raise ConfigError("upstream", [f"{asked.at}.format: {asked.place} holds {_MONGODB}"], in_config(way))
        named = frozenset(source_of(envelope) for envelope, _ in found)
        known = remembered(asked, named)
        skipped = others(asked, named)
        mine = [one for one in found if reads(source_of(one[0]))]
        is_one = not asked.options.get("tables") and known["source"] is not None
        if is_one and not asked.shared:
            mine = [one for one in mine if source_of(one[0]) == known["source"]]
        if asked.documents is not None:
            all_ = not asked.options.get("tables") and len(mine) == len(found)
            subject = None if asked.begun else f"{asked.name}-value"
            seen = [
                one
                for one in asked.documents.schemas(values, subject)
                if all_ or any(one.schema is of for _, of in mine)
            ]
            return fitting(asked, seen, _fields, lambda of: self._found_by(asked, of, known, skipped))
        told = _together(asked, [one for _, one in mine if one is not None and block.is_sound(one)])
        images = [envelope.get("after") for envelope, _ in mine]
        names = frozenset(name for image in images if isinstance(image, dict) for name in image)
        blockless = [image for envelope, one in mine if one is None for image in _images(envelope)]
        return self._found(asked, told, names, blockless, known, skipped)

    def _found_by(
        self, asked: Asked, schemas: Sequence[Seen], known: Mapping[str, Any], skipped: frozenset[str]
    ) -> Found:
        """The columns of the rows in envelopes of these schemas. Raises as `columns`."""
        rows = [(one.id, _fields(one)) for one in schemas]
        told = resolved.told_by(asked, [(one.name, _fields(one)) for one in schemas])
        return replace(self._found(asked, told, frozenset(), [], known, skipped), schemas=rows)

    def _found(
        self,
        asked: Asked,
        told: Mapping[str, Connect],
        names: frozenset[str],
        blockless: Sequence[Mapping[str, Any]],
        known: Mapping[str, Any],
        skipped: frozenset[str],
    ) -> Found:
        """The columns by what schemas say, and by rows without one. Raises as `columns`."""
        columns = self._of_table(asked, told, names | told.keys())
        if asked.whole is not None:
            _refuse_other_times(columns, asked.at.rpartition(".")[0])
        self._refuse_lacking(asked, columns, blockless)
        return Found(columns, names | block.names_of(told), known, skipped)

    def _of_table(self, asked: Asked, told: Mapping[str, Connect], names: frozenset[str]) -> Columns:
        """The declared columns, or else those of the schema blocks, each with what the blocks say about it."""
        with_told = block.with_told if asked.documents is None else resolved.with_told
        declare = in_config(
            f'declare all columns, each with its type: {asked.at}.schema = "id BIGINT, note STRING"'
        )
        if asked.declared is None:
            if not told:
                fault = f"{asked.at}.schema: missing, and no record of {asked.place} has a schema block"
                raise ConfigError("upstream", [fault], declare)
            return with_told(block.columns_of(asked.place, told, declare), told)
        unknown = [name for name in asked.declared if name not in names]
        if asked.whole is None and names and unknown:
            near = near_names(unknown[0], sorted(names)) or sorted(names)
            fault = f"{asked.at}.schema: no record of {asked.place} has a column '{unknown[0]}'"
            raise ConfigError("upstream", [fault], f"its columns are: {', '.join(near[:10])}")
        return with_told(asked.declared, told)

    def _refuse_lacking(self, asked: Asked, columns: Columns, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises ConfigError if neither a schema block nor the options say how columns are written."""
        timestamps, decimals = asked.options.get("timestamps"), asked.options.get("decimals")
        untold = {name: column for name, column in columns.items() if block.told_of(column) is None}
        if lacking := debezium_forms.lacks(untold, rows, timestamps, decimals, asked.at):
            raise ConfigError("upstream", [one.fault for one in lacking])
        encodings(columns, timestamps, decimals, asked.at)

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Opened:
        return _Opened(asked, columns, facts)


def _fields(of: Seen) -> Sequence[Connect]:
    return block.row_of(of.schema) or ()


def _together(asked: Asked, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Connect]:
    """The columns of these blocks. Raises BadData for one of two types, unless one of these settles it."""
    try:
        return block.together(asked.place, blocks, asked.begun, resolved.one_type(asked))
    except block.Clash:
        if asked.whole is not None or not (asked.sets_aside or asked.declared is not None):
            raise
    return block.newest(blocks, asked.declared)


def _refuse_messages(asked: Asked, samples: Sequence[bytes]) -> None:
    """Raises ConfigError for a topic of heartbeats, or of what else Debezium writes beside changes of rows."""
    kinds = set(map(block.message_in, samples))
    if kinds and None not in kinds:
        at = asked.at.rpartition(".")[0]
        what = " and ".join(sorted(messages.WORDS[kind] for kind in kinds if kind is not None))
        fault = f"{at}.topic: '{asked.name}' holds {what}, no changes of a table"
        raise ConfigError("upstream", [fault], "name the topic of a table, like server.schema.table")


def _refuse_other_times(columns: Columns, at: str) -> None:
    """Raises ConfigError for a time that a snapshot has otherwise: a number of days is no text of a date."""
    faults = []
    for name, column in columns.items():
        told = block.told_of(column)
        if told is not None and is_time(told):
            try:
                encoding(told, column["type"])
            except Unsupported as exc:
                faults.append(f"{at}: column '{name}' of the snapshot: {exc}, as records of the topic have it")
    if faults:
        raise ConfigError(
            "upstream", faults, "take a snapshot in which these columns have the types of the source"
        )


def _images(envelope: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in (envelope.get("before"), envelope.get("after")) if isinstance(row, dict)]


decoder = Debezium()
