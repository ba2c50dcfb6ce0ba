"""What a sample of a topic's records shows: how values and keys are written, columns, what identifies a row.

Nothing is asked of a cluster here. A guess reads every record of the sample exactly, by the reader that the job
will use, or says which it does not read; a later record that does not fit stops the job.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from backfill_cli.contracts import Told
from backfill_cli.contracts.decoder import Asked
from backfill_cli.decode import block, debezium_forms, exact_types, guesses, messages, mongodb, unwrapped
from backfill_cli.decode.encodings import DOUBLE_DIGITS
from backfill_cli.decode.guesses import ColumnProfile
from backfill_cli.decode.source_table import matching_table, source_of
from backfill_cli.decode.tokens import text_of
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import BackfillError
from backfill_cli.formats.schemas import Unsupported, of_ddl
from backfill_cli.model.schema import Columns
from backfill_cli.model.units import spell_count
from backfill_cli.registry import decoder

_NONE = object()
_NAMED_LIKE_A_DAY = re.compile(r"(?i).*(date|day|birth).*|.*_on")
_SHOWN = 40
"""Characters of a key, or of a value, that are shown."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the sample."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


class Kind(Enum):
    """What a value is, in words: one, and several of them."""

    TOMBSTONE = ("tombstone", "tombstones")
    ENVELOPE = ("Debezium envelope", "Debezium envelopes")
    ROW = ("JSON object", "JSON objects")
    WRAPPED = ("row in Kafka Connect's schema block", "rows in Kafka Connect's schema block")
    OTHER = ("value that is no JSON object", "values that are no JSON objects")


@dataclass(frozen=True, slots=True)
class Form:
    """options: below `[upstream]`. key: the table's. said: the same for a person, in a line.

    columns: their names; empty if they are not known.
    """

    options: Mapping[str, Told]
    key: Told
    said: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class About:
    """The topic that a sample is of. key: what the user says of the table. compacted: None if it is not known."""

    topic: str
    table: str
    key: tuple[str, ...] = ()
    compacted: bool | None = None
    at: str = "upstream"

    def asked(self, key: Sequence[str], declared: Columns | None, **options: Any) -> Asked:
        place = f"topic '{self.topic}'"
        return Asked(place, self.topic, self.table, tuple(key), declared, options, f"{self.at}.value")


def kind_of(value: bytes | None) -> Kind:
    """How a value is written."""
    if value is None:
        return Kind.TOMBSTONE
    told = _parsed(value)
    if not isinstance(told, dict):
        return Kind.OTHER
    if block.envelope_of(value) is not None:
        return Kind.ENVELOPE
    return Kind.WRAPPED if {"schema", "payload"} <= told.keys() else Kind.ROW


def form_of(records: Sequence[Record], about: About) -> Form:
    """What these records show. A format that they do not settle is left to the user."""
    told = _form_of(records, about)
    return replace(told, key=Told(list(about.key))) if about.key else told


def _form_of(records: Sequence[Record], about: About) -> Form:
    kinds: dict[Kind, list[Record]] = {kind: [] for kind in Kind}
    for one in records:
        kinds[kind_of(one.value)].append(one)
    if kinds[Kind.ENVELOPE]:  # what Debezium writes among its changes is no row
        kinds[Kind.ROW] = [one for one in kinds[Kind.ROW] if messages.kind_of(_parsed(one.value or b"")) is None]
    seen = {kind: found for kind, found in kinds.items() if found}
    written = [kind for kind in (Kind.ENVELOPE, Kind.ROW, Kind.WRAPPED) if kind in seen]
    if seen.keys() <= {Kind.TOMBSTONE}:
        return _unknown("the topic has no records with a value yet" if seen else "the topic has no records yet")
    if Kind.WRAPPED in seen:
        return _unknown(
            f"{_counted(seen, Kind.WRAPPED)}: let the converter omit the block (schemas.enable = false), or read "
            'them as "bytes"'
        )
    if len(written) > 1 or (written and len(kinds[Kind.OTHER]) > len(kinds[written[0]])):
        return _unknown(f"the topic has {' and '.join(_counted(seen, kind) for kind in seen)}")
    if not written:
        return _bytes(kinds[Kind.OTHER], bool(kinds[Kind.TOMBSTONE]))
    own = written[0]
    form = _debezium(kinds[own], about) if own is Kind.ENVELOPE else _rows(kinds, about)
    if not kinds[Kind.OTHER]:
        return form
    why = f"{_counted(seen, Kind.OTHER)} among {len(records):,} read: such a record stops the job"
    if about.at == "upstream":
        why += ', unless on_error = "quarantine"'
    told = form.options["value.format"]
    return replace(form, options={**form.options, "value.format": replace(told, why=_lines(told.why, why))})


