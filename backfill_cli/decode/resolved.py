"""How the members of documents become a table's columns, by the schema that wrote them, as Avro resolves schemas.

A column is the member of its name, or of one of its aliases; or the member whose aliases have the column's name.
Where the writer has none of these, it is the default that the column had when the job began, else NULL.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts.decoder import Asked, Fault
from backfill_cli.decode import block, values
from backfill_cli.decode.connect import Connect, is_others
from backfill_cli.decode.encodings import Encoding, textual
from backfill_cli.decode.tokens import Token, parsed, written
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.decode.unsent import is_placeholder, is_unsent
from backfill_cli.errors import ConfigError, Hint, in_config
from backfill_cli.formats.schemas import Unsupported, arrow_type
from backfill_cli.model.schema import Columns, SparkType
from backfill_cli.model.units import near_names

if TYPE_CHECKING:
    import pyarrow as pa

    from backfill_cli.decode.arrow_values import Odd
    from backfill_cli.decode.unsent_arrow import Placeholders


@dataclass(frozen=True, slots=True)
class Member:
    """The member that a column is read from. is_whole: a whole number, for a column of floating ones."""

    name: str
    how: Encoding
    read: values.Reader
    is_whole: bool = False


@dataclass(frozen=True)
class Resolved:
    """members: by column, what it is read from; absent: by column, the stored value where there is no member.

    fault: why no document of the schema can be read. is_scalar: a document is the value of the one column.
    is_json: values are as plain JSON has them, and not as a schema says. names: of all members that a schema has.
    unread: by column that has no member, the word by which the schema may describe one that is not read.
    """

    columns: Columns
    members: Mapping[str, Member]
    absent: Mapping[str, Any]
    fault: tuple[str, Fault | None] | None = None
    is_scalar: bool = False
    is_json: bool = False
    names: Collection[str] = frozenset()
    unread: Mapping[str, str] = dataclass_field(default_factory=dict)

    def wanted(self, binary: bool, marks: Sequence[str] = ()) -> "pa.Schema | None":
        """What a group is asked for; None if they are read one by one. marks: texts beside the columns."""
        import pyarrow as pa

        from backfill_cli.decode import arrow_values

        if self.fault is not None:
            return None
        kinds: dict[str, pa.DataType] = {}
        for name, member in self.members.items():
            kind = arrow_values.read_as(self.columns[name]["type"], member.how, self.is_json, binary)
            if kind is None or member.name in kinds:
                return None
            kinds[member.name] = pa.int64() if member.is_whole else kind
        return pa.schema(list((kinds | dict.fromkeys(marks, pa.string())).items()))

    def column(
        self, name: str, raw: "Mapping[str, pa.Array]", rows: int, lacks: "pa.Array | None" = None
    ) -> "tuple[pa.Array, Odd]":
        """A column in its own type, NULL where a value is odd, or where it lacks one. raw: what a group gave."""
        from backfill_cli.decode import stored

        member = self.members.get(name)
        if member is None:
            return stored.array([self.absent.get(name)] * rows, self.columns[name]["type"]), None
        return self.converted(name, raw[member.name], lacks)

    def converted(self, name: str, told: "pa.Array", lacks: "pa.Array | None") -> "tuple[pa.Array, Odd]":
        """`column` of what a group gave for its member."""
        import pyarrow as pa

        from backfill_cli.decode import arrow_values
        from backfill_cli.formats.compute import pc

        kind, member = self.columns[name]["type"], self.members[name]
        if lacks is not None:
            told = pc.if_else(lacks, pa.scalar(None, told.type), told)
        if member.is_whole:
            return told.cast(arrow_type(kind)), None
        return arrow_values.converted(told, kind, member.how)

    def placeholders(self, name: str, told: "pa.Array") -> "Placeholders":
        """Which values of a column are placeholders (unsent.py). told: what a group gave for its member."""
        from backfill_cli.decode.unsent_arrow import placeholders

        return placeholders(told, self.members[name].how, self.columns[name]["type"])

    def token(self, name: str, members: Mapping[str, Token]) -> Token:
        """What a document has for a column."""
        return members.get(self.members[name].name) if name in self.members else None

    def has(self, name: str, members: Mapping[str, Token]) -> bool:
        """Whether a document has a member for a column."""
        return name in self.members and self.members[name].name in members

    def is_null(self, name: str, members: Mapping[str, Token]) -> bool:
        """Whether a column is NULL by a document, whatever its value is."""
        return (self.token(name, members) if name in self.members else self.absent.get(name)) is None

    def is_placeholder(self, name: str, members: Mapping[str, Token]) -> bool:
        """Whether a document has a placeholder instead of a column's value (unsent.py)."""
        token = self.token(name, members)
        return token is not None and is_placeholder(token, self.members[name].how, self.columns[name]["type"])

    def is_unsent(self, name: str, members: Mapping[str, Token]) -> bool:
        """The same, or it has one within the value."""
        token = self.token(name, members)
        return token is not None and is_unsent(token, self.members[name].how, self.columns[name]["type"])

    def value(self, name: str, token: Token, gone: bool = False) -> Any:
        """A column's value in its stored form. gone: of a row that was deleted. Raises Unreadable."""
        if name in self.members:
            return self.members[name].read(token)
        return None if gone else self.absent.get(name)


