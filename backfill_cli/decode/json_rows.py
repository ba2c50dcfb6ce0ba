"""Documents as rows: members that are no column are left out, a column without a member is NULL.

Rows of a topic with a key can be Debezium's, out of their envelopes: they say what is deleted (unwrapped.py), and
which values were not sent.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, Decoded, Fault, Found
from backfill_cli.decode import block, foreign, resolved, unwrapped
from backfill_cli.decode.connect import Connect
from backfill_cli.decode.documents import Document, Documents, Group, as_members
from backfill_cli.decode.json_documents import PLAIN
from backfill_cli.decode.registered import Seen, fitting
from backfill_cli.decode.resolved import Resolved
from backfill_cli.decode.rows import Rows, one_by_one
from backfill_cli.decode.tokens import is_registered
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.decode.unsent import NAMES, UNAVAILABLE
from backfill_cli.decode.whole import IN_ROW, lacking_column, new_column
from backfill_cli.model.schema import Columns, columns_of, field, schema_text

if TYPE_CHECKING:
    import pyarrow as pa

    from backfill_cli.decode.unsent_arrow import Placeholders


@dataclass(frozen=True, slots=True)
class JsonRows:
    """A `Decode` of one object a record. schema: of the columns. whole, key: as in `Asked`.

    kept_apart: whether what is no row of a table is refused (foreign.py): in a topic, not in a file.
    scalar: whether a document that is no object stands for the one column: so are the keys of records written.
    closed: whether a document's schema must have no other columns. taken: see Asked.
    """

    schema: str
    key: tuple[str, ...] = ()
    whole: tuple[frozenset[str], frozenset[str]] | None = None
    kept_apart: bool = True
    scalar: bool = False
    documents: Documents = PLAIN
    closed: bool = False
    taken: frozenset[str] = frozenset()

    @property
    def changed(self) -> bool:
        """Whether a row can say that it is gone, and lack values."""
        return bool(self.key) and self.kept_apart

    @property
    def beside(self) -> Columns:
        return _UNSENT if self.changed else {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        told = records
        if self.scalar and self.documents == PLAIN:
            columns = columns_of(self.schema)
            told = [None if record is None else as_object(record, columns) for record in records]
        return _reading(self)(told)


_UNSENT: Columns = {own.UNSENT: field(own.UNSENT, NAMES)}
_MARKS: Columns = {own.OP: field(own.OP, "string"), **_UNSENT}


@cache
def _reading(of: JsonRows) -> Callable[[Sequence[bytes | None]], Decoded]:
    """Made once in a worker: what does not depend on the records."""
    return _Reading(of).decoded


class _Reading:
    def __init__(self, of: JsonRows) -> None:
        self._of, self._columns = of, columns_of(of.schema)
        self._key, self._whole, self._documents = of.key, of.whole, of.documents
        self._foreign = foreign.kinds(self._columns) if of.kept_apart else ()
        self._changed, self._marks = of.changed, unwrapped.marks(self._columns) if of.changed else ()
        self._folded = {name.lower() for name in self._columns}
        self._plain = resolved.plain(self._columns)
        self._known: dict[int, tuple[Connect, Resolved]] = {}

    def decoded(self, records: Sequence[bytes | None]) -> Decoded:
        import pyarrow as pa

        from backfill_cli.decode.merged import merged

        groups, faults = self._documents.groups(records)
        parts: list[Decoded] = []
        odd: dict[int, Document | None] = {i: Document(fault) for i, fault in faults.items()}
        odd |= {i: None for i, record in enumerate(records) if record is None}
        for group in groups:
            left: Sequence[int] = range(len(group.at))
            if self._resolved(group).wanted(group.binary, self._marks) is not None:
                fast, left = self._by_arrow(group)
                if fast.record is not None and len(fast.record) == len(records):
                    return replace(fast, record=None)
                parts.append(fast)
            odd |= {group.at[number]: Document(group, number) for number in left}
        if odd or not parts:
            slow = sorted(odd)
            told = one_by_one(_MARKS | self._columns, [odd[i] for i in slow], self._row)
            parts.append(replace(self._with_marks(told), record=pa.array(slow, pa.int32())))
        return merged(parts)

    def _with_marks(self, found: Decoded) -> Decoded:
        """Of rows with the columns `_MARKS`: these where they belong."""
        columns = dict(found.columns)
        op, unsent = columns.pop(own.OP).fill_null("U"), columns.pop(own.UNSENT)
        if not self._changed:
            return replace(found, columns=columns)
        return replace(found, columns=columns, op=op, beside={own.UNSENT: unsent})

    def _resolved(self, of: Group | Document) -> Resolved:
        """How documents become rows, by their schema."""
        schema = of.schema
        if schema is None:
            return self._plain
        known = self._known.get(id(schema))
        if known is None or known[0] is not schema:
            if len(self._known) >= _KNOWN_SCHEMAS:
                self._known.clear()
            fields = frozenset(str(one.get("field")) for one in schema.get("fields") or ())
            names = unwrapped.own_names(fields, self._columns) if self._changed else fields
            closed: Sequence[Collection[str]] = ((), names) if self._of.closed else ((),)
            for one in closed:
                made = resolved.by_schema(
                    self._columns, schema, str(of.written), one, self._of.scalar, self._of.taken
                )
                if not made.members.keys() >= set(self._key):
                    break  # without its key a document is no row, and adds no column
            known = self._known[id(schema)] = schema, made
        return known[1]

    def _by_arrow(self, group: Group) -> tuple[Decoded, Sequence[int]]:
        """The rows that are read by columns, and the numbers of the group's other documents."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from backfill_cli.decode import arrow_values, unsent_arrow

        by = self._resolved(group)
        wanted = by.wanted(group.binary, self._marks)
        assert wanted is not None
        raw, kept = group.read(wanted)
        columns: dict[str, pa.Array] = {}
        unsent: dict[str, pa.Array] = {}
        gone = [self._says_else(raw, mark, *words) for mark, words in unwrapped.STAYS.items()]
        odd = arrow_values.either(*gone)  # to say which values of a deleted row count is not worth columns
        is_new = self._says(raw, unwrapped.OP, "c", "r")
        for name in self._columns:
            seen = self._placeholders(by, name, raw)
            odd, lacks = arrow_values.either(odd, seen.doubtful), seen.lacks
            if lacks is not None:
                odd = arrow_values.either(
                    odd, lacks if name in self._key or is_new is None else pc.and_(lacks, is_new)
                )
                unsent[name] = lacks
            columns[name], bad = by.column(name, raw, len(kept), lacks)
            odd = arrow_values.either(odd, bad)
        suspects = self._suspects(group, kept, columns)
        good = pa.array([number not in suspects for number in kept], pa.bool_()) if suspects else None
        if odd is not None:
            good = pc.invert(odd) if good is None else pc.and_(good, pc.invert(odd))
        at = group.at
        record = pa.array(at if len(kept) == len(at) else [at[i] for i in kept], pa.int32())
        beside = {own.UNSENT: unsent_arrow.names(unsent, len(kept))} if self._changed else {}
        if good is not None:
            record = record.filter(good)
            columns = {name: column.filter(good) for name, column in columns.items()}
            beside = {name: column.filter(good) for name, column in beside.items()}
        found = Decoded(columns, record, beside=beside)
        if len(record) == len(at):
            return found, []
        taken = set(record.to_pylist())
        return found, [number for number, i in enumerate(at) if i not in taken]

    def _says(self, raw: "Mapping[str, pa.Array]", mark: str, *words: str) -> "pa.Array | None":
        """Whether a row's mark is one of these words; None if no row can have it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.fill_null(pc.is_in(raw[mark], pa.array(words)), False) if mark in self._marks else None

    def _says_else(self, raw: "Mapping[str, pa.Array]", mark: str, *words: str) -> "pa.Array | None":
        """Whether a row has a mark, which is none of these words; None if no row can have it."""
        import pyarrow.compute as pc

        known = self._says(raw, mark, *words)
        return None if known is None else pc.invert(pc.or_(known, pc.is_null(raw[mark])))

    def _placeholders(self, by: Resolved, name: str, raw: "Mapping[str, pa.Array]") -> "Placeholders":
        from backfill_cli.decode.unsent_arrow import Placeholders

        is_read = self._changed and name in by.members
        return by.placeholders(name, raw[by.members[name].name]) if is_read else Placeholders()

    def _suspects(self, group: Group, kept: Sequence[int], columns: "Mapping[str, pa.Array]") -> set[int]:
        """The documents, by number, whose members have to be looked at one by one."""
        found = {number for kind in self._foreign for number in group.holding(kind.names)}
        if self._whole is not None:
            found.update(group.unlike(kept, (), lambda names: self._fault(names) is None))
        for name in self._resolved(group).unread:
            found.update(group.holding((name,)))
        if any(column.null_count for column in columns.values()):
            found.update(group.recased(self._columns))
        return found

    def _row(self, document: Document) -> tuple[Any, ...]:
        by = self._resolved(document)
        if by.fault is not None:
            raise Unreadable(*by.fault)
        whole = document.token()
        members = {next(iter(self._columns)): whole} if by.is_scalar else as_members(whole)
        foreign.refuse(members, self._foreign)
        gone = unwrapped.is_gone(members, self._marks)
        row: list[Any] = []
        unsent = []
        for name in self._columns:
            try:
                told = by.token(name, members) if not gone or name in self._key else None
                if self._changed and told is not None and by.is_unsent(name, members):
                    is_new = name in self._key or members.get(unwrapped.OP) in ("c", "r")
                    if is_new or not by.is_placeholder(name, members):
                        raise Unreadable(f"{UNAVAILABLE}: the value was not sent", Fault.NOT_SENT)
                    unsent.append(name)
                    told = None
                row.append(by.value(name, told, gone))
            except Unreadable as exc:
                raise Unreadable(f"column '{name}{exc.member}': {exc.args[0]}", exc.fault) from None
        if gone:
            return "D", None, *row
        for name in members if None in row and not document.binary else ():
            if name not in self._columns and name.lower() in self._folded and name not in by.names:
                raise Unreadable(f"member '{name}' differs from a column only in case: it would be NULL")
        unread = next((name for name in by.unread if name in members), None)
        if unread is not None:
            raise Unreadable(resolved.not_read(unread, by.unread[unread], str(document.written)))
        fault = self._fault(members)
        if fault is not None:
            raise Unreadable(fault, Fault.COLUMNS)
        return "U", unsent or None, *row

    def _fault(self, names: Collection[str]) -> str | None:
        """What is wrong with the columns that a row has."""
        if self._whole is None:
            return None
        others, required = self._whole
        names = unwrapped.own_names(names, self._columns) if self._changed else names
        return new_column(names, self._columns, others, IN_ROW) or lacking_column(names, required)


class RowsFormat:
    """See contracts.decoder.Decoder."""

    changes: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset({"encoding"})

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        if asked.documents is None:
            assert asked.declared is not None, "the options demand a schema"
            return Found(asked.declared)
        schemas = asked.documents.schemas(samples(), None if asked.begun else f"{asked.name}-value")
        return fitting(asked, schemas, _fields, lambda of: _found(asked, of))

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        documents = PLAIN if asked.documents is None else asked.documents
        if asked.of_keys:
            keys = resolved.without_defaults(columns, columns)
            return Rows(JsonRows(schema_text(keys), kept_apart=False, scalar=True, documents=documents))
        columns = resolved.without_defaults(columns, asked.key)
        closed = asked.documents is not None and asked.declared is None
        made = JsonRows(schema_text(columns), asked.key, asked.whole, documents=documents, closed=closed)
        return Rows(replace(made, taken=asked.taken))


def _fields(of: Seen) -> Sequence[Connect]:
    return of.schema.get("fields") or ()


def _found(asked: Asked, schemas: Sequence[Seen]) -> Found:
    """The columns of these schemas. Raises BadData and ConfigError, as `columns`."""
    told = resolved.told_by(asked, [(one.name, _fields(one)) for one in schemas])
    rows = [(one.id, _fields(one)) for one in schemas]
    if asked.key:  # not of events, each of which is a row with what the transform added
        told = {name: told[name] for name in unwrapped.own_names(told, ())}
        rows = [(id, _without_marks(fields)) for id, fields in rows]
    return Found(resolved.columns_of(asked, told), block.names_of(told), schemas=rows)


decoder = RowsFormat()

_KNOWN_SCHEMAS = 64


_BARE = ("byte", "short", "integer", "long", "float", "double", "boolean", "decimal")
"""Types whose JSON has no quotes."""


def _without_marks(fields: Sequence[Connect]) -> Sequence[Connect]:
    """Those that the transform added say what is deleted, and become no column."""
    own_names = unwrapped.own_names([str(one["field"]) for one in fields], ())
    return [one for one in fields if one["field"] in own_names]


def as_object(raw: bytes, columns: Columns) -> bytes:
    """A JSON object as it is, or a scalar, also a bare text, under the name of the one column."""
    if raw.lstrip().startswith(b"{") or len(columns) > 1 or is_registered(raw):
        return raw
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    ((name, column),) = columns.items()
    stripped = text.strip()
    bare = isinstance(column["type"], dict) or column["type"].startswith(_BARE)
    if not bare and not (len(stripped) > 1 and stripped[0] == stripped[-1] == '"'):
        text = json.dumps(text)
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return raw  # as it is, for an error that counts its characters
    return f"{{{json.dumps(name)}:{text}}}".encode()