def _unknown(why: str) -> Form:
    return Form({"value.format": Told(None, f"rows, events, debezium or bytes: {why}")}, Told((), ""), why)


def _counted(seen: Mapping[Kind, Sequence[Record]], kind: Kind) -> str:
    first, (one, several) = seen[kind][0], kind.value
    counted = f"{len(seen[kind]):,} {one if len(seen[kind]) == 1 else several}"
    return f"{counted} (the first at partition {first.partition}, offset {first.offset})"


def _lines(*told: str) -> str:
    return "\n".join(filter(None, told))


def _bytes(records: Sequence[Record], has_tombstones: bool) -> Form:
    value = records[0].value or b""
    try:
        what = f"text like {_shown(text_of(value))}"
    except Unreadable as exc:
        what = f"the first: {exc}"
    why = f"no value is a JSON object ({what}): kept as it is, in the column value"
    also = "; a record without a value is a row without one" if has_tombstones else ""
    event = Told((), f"each record is a row, by its partition and offset{also}")
    return Form(
        {"value.format": Told("bytes", why)}, event, f"values that are no JSON objects, kept as bytes ({what})"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


# Rows


def _rows(kinds: Mapping[Kind, Sequence[Record]], about: About) -> Form:
    rows, tombstones = kinds[Kind.ROW], kinds[Kind.TOMBSTONE]
    seen = _profiles([one.value for one in rows if one.value is not None])
    columns = {name: seen[name] for name in unwrapped.own_names(seen, ())}
    added = [name for name in seen if name not in columns]
    deletes = bool(tombstones) or any(name in added for name in unwrapped.marks(()))
    key, form, why = _row_key(rows, about, deletes)
    doubts = [f"{', '.join(added)}: added by Debezium's transform, not columns of the table"] if added else []
    told, columns = _schema(columns, [one.value for one in rows], about, key.value or (), "rows", doubts)
    of_key = key.value != () or about.at != "upstream"
    options = {
        "value.format": Told("rows" if of_key else "events"),
        **({} if about.at != "upstream" else {"value.schema": told}),
    }
    if form != "json" and key.value:
        written = "as 8 bytes, the highest first" if form == "long" else "as text"
        options["key.format"] = Told(form, f"the records' keys are that column {written}")
    return Form(options, key, f"JSON objects with {spell_count(len(columns), 'column')}; {why}", tuple(columns))


def _row_key(rows: Sequence[Record], about: About, has_tombstones: bool) -> tuple[Told, str, str]:
    """(the table's key, the format of the records' keys, the same for a person)."""
    pairs = [(one.key, _parsed(one.value or b"")) for one in rows if one.key is not None]
    names, form = _matching(pairs)
    listed = ", ".join(names)
    if about.key:
        return Told(list(about.key)), form if names == about.key else "json", f"key {', '.join(about.key)}"
    by = "it is compacted" if about.compacted else "some records delete" if has_tombstones else ""
    if by and names:
        why = f"the records' keys; the newest record of a key is its row, because {by}"
        return Told(list(names), why), form, f"key {listed}, as {by}"
    if by:
        seen = f", like {_shown(pairs[0][0].decode(errors='backslashreplace'))}," if pairs else ""
        why = f"{by}, but the records' keys{seen} are not columns of the values"
        return Told(None, why), form, f"no key known, but {by}"
    if names:
        also = f"for the newest record of each key alone, set key = {json.dumps(list(names), ensure_ascii=False)}"
        return Told((), f"each record is a row, by its partition and offset; {also}"), form, "each record is a row"
    return Told((), "each record is a row, by its partition and offset"), form, "each record is a row"


def _matching(pairs: Sequence[tuple[bytes, Any]]) -> tuple[tuple[str, ...], str]:
    """(the columns whose values are the records' keys, how those are written); no columns if there are none."""
    if not pairs:
        return (), "json"
    told = [(_parsed(key), row) for key, row in pairs]
    if all(isinstance(key, dict) and key for key, _ in told):
        names = tuple(told[0][0])
        same = all(key.keys() == set(names) and all(_same(n, row, key[n]) for n in names) for key, row in told)
        return (names, "json") if same else ((), "json")
    for form, keys in (
        ("json", [key for key, _ in told]),
        ("bytes", [_text(key) for key, _ in pairs]),
        ("long", [int.from_bytes(key, signed=True) if len(key) == 8 else _NONE for key, _ in pairs]),
    ):
        found = [name for name in told[0][1] if all(map(partial(_same, name), (r for _, r in told), keys))]
        one = guesses.like_a_key(found) if len(found) > 1 else found
        if len(one) == 1:
            return (one[0],), form
    return (), "json"


def _same(name: str, row: Any, key: Any) -> bool:
    value = row.get(name, _NONE)
    return type(value) is type(key) and value == key


def _text(raw: bytes) -> Any:
    try:
        return text_of(raw)
    except Unreadable:
        return _NONE


def _parsed(raw: bytes) -> Any:
    """The JSON value; `_NONE` for what is no JSON."""
    try:
        return json.loads(text_of(raw))
    except (Unreadable, ValueError, RecursionError):
        return _NONE


# Debezium


def _debezium(records: Sequence[Record], about: About) -> Form:
    values = [one.value for one in records if one.value is not None]
    envelopes = [found for value in values if (found := block.envelope_of(value)) is not None]
    if about.at == "upstream" and any(mongodb.is_envelope(envelope) for envelope, _ in envelopes):
        return _documents(about)
    sources = sorted({source_of(envelope) for envelope, _ in envelopes} - {""})
    options: dict[str, Told] = {"value.format": Told("debezium", "by the fields op and before or after")}
    if len(sources) > 1:
        mine = matching_table(sources, about.table)
        listed = f"the topic has changes of {', '.join(sources[:20])}"
        options["value.tables"] = Told([mine] if mine else None, listed)
        if mine is None:
            return Form(options, Told(None, listed), listed)
        kept = [one for one in envelopes if source_of(one[0]) == mine]
        records = [one for one in records if (e := block.envelope_of(one.value)) and source_of(e[0]) == mine]
        values, envelopes = [one.value for one in records if one.value is not None], kept
    key = _debezium_key(records, about)
    if any(told is not None for _, told in envelopes):
        return _with_blocks(values, options, key, about)
    return _without_blocks(values, envelopes, options, key, about)


def _documents(about: About) -> Form:
    """Of MongoDB, which members of its documents are columns is for the user to say."""
    options = {
        "value.format": Told(mongodb.FORMAT, "by the documents in envelopes of Debezium"),
        "value.schema": Told(None, f'the members that are columns, such as "{mongodb.ID} STRING, note STRING"'),
    }
    key = Told([mongodb.ID], "a deleted document is known by that alone")
    return Form(options, key, f"documents of MongoDB in Debezium envelopes; key {mongodb.ID}", (mongodb.ID,))


def _debezium_key(records: Sequence[Record], about: About) -> Told:
    if about.key:
        return Told(list(about.key))
    keys = [_parsed(one.key) for one in records if one.key is not None]
    told = [
        key["payload"] if isinstance(key, dict) and {"schema", "payload"} <= key.keys() else key for key in keys
    ]
    names = {tuple(key) if isinstance(key, dict) and key else () for key in told}
    if len(names) == 1 and () not in names:
        return Told(
            list(names.pop()), "the fields of the records' keys, which Debezium takes from the table's key"
        )
    return Told(None, "the records' keys do not show them")


def _with_blocks(values: Sequence[bytes], options: dict[str, Told], key: Told, about: About) -> Form:
    tables = options["value.tables"].value if "value.tables" in options else ()
    asked = about.asked(key.value or (), None, tables=tables)
    try:
        columns = decoder("debezium").columns(asked, lambda: values).columns
    except BackfillError as error:
        options["value.schema"] = Told(None, error.message)
        return Form(options, key, f"Debezium envelopes with a schema block: {error.message}")
    return Form(options, key, _debezium_said("with a schema block", len(columns), key), tuple(columns))


def _debezium_said(how: str, columns: int, key: Told) -> str:
    known = ", ".join(key.value) if key.value else "not known"
    return f"Debezium envelopes {how}, {spell_count(columns, 'column')}; key {known}"


def _without_blocks(
    values: Sequence[bytes],
    envelopes: Sequence[tuple[Mapping[str, Any], Any]],
    options: dict[str, Told],
    key: Told,
    about: About,
) -> Form:
    images = [image for one, _ in envelopes for image in (one.get("before"), one.get("after")) if image]
    profiles = {name: replace(one, binary=True) for name, one in _profiles(values, images=True).items()}
    typed = _typed(profiles)
    forms: dict[str, Any] = {}
    for lack in debezium_forms.lacks(typed or {}, images, None, None, f"{about.at}.value"):
        only = lack.fits[0] if len(lack.fits) == 1 else None
        options[f"value.{lack.option}"] = Told(only, lack.why)
        forms[lack.option] = only
    if about.at == "upstream":
        doubts = [said for name, one in profiles.items() if (said := _coded(name, one, images))]
        told, profiles = _schema(profiles, values, about, key.value or (), "debezium", doubts[:5], **forms)
        options["value.schema"] = told
    return Form(options, key, _debezium_said("without a schema block", len(profiles), key), tuple(profiles))


def _coded(name: str, one: ColumnProfile, images: Sequence[Mapping[str, Any]]) -> str:
    """What a value could mean that Debezium writes as a number or as text, and nothing in the record says so."""
    values = [value for image in images if (value := image.get(name)) is not None]
    if one.kind == "BIGINT" and (units := debezium_forms.time_units(values)):
        written = " or ".join(f'timestamps = "{unit}"' for unit in units)
        return f"'{name}' could be a time: then TIMESTAMP, with {written}"
    if one.kind == "BIGINT" and _NAMED_LIKE_A_DAY.fullmatch(name) and debezium_forms.are_days(values):
        return f"'{name}' could be a date, as days since 1970: then DATE"
    if one.kind == "STRING" and values and all(map(debezium_forms.is_precise, values)):
        return f"'{name}' could be a decimal in base64: then DECIMAL(…,…), with decimals = \"precise\""
    return ""


# Columns


def _profiles(values: Sequence[bytes], images: bool = False) -> dict[str, ColumnProfile]:
    """What the columns of these objects have in common; images: of the rows in these envelopes."""
    import duckdb

    texts = [value.decode() for value in values]
    parts = [f"json_extract(json, '{at}{image}')" for image in ("before", "after") for at in ("$.", "$.payload.")]
    rows = f"SELECT unnest([{', '.join(parts)}]) AS json FROM given" if images else "FROM given"
    with duckdb.connect() as db:
        db.execute("CREATE TABLE given AS SELECT TRY_CAST(unnest($1) AS JSON) AS json", [texts])
        db.execute(f"CREATE TABLE looked AS SELECT json FROM ({rows}) WHERE json_type(json) = 'OBJECT'")
        shape, found = guesses.of_json(db, "looked")
        profiles = guesses.profiles(shape, found) if shape else {}
    told = [found for value in values if isinstance(found := exact_types.parsed(value), dict)]
    if not images:
        return exact_types.with_numbers(profiles, shape or {}, told)
    # its decimals are doubles
    return exact_types.with_numbers(profiles, shape or {}, _images(told), DOUBLE_DIGITS)


def _images(envelopes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    payloads = [told for one in envelopes for told in (one, one.get("payload")) if isinstance(told, dict)]
    rows = [payload.get(image) for payload in payloads for image in ("before", "after")]
    return [row for row in rows if isinstance(row, dict)]


def _typed(profiles: Mapping[str, ColumnProfile]) -> Columns | None:
    try:
        return of_ddl(guesses.ddl(profiles))
    except Unsupported:
        return None


def _schema(
    profiles: dict[str, ColumnProfile],
    values: Sequence[bytes | None],
    about: About,
    key: Sequence[str],
    form: str,
    doubts: Sequence[str] = (),
    **options: Any,
) -> tuple[Told, dict[str, ColumnProfile]]:
    """The schema, by which the format reads all of these values; columns that it does not are text.

    doubts: what else there is to say of the columns.
    """
    for name in {*key} & {*profiles}:
        if profiles[name].kind == "DOUBLE":  # nothing to tell rows apart by
            profiles = {**profiles, name: replace(profiles[name], fixed="STRING")}
    if not profiles or (typed := _typed(profiles)) is None:
        shown = ", ".join(profiles) or "none"
        return Told(None, f"the columns and their types; the records show {shown}"), profiles
    decided = None not in options.values()
    faulty = _faults(typed, values, about, key, form, options) if decided else {}
    if faulty:
        bad = [values[i] for i in list(faulty)[:_SHOWN]]
        for name, one in profiles.items():
            if one.kind != "STRING" and name not in key:
                text = {**profiles, name: replace(one, fixed="STRING", unsettled=True)}
                if len(_faults(_typed(text) or {}, bad, about, key, form, options)) < len(bad):
                    profiles = text
        faulty = _faults(_typed(profiles) or {}, values, about, key, form, options)
    said = [f"guessed from {spell_count(len(values), 'record')}: each type holds all their values exactly"]
    if faulty:
        at = next(iter(faulty))
        said.append(f"{len(faulty):,} of these records cannot be read so; the first: {faulty[at]}")
    return Told(guesses.ddl(profiles), _lines(*said, *doubts, *guesses.remarks(profiles))), profiles


def _faults(
    columns: Columns,
    values: Sequence[bytes | None],
    about: About,
    key: Sequence[str],
    form: str,
    options: Mapping[str, Any],
) -> dict[int, str]:
    """What the format says of each value that it cannot read, by the value's index."""
    known = tuple(name for name in key if name in columns)
    asked = about.asked(known, columns, **options)
    reads = decoder(form)
    try:
        found = reads.columns(asked, lambda: [value for value in values if value is not None])
        decode = reads.open(asked, found.columns, found.facts).decode(lambda: ())
    except BackfillError as error:
        return dict.fromkeys(range(len(values)), error.message)
    told = decode(values)
    if told.error is None:
        return {}
    at = range(len(values)) if told.record is None else told.record.to_pylist()
    return {i: error for i, error in zip(at, told.error.to_pylist(), strict=True) if error is not None}