def plain(columns: Columns) -> Resolved:
    """Documents without a schema: each column is the member of its name."""
    found = {}
    for name, column in columns.items():
        how = textual(column["type"])
        found[name] = Member(name, how, values.of_json(column["type"], how))
    return Resolved(columns, found, {}, is_json=True)


def without_defaults(columns: Columns, key: Collection[str]) -> Columns:
    """The columns, of which those of the key have no default: without one of these a record names no row."""
    return {
        name: {**one, "metadata": {of: told for of, told in one["metadata"].items() if of != "absent"}}
        if name in key
        else one
        for name, one in columns.items()
    }


def by_schema(
    columns: Columns,
    schema: Connect,
    named: str,
    closed: Collection[str],
    scalar: bool,
    taken: frozenset[str] = frozenset(),
) -> Resolved:
    """Documents of a schema. named: as messages name it. closed: the members that must be columns.

    scalar: one that is no object is the value of the one column. taken: see Asked.
    """
    if schema.get("type") != "struct":
        name = next(iter(columns))
        if not scalar or len(columns) > 1:
            return Resolved(columns, {}, {}, (f"{named} is no record, but {schema.get('type')}", None))
        made, fault = _members(columns, {name: {**schema, "field": name}}, named)
        return Resolved(columns, made, {}, fault, is_scalar=True)
    told = schema.get("fields") or ()
    fields = {str(one["field"]): one for one in told if not is_others(one)}
    found = {name: one for name, column in columns.items() if (one := field_of(name, column, fields)) is not None}
    made, fault = _members(columns, found, named)
    read = {one["field"] for one in found.values()}
    new = [name for name in fields if name in closed and name not in read]
    if fault is None and new:
        added = f"column '{new[0]}' is new in {named}", Fault.NEW_COLUMN
        fault = block.unfit(new, columns, fields, named, taken) or added
    folded = {one.lower(): one for one in fields if one not in read}
    recased = next((folded[one.lower()] for one in columns if one not in found and one.lower() in folded), None)
    if recased is not None:
        fault = f"member '{recased}' differs from a column only in case: it would be NULL, in {named}", None
    absent: dict[str, Any] = {}
    for name, column in columns.items():
        if "absent" in column["metadata"] and name not in found:
            try:
                absent[name] = _default(column)
            except Unreadable as exc:
                fault = fault or (f"column '{name}': not in {named}, and its default is {exc.args[0]}", None)
    unread = {
        name: str(one["field"])
        for one in told
        if is_others(one)
        for name in columns
        if name not in found and (one.get("names") is None or name in one["names"])
    }
    return Resolved(columns, made, absent, fault, names=fields.keys(), unread=unread)


def not_read(column: str, word: str, named: str) -> str:
    """The fault of a member that a schema describes by this word."""
    return f"column '{column}': {named} describes it by '{word}' rather than by 'properties', which is not read"


def _default(column: Mapping[str, Any]) -> Any:
    """The value of a column where there is no member, in its stored form. Raises Unreadable."""
    kind = column["type"]
    return values.of_debezium(kind, _how(block.told_of(column), kind))(parsed(column["metadata"]["absent"]))


def field_of(name: str, column: Mapping[str, Any], fields: Mapping[str, Connect]) -> Connect | None:
    """The field that a column is read from."""
    for one in (name, *column["metadata"].get("aliases", ())):
        if one in fields:
            return fields[one]
    return next((one for one in fields.values() if name in (one.get("aliases") or ())), None)


