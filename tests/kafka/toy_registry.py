"""A schema registry of the tests' own, in this process: it answers as Confluent's does, or as a test says."""

import base64
import itertools
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

from backfill_cli.schema_registry.registry import _of_process as known


@dataclass
class Raw:
    """An answer as it is. chunks: sent one by one."""

    status: int = 200
    chunks: Sequence[bytes] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(body: object, status: int = 200) -> "Raw":
        return Raw(status, [json.dumps(body).encode()])


def error(status: int, code: int, message: str) -> Raw:
    return Raw.of({"error_code": code, "message": message}, status)


@dataclass
class ToyRegistry:
    """Schemas by subject. asked: the requests so far, `GET /path`. script: the answers to the next requests.

    needs: the value of the header Authorization; anything else is let in, too, where it is None.
    """

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    script: list[Raw] = field(default_factory=list)
    always: Raw | None = None
    needs: str | None = None
    url: str = ""

    def add(
        self, subject: str, text: str, kind: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """The new schema's id. references: name, subject, version."""
        told = {"schema": text, "schemaType": kind, "references": list(references)}
        id = next((id for id, one in self.schemas.items() if one == told), max(self.schemas, default=0) + 1)
        self.schemas[id] = told
        versions = self.subjects.setdefault(subject, [])
        if id not in versions:
            versions.append(id)
        return id

    def answer(self, request: str, authorization: str | None, body: bytes) -> Raw:
        self.asked.append(request)
        if self.needs is not None and authorization != self.needs:
            return error(401, 401, f"who is {authorization}?")
        if self.script:
            return self.script.pop(0)
        return self.always or self._answer(request, body)

    def _answer(self, request: str, body: bytes) -> Raw:
        method, path = request.split(" ")
        match [method, *map(unquote, path.strip("/").split("/"))]:
            case ["GET", "schemas", "ids", id] if int(id) in self.schemas:
                return Raw.of(self.schemas[int(id)])
            case ["GET", "schemas", "ids", _]:
                return error(404, 40403, "Schema not found")
            case ["GET", "subjects"]:
                return Raw.of(list(self.subjects))
            case ["GET", "subjects", subject, "versions", version]:
                ids = self.subjects.get(subject, [])
                at = len(ids) if version == "latest" else int(version)
                if not 0 < at <= len(ids):
                    return error(404, 40401 if not ids else 40402, "Not found")
                return Raw.of({"id": ids[at - 1], "subject": subject, "version": at, **self.schemas[ids[at - 1]]})
            case ["POST", "subjects", subject, "versions"]:
                told = json.loads(body)
                return Raw.of({"id": self.add(subject, told["schema"], told["schemaType"])})
        return error(404, 404, "HTTP 404 Not Found")


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[ToyRegistry]:
    """A registry on a port of loopback, until the end of the block."""
    registry = ToyRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            told = registry.answer(f"{self.command} {self.path}", self.headers.get("Authorization"), body)
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in told.headers:
                self.send_header("Content-Length", str(sum(map(len, told.chunks))))
            self.end_headers()
            for chunk in told.chunks:
                self.wfile.write(chunk)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that hangs up

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
            known.cache_clear()  # the next one can have this port


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def endless(piece: bytes) -> Sequence[bytes]:
    """Chunks of 32 MB in all."""
    return list(itertools.repeat(piece * (1 << 20), 32 // len(piece)))
