"""One request to a schema registry. Its failures become BackfillErrors here, which name its address, no secret."""

import base64
import html
import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from backfill_cli.errors import BackfillError, Fatal, Hint, Transient, in_config
from backfill_cli.model.units import spell_duration, spell_size
from backfill_cli.schema_registry.options import APICURIO, RegistryOptions, addresses

SILENCE_S = 10.0
"""A live registry answers within milliseconds, and one that fetches from its leader within seconds."""

ANSWER_S = 30.0
"""For one answer as a whole: one that trickles is as good as none."""

ANSWER_BYTES = 16 << 20
"""A schema has kilobytes, the list of 200,000 subjects 10 MB."""

_MESSAGE = 300
"""Characters of the registry's own words that an error shows."""

_KIND = "application/vnd.schemaregistry.v1+json"
_PASSING = (408, 425, 429)
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


@dataclass(frozen=True, slots=True)
class Answer:
    """status: HTTP's. body: what JSON it is; None if it is none. url: the address that answered."""

    status: int
    body: Any
    url: str

    @property
    def error_code(self) -> int:
        """The protocol's number of an error, 0 without one: 40403 for an unknown id, 409 for a refused schema."""
        code = self.body.get("error_code") if isinstance(self.body, dict) else None
        return code if isinstance(code, int) and (code > 10_000 or code == 409) else 0

    @property
    def said(self) -> str:
        """The registry's own words, for `Connection.shown`."""
        told = self.body.get("message") if isinstance(self.body, dict) else None
        return str(told) if told else ""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a registry. Never shown: it holds secrets; workers get it as it is. at: in the config."""

    at: str
    urls: tuple[str, ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @staticmethod
    def of(options: RegistryOptions, at: str) -> "Connection":
        names = ("user", "password", "token", "ca", "certificate", "key", "key_password")
        return Connection(at, addresses(options.url), *(getattr(options, name) for name in names))

    def ask(self, path: str, send: Mapping[str, Any] | None = None) -> Answer:
        """The first address's answer to GET, or to POST of `send`: any that is the registry's own, errors too.

        Raises Transient if no address answers, Fatal where it is not let in, or what answers is no registry.
        """
        for url in self.urls[:-1]:
            try:
                return self._ask(url, path, send)
            except Transient:
                continue
        return self._ask(self.urls[-1], path, send)

    def of_apicurio(self) -> "Connection":
        """The same registry by Apicurio's own API."""
        return replace(self, urls=tuple(url.partition(APICURIO)[0] + "/apis/registry/v2" for url in self.urls))

    def shown(self, text: str, most: int = _MESSAGE) -> str:
        """A text of others on one line, cut, without any secret of this connection, however it is written."""
        basic = self._authorization().get("Authorization", "").rpartition(" ")[2]
        for secret in filter(None, (self.password, self.token, self.key_password, basic)):
            text = _written(secret).sub("…", text)
        return " ".join(text.split())[:most]

    def _authorization(self) -> dict[str, str]:
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is None:
            return {}
        told = base64.b64encode(f"{self.user}:{self.password}".encode(errors="surrogateescape")).decode()
        return {"Authorization": f"Basic {told}"}

    def _ask(self, url: str, path: str, send: Mapping[str, Any] | None) -> Answer:
        headers = {"Accept": f"{_KIND}, application/json", "User-Agent": "backfill", **self._authorization()}
        data = None
        if send is not None:
            data, headers["Content-Type"] = json.dumps(send).encode(), _KIND
        asked, opener = urllib.request.Request(url + path, data, headers), _opener(self)
        try:
            with opener.open(asked, timeout=SILENCE_S) as found:
                told = _whole(found, time.monotonic() + ANSWER_S)
        except (OSError, http.client.HTTPException, UnicodeError) as exc:
            # what answers can be repeated in an error, and that is in the log of whoever shows causes
            raise self._unanswered(url, exc) from (exc if self.shown(repr(exc)) == repr(exc) else None)
        return self._judged(url, found.status, found.headers, told)

    def _unanswered(self, url: str, exc: Exception) -> BackfillError:
        reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
        said = self.shown(str(reason)) or type(reason).__name__
        if isinstance(reason, ssl.SSLError) and not isinstance(reason, _HUNG_UP):
            what = "check the address, ca, certificate and key"
            return Fatal(f"{url}: no TLS connection: {said}", in_config(f"{what} in {self.at}"))
        return Transient(f"{url}: the schema registry does not answer: {said}", self._unreachable())

    def _judged(self, url: str, status: int, headers: Mapping[str, str], told: bytes | None) -> Answer:
        """The registry's answer. Raises for what is none, and for those that end or repeat every request."""
        answer = Answer(status, None if told is None else _parsed(told), url)
        said = self.shown(answer.said or http.client.responses.get(status, ""))
        where = f"{url}: the schema registry answers HTTP {status}"
        if status >= 500 or status in _PASSING:
            raise Transient(f"{where}: {said}", self._unreachable())
        if status in (401, 403):
            what = f"check {self.at}: user and password, or token; it needs the right to read schemas"
            raise Fatal(f"{url}: access denied by the schema registry (HTTP {status}): {said}", in_config(what))
        correct = in_config(
            f"correct {self.at}.url: the address of the registry's API; Apicurio's ends in {APICURIO}v7"
        )
        if 300 <= status < 400:
            place = self.shown(_place(headers.get("Location")))
            raise Fatal(f"{where}, a redirect to {place}: none is followed", correct)
        if told is None:
            raise Fatal(
                f"{url}: an answer of more than {spell_size(ANSWER_BYTES)}: not a schema registry's", correct
            )
        if answer.body is None or (status >= 400 and not answer.error_code):
            said = self.shown(_text(told), 80)
            raise Fatal(f"{url}: not the answer of a schema registry: HTTP {status} {said!r}", correct)
        return answer

    def _unreachable(self) -> Hint:
        return in_config(f"start the schema registry, or correct {self.at}.url")