def _members(
    columns: Columns, fields: Mapping[str, Connect], named: str
) -> tuple[dict[str, Member], tuple[str, Fault | None] | None]:
    found, fault = {}, None
    for name, one in fields.items():
        kind = columns[name]["type"]
        try:
            how = _how(one, kind)
        except Unsupported as exc:
            fault = f"column '{name}': {exc}, in {named}", Fault.SCHEMA_BLOCK
            continue
        told = block.told_of(columns[name])
        if not block.counts_as(one, told, how):
            unlike = block.UNTOLD if told is None else f"but it is read as {block.said(told)}"
            fault = f"column '{name}': {named} says {block.said(one)}, {unlike}", Fault.SCHEMA_BLOCK
            continue
        found[name] = Member(str(one["field"]), how, values.of_debezium(kind, how), block.is_whole(one, kind))
    return found, fault


def _how(told: Connect | None, kind: SparkType) -> Encoding:
    """How a field is written that is read into a type. Raises Unsupported."""
    if told is None:
        return textual(kind)
    return Encoding("plain") if block.is_whole(told, kind) else block.encoding_of(told, kind)


# On the driver


def told_by(asked: Asked, schemas: Sequence[tuple[str, Sequence[Connect]]]) -> dict[str, Connect]:
    """What these schemas, newest first, say about the columns; see block.pinned.

    Of a declared column it is what the newest schema says that can be read into its type: records of the others
    cannot be read. Raises BadData for any other column of two types.
    """
    declared = asked.declared
    if declared is None or asked.whole is not None:
        return block.pinned(asked.place, schemas, asked.begun, one_type(asked))
    fit = [(written, _without_misfits(declared, fields)) for written, fields in schemas]
    both = (block.pinned(asked.place, told, asked.begun, None) for told in (schemas, fit))
    return {name: one for told in both for name, one in told.items()}


def one_type(asked: Asked) -> Hint | str:
    """The hint where a column has two types in a place."""
    if asked.whole is not None:
        return "write a new topic of records with one type of the column, and fill the table from it"
    declared = f'{asked.at}.schema = "id BIGINT, note STRING"'
    return in_config(
        "put records of the older type, and all others that cannot be read, into a quarantine table of the sink: "
        'upstream.on_error = "quarantine"; if an older type is the one that is meant, also declare all columns, '
        f"each with its type: {declared}"
    )


def _without_misfits(columns: Columns, fields: Sequence[Connect]) -> Sequence[Connect]:
    """The fields without those of columns into whose type they cannot be read."""
    by_name = {str(one["field"]): one for one in fields if not is_others(one)}
    unfit = []
    for name, column in columns.items():
        if (one := field_of(name, column, by_name)) is not None:
            try:
                _how(one, column["type"])
            except Unsupported:
                unfit.append(one)
    return [one for one in fields if not any(one is bad for bad in unfit)]


def columns_of(asked: Asked, told: Mapping[str, Connect]) -> Columns:
    """The declared columns, or else those of the schemas, each with what reading it needs. told: see block.pinned.

    Raises ConfigError for a declared column that no schema has, or whose type does not hold its values; BadData
    for a column without an exact type.
    """
    declare = in_config(f'declare all columns, each with its type: {asked.at}.schema = "id BIGINT, note STRING"')
    if asked.declared is None:
        columns = block.columns_of(asked.place, told, declare)
    else:
        columns = asked.declared
        unknown = [name for name in columns if name not in told]
        if unknown:
            near = near_names(unknown[0], sorted(told)) or sorted(told)
            fault = f"{asked.at}.schema: no schema of {asked.place} has a column '{unknown[0]}'"
            raise ConfigError("upstream", [fault], f"its columns are: {', '.join(near[:10])}")
        for name, column in columns.items():
            try:
                _how(told[name], column["type"])
            except Unsupported as exc:
                raise ConfigError("upstream", [f"{asked.at}.schema: column '{name}': {exc}"], declare) from exc
    return with_told(columns, told)


def with_told(columns: Columns, told: Mapping[str, Connect]) -> Columns:
    """The columns, each with what the schemas say about it, and about what older ones lack."""
    return {
        name: {**c, "metadata": {**c["metadata"], **_metadata(told[name])}} if name in told else c
        for name, c in columns.items()
    }


def _metadata(told: Connect) -> dict[str, Any]:
    found: dict[str, Any] = {"connect": block.meaning(told)}
    if told.get("default") is not None:
        found["absent"] = written(told["default"])
    if told.get("aliases"):
        found["aliases"] = list(told["aliases"])
    return found
