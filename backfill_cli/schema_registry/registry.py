"""Schemas by id and by subject. What has an id never changes: each process fetches it once."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

from backfill_cli.errors import Fatal, in_config
from backfill_cli.model.units import spell_count
from backfill_cli.schema_registry.http import Answer, Connection
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.wire import Wire

KINDS = ("AVRO", "JSON", "PROTOBUF")

REFERENCES = 200
"""The most schemas that one refers to, directly or not."""

SETTLE_S, SETTLED_S = 3.0, 60.0
"""How long an id that the registry does not know is asked for again: one of several servers may be behind. Once a
minute: most such ids are of records that are none of its."""

_PAGE, _PAGES = 500, 100
"""Versions of an artifact that Apicurio is asked for at once, and how often."""

_UNKNOWN = range(40_400, 40_500)
"""The protocol's numbers of errors for what it does not have."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to. name: as it is called there: a full name, an import, or a URL."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it was registered. kind: one of KINDS.

    references: all that it refers to, directly or not, each after those that it refers to itself.
    """

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class UnknownSchema(Exception):
    """The registry has no schema of an id. args[0]: that, for people."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry, asked by whoever needs it: a value that workers get. Shows no secret."""

    connection: Connection
    wire: Wire
    global_ids: bool = False

    @staticmethod
    def of(options: RegistryOptions, at: str) -> "SchemaRegistry":
        """at: where these options are in the config (`upstream.registry`). They must be resolved."""
        return SchemaRegistry(Connection.of(options, at), Wire(options.id_bytes, at), bool(options.global_ids))

    def by_id(self, id: int) -> Schema:
        """The schema that records name so.

        Raises UnknownSchema if there is none, Transient while the registry does not answer, Fatal if it does not
        let us in, or what answers is no registry.
        """
        held = _of_process(self.connection)
        if id not in held.schemas:
            held.schemas[id] = self._fetched(id, held)
        return held.schemas[id]

    def latest(self, subject: str) -> Schema | None:
        """The subject's newest schema; None if there is no such subject. Raises as `by_id`."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if answer is None else self._schema(self._id(answer), answer)

    def subjects(self) -> Sequence[str]:
        """The names of all subjects that this user may see. Raises as `by_id`."""
        answer = self._ask("/subjects")
        if answer is None or not isinstance(answer.body, list):
            raise self._no_registry(self.connection.urls[0], "no list of subjects")
        return [str(one) for one in answer.body]

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of this schema, which is one of the subject's now; registering it again changes nothing.

        Raises as `by_id`, and Fatal where the subject's compatibility or the registry refuses the schema.
        """
        answer = self.connection.ask(
            f"/subjects/{quote(subject, safe='')}/versions", {"schema": text, "schemaType": kind}
        )
        if answer.status < 400:
            return self._id(answer)
        said = self.connection.shown(answer.said)
        if answer.status == 409:
            raise Fatal(
                f"{answer.url}: subject '{subject}': the schema is not compatible with those before it: {said}",
                "use another subject, or change the subject's compatibility in the registry",
            )
        raise Fatal(
            f"{answer.url}: subject '{subject}': the registry refuses the schema: {said}",
            "use another subject, or register the schema yourself",
        )

    def check(self) -> str:
        """What it holds, after one schema was read. Raises as `by_id`."""
        found = self.subjects()
        if found:
            self.latest(found[0])
        return f"{self.connection.urls[0]} answers: {spell_count(len(found), 'subject')}"

    def _fetched(self, id: int, held: "_Held") -> Schema:
        until = 0.0
        while (answer := self._of_id(id)) is None:
            now = time.monotonic()
            if not until:
                until = now + SETTLE_S if now > held.settled else now
            if now >= until:
                held.settled = now + SETTLED_S
                raise UnknownSchema(f"schema id {id} is not in the registry {self.connection.urls[0]}")
            time.sleep(0.5)
        return self._schema(id, answer)

    def _of_id(self, id: int) -> Answer | None:
        content = self._content(id) if self.global_ids else id
        return None if content is None else self._ask(f"/schemas/ids/{content}")

    def _content(self, global_id: int) -> int | None:
        """Apicurio's id of what a version of an artifact holds; None if no version has this global id."""
        own = self.connection.of_apicurio()
        for artifact in self._listed(own.ask(f"/search/artifacts?globalId={global_id}"), "artifacts"):
            group, name = (quote(str(artifact.get(part) or "default"), safe="") for part in ("groupId", "id"))
            for page in range(_PAGES):
                asked = f"/groups/{group}/artifacts/{name}/versions?limit={_PAGE}&offset={page * _PAGE}"
                versions = self._listed(own.ask(asked), "versions")
                for one in versions:
                    if one.get("globalId") == global_id and isinstance(one.get("contentId"), int):
                        return int(one["contentId"])
                if len(versions) < _PAGE:
                    break
        return None

    def _listed(self, answer: Answer, what: str) -> Sequence[dict[str, Any]]:
        found = answer.body.get(what) if isinstance(answer.body, dict) else None
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._no_registry(answer.url, f"no list of {what}")
        return found

    def _schema(self, id: int, answer: Answer) -> Schema:
        kind, text = self._told(answer)
        found: dict[str, str] = {}
        for name, of in self._referred(answer, set()):
            if found.setdefault(name, of) != of:
                raise Fatal(
                    f"{answer.url}: schema id {id} refers to two schemas as '{name}'",
                    "register it again, with one version of each schema that it refers to",
                )
        return Schema(id, kind, text, tuple(Reference(name, of) for name, of in found.items()))

    def _referred(self, answer: Answer, asked: set[tuple[str, str, int]]) -> Iterator[tuple[str, str]]:
        """(name, text) of each schema that this one refers to, after those that it refers to itself."""
        references = answer.body.get("references") or ()
        if not isinstance(references, list | tuple):
            raise self._no_registry(answer.url, "references that are no list")
        for one in references:
            match one:
                case {"name": str(name), "subject": str(subject), "version": int(version)}:
                    pass
                case _:
                    shown = self.connection.shown(repr(one), 80)
                    raise self._no_registry(answer.url, f"a reference without name, subject or version: {shown}")
            if (name, subject, version) in asked:
                continue
            asked.add((name, subject, version))
            if len(asked) > REFERENCES:
                raise self._no_registry(answer.url, f"a schema that refers to more than {REFERENCES} others")
            found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if found is None:
                which = f"version {version} of subject '{subject}'"
                raise Fatal(
                    f"{answer.url}: a schema refers to {which}, which is not there",
                    "register it again in the registry, under this version",
                )
            yield from self._referred(found, asked)
            yield name, self._told(found)[1]

    def _ask(self, path: str) -> Answer | None:
        """The answer; None if the registry does not have it."""
        answer = self.connection.ask(path)
        if answer.error_code in _UNKNOWN:
            return None
        if answer.status >= 400:
            said = self.connection.shown(answer.said)
            raise Fatal(
                f"{answer.url}: the schema registry answers HTTP {answer.status}: {said}",
                in_config(f"correct {self.connection.at}"),
            )
        return answer

    def _id(self, answer: Answer) -> int:
        match answer.body:
            case {"id": int(id)}:
                return id
        raise self._no_registry(answer.url, "no id")

    def _told(self, answer: Answer) -> tuple[str, str]:
        """A schema's kind and text."""
        match answer.body:
            case {"schema": str(text)}:
                kind = str(answer.body.get("schemaType") or "AVRO")
                return kind if kind in KINDS else self.connection.shown(kind, 40), text
        raise self._no_registry(answer.url, "a schema without its text")

    def _no_registry(self, url: str, what: str) -> Fatal:
        return Fatal(
            f"{url}: not the answer of a schema registry: {what}", in_config(f"correct {self.connection.at}.url")
        )


def asked(
    options: RegistryOptions | None, at: str, name: str = "schema registry"
) -> Mapping[str, Callable[[], str]]:
    """What `doctor` asks of a registry, see Extras.beside; nothing without one."""
    return {} if options is None else {name: SchemaRegistry.of(options, at).check}


@dataclass(slots=True)
class _Held:
    """What this process has of a registry. settled: until when unknown ids are not waited for."""

    schemas: dict[int, Schema]
    settled: float = 0.0


@cache
def _of_process(connection: Connection) -> _Held:
    return _Held({})