@cache
def _opener(of: Connection) -> urllib.request.OpenerDirector:
    """What opens addresses: by the environment's proxies, without following a redirect. One per process.

    Raises Fatal for files of TLS that cannot be used.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler(), urllib.request.HTTPHandler()]
    if any(url.startswith("https:") for url in of.urls):
        try:
            context = ssl.create_default_context(cafile=of.ca)
            if of.certificate is not None:
                # never asks the terminal
                context.load_cert_chain(of.certificate, of.key, lambda: of.key_password or "")
        except OSError as exc:
            files = ", ".join(one for one in (of.ca, of.certificate, of.key) if one)
            what = f"check ca, certificate, key and key_password in {of.at}"
            raise Fatal(f"{files}: cannot be used for TLS: {of.shown(str(exc))}", in_config(what)) from exc
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.OpenerDirector()
    for one in handlers:
        opener.add_handler(one)
    return opener


def _whole(found: http.client.HTTPResponse, until: float) -> bytes | None:
    """The answer's bytes; None if there are more than ANSWER_BYTES. Raises TimeoutError."""
    parts, size = [], 0
    while part := found.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES:
            return None
        if time.monotonic() > until:
            raise TimeoutError(f"not complete after {spell_duration(ANSWER_S)}")
    if found.length:
        raise http.client.IncompleteRead(b"", found.length)
    return b"".join(parts)


def _parsed(told: bytes) -> Any:
    """The JSON, None if it is none."""
    try:
        return json.loads(told)
    except (ValueError, RecursionError):
        return None


def _place(location: str | None) -> str:
    """Where a redirect leads, without what may be secret in it."""
    if not location:
        return "nowhere"
    try:
        found = urlsplit(location)
    except ValueError:
        return "no address"
    return urlunsplit((found.scheme, found.netloc.rpartition("@")[2], found.path, "", "")) or "itself"


_BACKSLASH = r"(?:\\|%5c)"
_MOST = 16
"""Backslashes before a character: one in JSON, as often as it is a text of JSON again."""


@cache
def _written(secret: str) -> re.Pattern[str]:
    """A secret however an answer writes its characters: as they are, in JSON, in HTML, or in an address."""
    each = []
    for one in secret:
        octets = "".join(f"%{byte:02x}" for byte in one.encode(errors="surrogateescape"))
        units = one.encode("utf-16-be", "surrogatepass").hex()
        escapes = "".join(rf"{_BACKSLASH}{{1,{_MOST}}}u{units[i : i + 4]}" for i in range(0, len(units), 4))
        forms = [
            re.escape(one),
            octets,
            escapes,
            rf"{_BACKSLASH}{{1,{_MOST}}}x{ord(one):02x}",
            rf"&#(?:x0*{ord(one):x}|0*{ord(one)});",
        ]
        forms += [re.escape(html.escape(one))] + ([r"\+"] if one == " " else [])
        each.append(rf"{_BACKSLASH}{{0,{_MOST}}}(?:{'|'.join(forms)})")
    return re.compile("".join(each), re.IGNORECASE)


def _text(told: bytes) -> str:
    return told[: 8 * _MESSAGE].decode("utf-8", "replace")
