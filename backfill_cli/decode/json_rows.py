"""JSON objects as rows: members that are no column are left out, a column without a member is NULL."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from backfill_cli.contracts.decoder import Asked, Decoded, Fault, Found
from backfill_cli.decode import foreign, values
from backfill_cli.decode.encodings import textual
from backfill_cli.decode.rows import Rows, one_by_one
from backfill_cli.decode.tokens import Token, is_registered, whole_object
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.decode.whole import IN_ROW, lacking_column, new_column
from backfill_cli.model.schema import Columns, columns_of, schema_text

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class JsonRows:
    """A `Decode` of one JSON object a record. schema: of the columns. whole, key: as in `Asked`.

    kept_apart: whether what is no row of a table is refused (foreign.py): in a topic, not in a file.
    scalar: whether a record that is no object stands for the one column: so are the keys of records written.
    """

    schema: str
    key: tuple[str, ...] = ()
    whole: tuple[frozenset[str], frozenset[str]] | None = None
    kept_apart: bool = True
    scalar: bool = False

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        told = records
        if self.scalar:
            columns = columns_of(self.schema)
            told = [None if record is None else as_object(record, columns) for record in records]
        return _reading(self)(told)


@cache
def _reading(of: JsonRows) -> Callable[[Sequence[bytes | None]], Decoded]:
    """Made once in a worker: what does not depend on the records."""
    return _Reading(of).decoded


class _Reading:
    def __init__(self, of: JsonRows) -> None:
        import pyarrow as pa

        from backfill_cli.decode import arrow_values

        self._columns = columns_of(of.schema)
        self._key, self._whole = of.key, of.whole
        self._foreign = foreign.kinds(self._columns, bool(of.key)) if of.kept_apart else ()
        self._how = {name: textual(column["type"]) for name, column in self._columns.items()}
        self._readers = [
            (name, column["type"], values.of_json(column["type"], self._how[name]))
            for name, column in self._columns.items()
        ]
        self._folded = {name.lower() for name in self._columns}
        parts = {
            name: arrow_values.read_as(column["type"], self._how[name], True)
            for name, column in self._columns.items()
        }
        self._schema = pa.schema(list(parts.items())) if None not in parts.values() else None

    def decoded(self, records: Sequence[bytes | None]) -> Decoded:
        import pyarrow as pa

        from backfill_cli.decode.merged import merged

        there = [i for i, record in enumerate(records) if record is not None]
        parts: list[Decoded] = []
        odd = there
        if self._schema is not None and there:
            fast, odd = self._by_arrow([records[i] for i in there], there)  # type: ignore[misc]
            if not odd and len(there) == len(records):
                return replace(fast, record=None)
            parts.append(fast)
        if odd or len(there) < len(records) or not parts:
            slow = sorted({*odd, *(i for i, record in enumerate(records) if record is None)})
            told = one_by_one(self._columns, [records[i] for i in slow], lambda raw: self._row(whole_object(raw)))
            parts.append(replace(told, record=pa.array(slow, pa.int32())))
        return merged(parts)

    def _by_arrow(self, records: Sequence[bytes], at: Sequence[int]) -> tuple[Decoded, list[int]]:
        """The rows that Arrow can read, and the indices of the other records. at: the indices of these."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from backfill_cli.decode import arrow_json, arrow_values

        assert self._schema is not None
        joined = b"\n".join(records)
        raw, kept = arrow_json.parse(records, joined, self._schema)
        columns: dict[str, pa.Array] = {}
        odd: arrow_values.Odd = None
        for name, kind, _ in self._readers:
            columns[name], bad = arrow_values.converted(raw[name], kind, self._how[name])
            odd = arrow_values.either(odd, bad)
        suspects = set(self._suspects(records, joined, kept, columns))
        good = pa.array([i not in suspects for i in range(len(kept))], pa.bool_()) if suspects else None
        if odd is not None:
            good = pc.invert(odd) if good is None else pc.and_(good, pc.invert(odd))
        record = pa.array(at if len(kept) == len(at) else [at[i] for i in kept], pa.int32())
        if good is not None:
            record = record.filter(good)
            columns = {name: column.filter(good) for name, column in columns.items()}
        if len(record) == len(at):
            return Decoded(columns, record), []
        taken = set(record.to_pylist())
        return Decoded(columns, record), [i for i in at if i not in taken]

    def _suspects(
        self, records: Sequence[bytes], joined: bytes, kept: Sequence[int], columns: "Mapping[str, pa.Array]"
    ) -> list[int]:
        """The rows, by number, whose members have to be looked at. joined: the records, one a line."""
        found: list[int] = []
        for kind in self._foreign:
            if all(text in joined for text in kind.texts):
                found += [n for n, i in enumerate(kept) if all(text in records[i] for text in kind.texts)]
        if self._whole is not None:
            from backfill_cli.decode.members import unlike

            found += unlike([records[i] for i in kept], "$", lambda names: self._fault(names) is None)
        lacking = [name for name, column in columns.items() if column.null_count]
        if lacking and self._may_be_recased(joined):
            found += [n for n, i in enumerate(kept) if self._may_be_recased(records[i])]
        return found

    def _may_be_recased(self, joined: bytes) -> bool:
        """Whether a member's name may differ from a column's only in case."""
        if b"\\u" in joined or not all(name.isascii() for name in self._columns):
            return True
        lower = joined.lower()  # lowers ASCII letters only
        return any(
            lower.count(f'"{name.lower()}"'.encode()) > joined.count(f'"{name}"'.encode())
            for name in self._columns
        )

    def _row(self, members: dict[str, Token]) -> tuple[Any, ...]:
        foreign.refuse(members, self._foreign)
        row: list[Any] = []
        for name, _, read in self._readers:
            try:
                row.append(read(members.get(name)))
            except Unreadable as exc:
                raise Unreadable(f"column '{name}{exc.member}': {exc.args[0]}") from None
        for name in members if None in row else ():
            if name not in self._columns and name.lower() in self._folded:
                raise Unreadable(f"member '{name}' differs from a column only in case: it would be NULL")
        fault = self._fault(members)
        if fault is not None:
            raise Unreadable(fault, Fault.COLUMNS)
        return tuple(row)

    def _fault(self, names: Collection[str]) -> str | None:
        """What is wrong with the columns that a row has."""
        if self._whole is None:
            return None
        others, required = self._whole
        return new_column(names, self._columns, others, IN_ROW) or lacking_column(names, required)


class Json:
    """See contracts.decoder.Decoder."""

    changes: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        assert asked.declared is not None, "the options demand a schema"
        return Found(asked.declared)

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        if asked.of_keys:
            return Rows(JsonRows(schema_text(columns), kept_apart=False, scalar=True))
        return Rows(JsonRows(schema_text(columns), asked.key, asked.whole))


decoder = Json()


_BARE = ("byte", "short", "integer", "long", "float", "double", "boolean", "decimal")
"""Types whose JSON has no quotes."""


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
