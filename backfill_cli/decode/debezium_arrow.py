"""Debezium envelopes by columns: a group of them at once, without those that only debezium.py can read.

What is read here is one row of an envelope each: a change that moves a key, a message, and whatever is a fault or
unusual are left to `OneByOne`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Decoded
from backfill_cli.decode import stored, unsent_arrow
from backfill_cli.decode.arrow_values import Odd, either
from backfill_cli.decode.connect import INTS, Connect
from backfill_cli.decode.debezium import Block, Envelopes, OneByOne
from backfill_cli.decode.documents import Document, Group
from backfill_cli.decode.merged import merged
from backfill_cli.decode.order import PLACE, had
from backfill_cli.decode.resolved import Resolved
from backfill_cli.decode.source_table import PARTS
from backfill_cli.decode.tokens import Number
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.compute import pc
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.skipped import Skipped

_SEEN = 20
"""Envelopes that show whether values are written as numbers or as texts where both are usual."""


class ByArrow:
    """Reads batches by the rules of `Envelopes`."""

    def __init__(self, of: Envelopes, slow: OneByOne) -> None:
        self._of, self._slow = of, slow

    def decoded(self, records: Sequence[bytes | None]) -> Decoded:
        groups, faults = self._slow.of.documents.groups(records)
        skipped = Counter({Skipped.TOMBSTONE: records.count(None)})
        odd = {i: Document(fault) for i, fault in faults.items()}
        parts = []
        for group in groups:
            known = self._slow.block_of(group)
            by = self._slow.by_name if known is None else known.by
            if self._of.known.tables and self._is_mixed(group, known, by):
                group, others = self._not_skipped(group)
                skipped[Skipped.OTHER_TABLE] += others
            part, left = self._by_columns(group, known, by)
            parts += [] if part is None else [part]
            odd |= {group.at[number]: Document(group, number) for number in left}
        if odd or not parts:
            parts.append(self._slow.decoded(odd))
        found = merged(parts)
        return replace(found, skipped=skipped + Counter(found.skipped))

    def _by_columns(self, group: Group, known: Block | None, by: Resolved) -> tuple[Decoded | None, Sequence[int]]:
        """The rows of a group that can be read so; the numbers of the documents that are left."""
        wanted = self._wanted(group, known, by)
        if not group.at or wanted is None:
            return None, range(len(group.at))
        return self._group(group, known, by, wanted)

    def _wanted(self, group: Group, known: Block | None, by: Resolved) -> pa.Schema | None:
        """What is read of a row; None if something that holds for the whole group keeps it from being read so."""
        fault = self._of.blockless if known is None else known.fault
        return by.wanted(group.binary) if fault is None else None

    def _is_mixed(self, group: Group, known: Block | None, by: Resolved) -> bool:
        """Whether rows of other tables may be what keeps a group from being read by columns, as a few show it."""
        wanted = self._wanted(group, known, by)
        if wanted is None:
            return True
        few = group.only(range(min(_SEEN, len(group.at))))
        raw, places = self._seen_types(few, {one.name: one.type for one in wanted})
        return len(few.read(self._schema(raw, places, by))[1]) < len(few.at)

    def _group(
        self, group: Group, known: Block | None, by: Resolved, wanted: pa.Schema
    ) -> tuple[Decoded | None, Sequence[int]]:
        """The rows of a group, and the numbers of the documents that are left. wanted: of a row."""
        raw, places = self._seen_types(group, {one.name: one.type for one in wanted})
        part, kept = group.read(self._schema(raw, places, by))
        beside = {} if self._of.epoch is None else self._epochs(self._of.epoch, group, kept)
        if not kept or beside is None:
            return None, range(len(group.at))
        source = part["source"]
        rows = _Rows(part["op"], part["before"], part["after"], source, by)
        odd, skipped = self._odd(rows)
        odd = either(odd, self._unlike(rows, known, group, kept))
        columns: dict[str, pa.Array] = {}
        unsent: dict[str, pa.Array] = {}
        for name in self._slow.columns:
            columns[name], bad = self._column(name, rows, known, by, unsent)
            odd = either(odd, bad)
        beside[own.UNSENT] = unsent_arrow.names(unsent, len(kept))
        ms = pc.coalesce(pc.struct_field(source, [0]), part["ts_ms"])
        if self._of.images is not None:
            beside[own.TRACE], bad = self._trace(rows, known)
            odd = either(odd, bad)
        at = group.at if len(kept) == len(group.at) else [group.at[i] for i in kept]
        record = pa.array(np.asarray(at, np.int32))
        good = pc.and_(pc.invert(odd), pc.invert(skipped))
        left: Sequence[int] = []
        if len(kept) < len(group.at) or not pc.all(good).as_py():
            done = set(record.filter(pc.or_(good, skipped)).to_pylist())
            left = [number for number, i in enumerate(group.at) if i not in done]
        found = Decoded(
            columns,
            record,
            pc.if_else(rows.deletes, pa.scalar("D"), pa.scalar("U")),
            ms.cast(pa.int64()),
            beside={name: beside[name] for name in self._of.beside},
            skipped={Skipped.OTHER_TABLE: self._unread(rows.table, skipped)},
        )
        return _filtered(found, good), left

    def _not_skipped(self, group: Group) -> tuple[Group, int]:
        """The group without what is of tables that are not read, and how much of that no table of the job reads.

        By their sources alone: columns of one name can have other types in those tables.
        """
        names = [(part, pa.string()) for part in PARTS]
        part, kept = group.read(pa.schema([("source", pa.struct([("ts_ms", pa.int64()), *names]))]))
        of = pc.if_else(_names_table(part["source"]), _tables(part["source"]), None).to_pylist() if kept else []
        known = self._of.known
        tables = [(number, table) for number, table in zip(kept, of, strict=True) if table is not None]
        skipped = {number: table for number, table in tables if not known.reads(table)}
        there = [number for number in range(len(group.at)) if number not in skipped]
        return group.only(there), sum(table not in known.theirs for table in skipped.values())

    def _unread(self, tables: pa.Array, skipped: pa.Array) -> int:
        """How many of those that are skipped are of no table of the job."""
        if not pc.any(skipped).as_py():
            return 0
        theirs = _is_in(tables, pa.array(sorted(self._of.known.theirs), pa.string()))
        return int(pc.sum(pc.and_(skipped, pc.invert(theirs))).as_py())

    def _column(
        self, name: str, rows: "_Rows", known: Block | None, by: Resolved, unsent: dict[str, pa.Array]
    ) -> tuple[pa.Array, Odd]:
        """A column, and which envelopes are left to plain Python. unsent: where placeholders stand is added."""
        if name not in by.members:
            is_key, value = name in self._of.key, by.absent.get(name)
            held = [value if is_key or not gone else None for gone in rows.deletes.to_pylist()]
            keyless = pa.repeat(pa.scalar(True), len(held)) if is_key and value is None else None
            return stored.array(held, self._slow.columns[name]["type"]), keyless
        odd: Odd = None
        new = rows.new(name)
        if self._of.allowed is not None and name not in self._of.allowed:
            new = pa.nulls(len(new), new.type)
        elif known is not None and name not in known.names:
            odd = pc.and_(pc.invert(rows.deletes), pc.is_valid(new))
        if name in self._of.key:
            old = rows.old(name)
            moved = pc.and_(rows.updates, pc.fill_null(pc.not_equal(old, new), False))
            new = pc.if_else(rows.deletes, old, new)
            unknown = pc.and_(rows.updates, pc.and_(pc.is_valid(rows.before), pc.is_null(old)))
            odd = either(odd, pc.or_(pc.or_(moved, unknown), pc.is_null(new)))
        found = by.placeholders(name, new)
        odd = either(odd, found.doubtful)
        if found.lacks is not None:
            odd = either(odd, found.lacks if name in self._of.key else pc.and_not(found.lacks, rows.updates))
            unsent[name] = found.lacks
        column, bad = by.converted(name, new, found.lacks)
        return column, either(odd, bad)

    def _schema(
        self, raw: Mapping[str, pa.DataType], places: Mapping[str, pa.DataType], by: Resolved
    ) -> pa.Schema:
        named = [*self._of.key, *(self._of.images or ())]
        old = [by.members[name].name for name in named if name in by.members]
        source = [("ts_ms", pa.int64()), *((part, pa.string()) for part in (*PARTS, "connector")), *places.items()]
        return pa.schema(
            [
                ("op", pa.string()),
                ("before", pa.struct([(name, raw[name]) for name in dict.fromkeys(old)])),
                ("after", pa.struct(list(raw.items()))),
                ("source", pa.struct(source)),
                ("ts_ms", pa.int64()),
            ]
        )

    def _seen_types(
        self, group: Group, raw: dict[str, pa.DataType]
    ) -> tuple[dict[str, pa.DataType], dict[str, pa.DataType]]:
        """What is read for each member, and for the place in the source's log, as a few envelopes show it."""
        places = dict.fromkeys(PLACE, pa.string()) if self._of.images is not None else {}
        if group.binary:
            return raw, {name: _place_type(group.schema, name) for name in places}
        # a number of no known unit is no time: it is left to plain Python
        open_ = {n for n, how in self._slow.how.items() if how.kind == "instant" and how.unit is not None}
        left = set(places)
        for number in range(min(_SEEN, len(group.at))):
            if not open_ and not left:
                break
            with suppress(Unreadable):
                envelope = group.token(number)
                for names, kinds, holder in ((open_, raw, "after"), (left, places, "source")):
                    image = envelope.get(holder) if isinstance(envelope, dict) else None
                    shown = image if isinstance(image, dict) else {}
                    for name in [name for name in names if shown.get(name) is not None]:
                        kinds[name] = pa.int64() if isinstance(shown[name], Number) else pa.string()
                        names.discard(name)
        return raw, places

    def _epochs(self, path: str, group: Group, kept: Sequence[int]) -> dict[str, pa.Array] | None:
        """`own.EPOCH` of these documents; None unless the member is a whole number, or a text, in all of them."""
        top, *inner = path.split(".")
        for leaf in (pa.int64(), pa.string()):
            kind: pa.DataType = leaf
            for name in reversed(inner):
                kind = pa.struct([(name, kind)])
            part, those = group.read(pa.schema([(top, kind)]))
            at = pc.index_in(pa.array(kept, pa.int64()), pa.array(those, pa.int64()))
            if not at.null_count:
                found = part[top].take(at)
                for _ in inner:
                    found = pc.struct_field(found, [0])
                return {own.EPOCH: found.cast(pa.string())}
        return None

    def _odd(self, rows: "_Rows") -> tuple[pa.Array, pa.Array]:
        """(whether an envelope is left to plain Python, whether it is of a table that is not read)."""
        odd = pc.invert(pc.is_in(rows.op, pa.array(["c", "r", "u", "d"])))
        odd = pc.or_(odd, pc.and_(rows.deletes, pc.or_(pc.is_null(rows.before), pc.is_valid(rows.after))))
        odd = pc.or_(odd, pc.and_(pc.invert(rows.deletes), pc.is_null(rows.after)))
        odd = pc.or_(odd, pc.fill_null(pc.equal(pc.struct_field(rows.source, [len(PARTS) + 1]), "mongodb"), False))
        known = self._of.known
        names = pc.unique(rows.table).to_pylist()
        other = [of for of in names if known.named is not None and known.is_other(of)]
        unread = [of for of in names if not known.reads(of)]
        if other:
            odd = pc.or_(odd, _is_in(rows.table, pa.array(other)))
        skipped = pc.and_(_is_in(rows.table, pa.array(unread, pa.string())), _names_table(rows.source))
        return odd, skipped

    def _unlike(self, rows: "_Rows", known: Block | None, group: Group, kept: Sequence[int]) -> Odd:
        """Whether a row lacks a column that it must have, or has one that it must not have."""
        of = self._of
        allowed = of.allowed if known is None else None
        required = of.required if known is None else of.required | known.names
        looked = pc.invert(rows.deletes)
        if allowed is None:  # a row without a NULL lacks none
            nulls = [rows.lacks(name) for name in self._slow.columns if name in required]
            looked = pc.and_(looked, reduce(pc.or_, nulls, pa.repeat(pa.scalar(False), len(kept))))
        those = [kept[i] for i in pc.indices_nonzero(looked).to_pylist()]
        if not those:
            return None

        needed = {rows.by.members[name].name if name in rows.by.members else name for name in required}

        def is_right(names: frozenset[str]) -> bool:
            return needed <= names and (allowed is None or names <= allowed)

        found = group.unlike(those, ("after",), is_right)
        return pa.array([number in found for number in kept], pa.bool_()) if found else None

    def _trace(self, rows: "_Rows", known: Block | None) -> tuple[pa.Array, Odd]:
        """`own.TRACE`, and whether an old value has to be read again."""
        images = self._of.images or ()
        first = len(PARTS) + 2
        place = [pc.struct_field(rows.source, [first + i]).cast(pa.string()) for i in range(len(PLACE))]
        tx, lsn, scn, record, row = place
        removes = pc.or_(rows.updates, rows.deletes)
        kind, count = arrow_type(self._of.beside[own.TRACE]["type"]), len(removes)
        has = pa.repeat(pa.scalar(had(images, None if known is None else known.names), pa.string()), count)
        there = [tx, pc.coalesce(lsn, scn), record, row, rows.table, has]
        if not pc.any(removes).as_py():
            none = [pa.nulls(count, one.type) for one in list(kind)[len(there) :]]
            return pa.StructArray.from_arrays([*there, *none], fields=list(kind)), None
        gone, sure = [], []
        odd: Odd = None
        for name in images:
            if name not in rows.by.members:
                gone.append(pa.nulls(len(removes), arrow_type(self._slow.columns[name]["type"])))
                sure.append(pa.repeat(pa.scalar(False), len(removes)))
                continue
            value = rows.old(name)
            sure.append(self._is_sure(name, value, known))
            lacks = rows.by.placeholders(name, value).lacks
            old_value, bad = rows.by.converted(name, value, lacks)
            gone.append(old_value)
            odd = either(odd, bad)
        parts = []
        if images:
            fields = list(kind.field("gone").type)
            parts.append(pa.StructArray.from_arrays(gone, fields=fields, mask=pc.invert(removes)))
        parts.append(_lists(sure, removes, count, kind.field("sure").type))
        return pa.StructArray.from_arrays([*there, *parts], fields=list(kind)), odd

    def _is_sure(self, name: str, value: pa.Array, known: Block | None) -> pa.Array:
        """Whether an old value is none of its column's blanks; false where these are not known."""
        none = None if known is None else known.blanks.get(name)
        if none is None:
            return pa.repeat(pa.scalar(False), len(value))
        if not none:
            return pc.is_valid(value)
        blank = [made for text in none for made in _typed(text, value.type)]
        return pc.and_(pc.is_valid(value), pc.invert(_is_in(value, pa.array(blank, value.type))))


