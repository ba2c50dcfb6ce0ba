"""What a sample of a topic's records shows where they name their schemas by a registry's ids.

Values and keys are read by their schemas and told as JSON, so that forms.py finds what it finds in JSON. Columns
and types are the schemas'.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from backfill_cli.contracts import Told
from backfill_cli.decode import unwrapped
from backfill_cli.decode.documents import Document
from backfill_cli.decode.registered import KINDS, Registered
from backfill_cli.decode.tokens import written
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import BackfillError, UsageError, in_config
from backfill_cli.model.units import spell_count
from backfill_cli.registry import decoder
from backfill_cli.schema_registry.registry import SchemaRegistry, UnknownSchema
from backfill_cli.schema_registry.wire import Wire
from backfill_cli.upstreams.kafka import forms
from backfill_cli.upstreams.kafka.forms import About, Form, Record

_AS_SCHEMAS_SAY = ("value.schema", "value.timestamps", "value.decimals")
_HIGHEST = 1 << 24
"""Registries count from 1: what would be a higher id is a number, say, and no id."""


def ids_in(records: Sequence[Record]) -> Sequence[int]:
    """The ids of schemas with which all values begin; none if one of them begins otherwise, or there are none."""
    found, without = Wire(4, "").grouped([one.value for one in records])
    long, without_long = Wire(8, "").grouped([one.value for one in records])
    for ids, others in ((found, without), (long, without_long)):
        if ids and not others and max(ids) < _HIGHEST and not set(ids) & {0}:
            return sorted(ids)
    return []


def form_of(
    records: Sequence[Record], about: About, registry: SchemaRegistry, told: Mapping[str, Told]
) -> Form | None:
    """What these records show; None if no value begins with the id of a schema. told: the registry's options.

    Raises UsageError where values are of several encodings, or of schemas that the registry does not have; and
    what the registry raises.
    """
    seen = [one.value for one in records if one.value is not None]
    encoding = _encoding(registry, seen, "value")
    of_keys = _encoding(registry, [one.key for one in records if one.key is not None], "key")
    if encoding is None:
        return None if seen else _without_values(records, about, registry, told, of_keys)
    documents = Registered(registry, encoding, f"{about.at}.value.encoding")
    keys: Sequence[bytes | None] = [one.key for one in records]
    if of_keys is not None:
        keys = _told(Registered(registry, of_keys, f"{about.at}.key.format"), keys)
    values = _told(documents, [one.value for one in records])
    in_json = [replace(one, key=key, value=value) for one, key, value in zip(records, keys, values, strict=True)]
    unread = [one for one, shown in zip(records, in_json, strict=True) if one.value == shown.value is not None]
    found = forms.form_of([one for one in in_json if one.place not in {bad.place for bad in unread}], about)
    options = {path: one for path, one in found.options.items() if path not in _AS_SCHEMAS_SAY}
    options |= {"value.encoding": Told(encoding), **told}
    if of_keys is not None:
        options["key.format"] = Told(of_keys)
    format_ = found.options["value.format"]
    if unread:
        first = f"the first at partition {unread[0].partition}, offset {unread[0].offset}"
        counted = f"{spell_count(len(unread), 'value')} of {len(records):,} read"
        why = f"{counted} cannot be read by a schema ({first}): such a record stops the job"
        why += ', unless on_error = "quarantine"' if about.at == "upstream" else ""
        options["value.format"] = replace(format_, why="\n".join(filter(None, (format_.why, why))))
    if format_.value not in ("rows", "events", "debezium"):
        return replace(found, options=options, columns=())
    tables = options["value.tables"].value or () if "value.tables" in options else ()
    asked = about.asked(found.key.value or (), None, tables=tables)
    try:
        columns = decoder(format_.value).columns(replace(asked, documents=documents), lambda: seen).columns
        shown = unwrapped.own_names(columns, ()) if format_.value == "rows" else columns
    except BackfillError as error:
        options["value.schema"] = Told(None, error.message)
        return replace(
            found, options=options, said=f"{_named(encoding, format_.value)}: {error.message}", columns=()
        )
    ids = sorted(registry.wire.grouped(seen)[0])
    listed = f"schema id{'s' * (len(ids) > 1)} {', '.join(map(str, ids[:5]))}{' …' * (len(ids) > 5)}"
    known = f"; key {', '.join(found.key.value)}" if found.key.value else ""
    said = f"{_named(encoding, format_.value)}, {spell_count(len(shown), 'column')}, {listed}{known}"
    return replace(found, options=options, said=said, columns=tuple(shown))


def _without_values(
    records: Sequence[Record],
    about: About,
    registry: SchemaRegistry,
    told: Mapping[str, Told],
    of_keys: str | None,
) -> Form:
    """The encoding is that of the subject's newest schema, if there is one."""
    found, subject = forms.form_of(records, about), f"{about.topic}-value"
    newest = registry.latest(subject)
    encoding = Told(None, f"avro, protobuf, json-schema or json: no record shows it, nor a subject '{subject}'")
    if newest is not None:
        encoding = Told(
            _by_kind()[newest.kind], f"that of schema id {newest.id}, the newest of subject '{subject}'"
        )
    keys = {} if of_keys is None else {"key.format": Told(of_keys)}
    return replace(found, options={**found.options, "value.encoding": encoding, **keys, **told})


def _named(encoding: str, form: str) -> str:
    written_as = {"avro": "Avro", "protobuf": "Protobuf", "json-schema": "JSON Schema"}[encoding]
    return f"Debezium envelopes in {written_as}" if form == "debezium" else f"rows in {written_as}"


def _encoding(registry: SchemaRegistry, records: Sequence[bytes], what: str) -> str | None:
    """The encoding of the schemas that these name, None if none names one. Raises UsageError for several."""
    kinds: dict[str, int] = {}
    unknown = None
    for id in registry.wire.grouped(records)[0]:
        try:
            kinds.setdefault(registry.by_id(id).kind, id)
        except UnknownSchema as exc:
            unknown = str(exc.args[0])
    if len(kinds) > 1:
        (a, one), (b, other), *_ = kinds.items()
        raise UsageError(
            f"the records' {what}s are of several encodings: schema id {one} is {a}, {other} is {b}",
            "name a topic of one encoding",
        )
    if unknown is not None and not kinds and what == "value":
        raise UsageError(
            f"a {what} of the topic is of a schema that is not known: {unknown}", in_config("correct it")
        )
    return _by_kind()[next(iter(kinds))] if kinds else None


def _by_kind() -> dict[str, str]:
    return {kind: name for name, kind in KINDS.items()}


def _told(documents: Registered, records: Sequence[bytes | None]) -> list[bytes | None]:
    """The records as JSON; as they are where they cannot be read."""
    found = list(records)
    for group in documents.groups(records)[0]:
        for number, at in enumerate(group.at):
            with suppress(Unreadable):
                found[at] = written(Document(group, number).token()).encode()
    return found
