"""`kafka://…`: a cluster and a topic of it, as a command names them, and why its servers do not answer."""

import os
import re
import shlex
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from backfill_cli.errors import BackfillError, Hint, UsageError, command
from backfill_cli.kafka import client_properties

SCHEME = "kafka://"
REGISTRY = "schema.registry."
"""How the properties of a schema registry begin, as in Confluent's clients: the names of its options follow."""

SECRETS = client_properties.SECRETS | {f"{REGISTRY}{name}" for name in ("password", "token", "key_password")}
FILES = client_properties.FILES | {f"{REGISTRY}{name}" for name in ("ca", "certificate", "key")}
ANSWER_S = 2.0
"""A live cluster answers within milliseconds."""

_HANDSHAKE_S = 0.5
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_PORT, _HAS_PORT = "9092", re.compile(r":\d+$|\}$")  # what a variable holds is left as it is
_SASL = "security.protocol=SASL_SSL&sasl.mechanism=PLAIN&sasl.username=USER&sasl.password=${env:KAFKA_PASSWORD}"


def _as_path(name: str, value: str) -> str:
    """A file of the current folder is that file in a config elsewhere, too."""
    is_path = name in FILES and value != "probe" and "${" not in value
    return os.path.abspath(os.path.expanduser(value)) if is_path else value


@dataclass(frozen=True, slots=True)
class Url:
    """`kafka://host:port[,host:port]/topic[?property=value&…]`. topic: empty if it names none.

    option: the one that it is typed after.
    """

    servers: str
    topic: str
    properties: Mapping[str, str]
    option: str = "--from"

    @classmethod
    def of(cls, text: str, option: str = "--from") -> "Url":
        """Raises UsageError for a text without servers, or with a user before an @."""
        servers, _, rest = text.removeprefix(SCHEME).partition("/")
        if not rest and "?" in servers:
            servers, _, rest = servers.partition("?")
            rest = f"?{rest}"
        topic, _, query = rest.partition("?")
        if "@" in servers:
            raise UsageError("the URL of a topic has no user before an @", f"name the user so: {_correct(option)}")
        ports = [one if _HAS_PORT.search(one) else f"{one}:{_PORT}" for one in servers.split(",") if one]
        if not ports:
            raise UsageError("the URL of a topic names no broker", _correct(option))
        pairs = (pair.partition("=") for pair in query.split("&") if pair)
        properties = {unquote(name): _as_path(unquote(name), unquote(value)) for name, _, value in pairs}
        return cls(",".join(ports), unquote(topic), properties, option)

    @classmethod
    def typed(cls, text: str, written: str, values: Mapping[str, str], option: str) -> "tuple[Url, Url]":
        """(the URL, the same as a config may say it): see Named. Raises UsageError for a secret in it."""
        url = cls.of(text, option)
        in_parts = written.startswith(SCHEME) or (values and written not in values)
        told = cls.of(written, option) if in_parts else url
        for name in SECRETS & told.properties.keys():
            if not re.fullmatch(f"({_REFERENCE.pattern})+", told.properties[name]):
                raise UsageError(
                    f"{name}: a secret, which is stored in no config",
                    f"write it as a reference: {name}=${{env:KAFKA_PASSWORD}}",
                )
        if values and told is not url:  # in the text, a value ends where a & is in it
            known = {
                name: _REFERENCE.sub(lambda found: values.get(found[0], found[0]), value)
                for name, value in told.properties.items()
            }
            url = replace(url, properties=known)
        return url, told

    @property
    def client(self) -> Mapping[str, str]:
        """The client's properties."""
        return {name: value for name, value in self.properties.items() if not name.startswith(REGISTRY)}

    @property
    def registry(self) -> Mapping[str, str]:
        """The options of a schema registry."""
        of = {name: value for name, value in self.properties.items() if name.startswith(REGISTRY)}
        return {name.removeprefix(REGISTRY): value for name, value in of.items()}

    @property
    def correct(self) -> str:
        """What to do where the URL is wrong."""
        return _correct(self.option)

    def with_topic(self, topic: str, more: str = "") -> str:
        """The URL of another topic of these servers. more: properties, as they stand in a URL."""
        pairs = (f"{name}={_quoted(value)}" for name, value in self.properties.items())
        told = "&".join([*pairs, *filter(None, [more])])
        return f"{SCHEME}{self.servers}/{topic}" + (f"?{told}" if told else "")

    def require_listener(self) -> None:
        """A server accepts connections. Raises UsageError: the client itself would only time out."""
        until, said = time.monotonic() + ANSWER_S, ""
        for address in _addresses(self.servers):
            try:
                socket.create_connection(address, max(0.1, until - time.monotonic())).close()
                return
            except OSError as error:
                said = (error.strerror or str(error)).lower()
            except UnicodeError:  # a part of the name is empty, or too long
                said = "it is no name of a host"
        raise UsageError(f"{self.servers}: does not answer: {said}", "start the broker, or " + self.correct)


def _quoted(value: str) -> str:
    """A property's value as it stands in a URL; a reference stays readable."""
    return quote(value, safe="/:,;=@+${}")


def _correct(option: str) -> str:
    return (
        f"name broker and topic: {option} kafka://HOST:PORT/TOPIC; what the client needs to be let in follows, as "
        f"in 'kafka://HOST:PORT/TOPIC?{_SASL}&ssl.ca.location=/path/ca.pem'"
    )


@contextmanager
def by_url(url: Url, written: Url) -> Iterator[None]:
    """What asks for a change of the config asks for another URL; a server that wants TLS is recognised."""
    try:
        yield
    except BackfillError as error:
        if not error.hint.config and not error.hint.retried:
            raise
        known = "security.protocol" in url.properties
        raise UsageError(error.message, url.correct if known else _protocol(url, written)) from error


def _protocol(url: Url, written: Url) -> Hint:
    """What to add to the URL for a server that does not answer without it."""
    topic, init = written.topic or "TOPIC", f"init {url.option}"
    kind = "SSL" if any(map(_speaks_tls, _addresses(url.servers))) else "PLAINTEXT"
    sasl = _SASL.replace("SASL_SSL", f"SASL_{kind}")
    login = command(f"{init} {shlex.quote(written.with_topic(topic, sasl))}")
    if kind == "SSL":
        plain = command(f"{init} {shlex.quote(written.with_topic(topic, 'security.protocol=SSL'))}")
        return "it wants TLS: " + plain + "; with a user and a password: " + login
    return "if it wants a user and a password: " + login + "; otherwise " + url.correct


def _addresses(servers: str) -> list[tuple[str, int]]:
    pairs = (one.rpartition(":") for one in servers.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def _speaks_tls(address: tuple[str, int]) -> bool:
    """Whether a server answers a TLS handshake; nothing is sent to it but that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        suppress(OSError),
        socket.create_connection(address, _HANDSHAKE_S) as plain,
        context.wrap_socket(plain),
    ):
        return True
    return False