class _Rows:
    """Parsed envelopes: their parts, and what they do."""

    def __init__(self, op: pa.Array, before: pa.Array, after: pa.Array, source: pa.Array, by: Resolved) -> None:
        self.op, self.before, self.after, self.source, self.by = op, before, after, source, by
        self.deletes = pc.fill_null(pc.equal(op, "d"), False)
        self.updates = pc.fill_null(pc.equal(op, "u"), False)
        self.table = _tables(source)

    def new(self, column: str) -> pa.Array:
        return self._member(self.after, column)

    def old(self, column: str) -> pa.Array:
        return self._member(self.before, column)

    def _member(self, row: pa.Array, column: str) -> pa.Array:
        return pc.struct_field(row, [row.type.get_field_index(self.by.members[column].name)])

    def lacks(self, column: str) -> pa.Array:
        """Whether a new row may lack a column."""
        return pc.is_null(self.new(column)) if column in self.by.members else pa.repeat(True, len(self.op))


def _tables(source: pa.Array) -> pa.Array:
    """The full names of tables, empty where a source names none. source: structs, with PARTS after the first."""
    parts = [pc.struct_field(source, [1 + i]) for i in range(len(PARTS))]
    # Arrow's own `skip` leaves out rows of which all parts are NULL (26.0)
    joined = pc.binary_join_element_wise(*parts, "\0", null_handling="replace").dictionary_encode()
    names = [".".join(filter(None, one.split("\0"))) for one in joined.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(joined.indices)


def _names_table(source: pa.Array) -> pa.Array:
    """Whether a source names a table, which that of a message in the log does not."""
    return pc.fill_null(pc.not_equal(pc.struct_field(source, [len(PARTS)]), ""), False)


def _place_type(schema: Connect | None, name: str) -> pa.DataType:
    """What a schema has for a place in the source's log: a number or a text."""
    none: Connect = {}
    source = next((one for one in (schema or none).get("fields") or () if one.get("field") == "source"), none)
    of = next((one for one in source.get("fields") or () if one.get("field") == name), none)
    return pa.int64() if of.get("type") in INTS else pa.string()


def _is_in(array: pa.Array, values: pa.Array) -> pa.Array:
    """Whether each value is one of these; none is if they are of another type."""
    if array.type != values.type:
        return pa.repeat(pa.scalar(False), len(array))
    return pc.fill_null(pc.is_in(array, values), False)


def _typed(text: str, kind: pa.DataType) -> list[Any]:
    """A block's default as a value of a type; none if it is not one."""
    if pa.types.is_string(kind):
        return [text]
    try:
        if pa.types.is_boolean(kind):
            return [{"true": True, "false": False}[text]]
        return [float(text) if pa.types.is_floating(kind) else int(text)]
    except (KeyError, ValueError):
        return []


def _lists(parts: Sequence[pa.Array], there: pa.Array, count: int, kind: pa.DataType) -> pa.Array:
    """Each row's values as a list, NULL where `there` is not."""
    width = len(parts)
    offsets = pa.array(width * np.arange(count + 1), pa.int32())
    flat = pa.nulls(0, pa.bool_())
    if width:
        flat = pa.concat_arrays(parts).take(pa.array(np.arange(width * count).reshape(width, count).T.ravel()))
    return pa.ListArray.from_arrays(offsets, flat, type=kind, mask=pc.invert(there))


def _filtered(found: Decoded, good: pa.Array) -> Decoded:
    if pc.all(good).as_py():
        return found
    assert found.record is not None
    assert found.op is not None
    assert found.ms is not None
    return replace(
        found,
        columns={name: column.filter(good) for name, column in found.columns.items()},
        record=found.record.filter(good),
        op=found.op.filter(good),
        ms=found.ms.filter(good),
        beside={name: column.filter(good) for name, column in found.beside.items()},
    )
