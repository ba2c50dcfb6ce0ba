"""A catalog with Iceberg's REST protocol, in this process, with pyiceberg's implementation of its rules.

pyiceberg checks what a commit requires and applies what it changes, one commit at a time; nothing of the code
under test is used.
"""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import TypeAdapter
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

UPDATES: TypeAdapter[Any] = TypeAdapter(tuple[TableUpdate, ...])
REQUIREMENTS: TypeAdapter[Any] = TypeAdapter(tuple[TableRequirement, ...])


class Answer(Exception):
    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, body


def error(status: int, kind: str, message: str) -> Answer:
    return Answer(status, {"error": {"message": message, "type": kind, "code": status}})


class Tables:
    """What the catalog holds: name → (metadata file, metadata)."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse, self._lock = warehouse, threading.Lock()
        self.namespaces: set[str] = set()
        self.tables: dict[str, tuple[str, TableMetadata]] = {}
        self._staged: dict[str, TableMetadata] = {}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        parts = [unquote(part).replace("\x1f", ".") for part in path.partition("?")[0].strip("/").split("/")[1:]]
        with self._lock:
            match (method, parts):
                case ("GET", ["config"]):
                    return {"defaults": {}, "overrides": {}}
                case ("POST", ["namespaces"]):
                    name = ".".join(body["namespace"])
                    if name in self.namespaces:
                        raise error(409, "AlreadyExistsException", name)
                    self.namespaces.add(name)
                    return {"namespace": body["namespace"], "properties": {}}
                case ("GET" | "HEAD", ["namespaces", name]):
                    if name not in self.namespaces:
                        raise error(404, "NoSuchNamespaceException", name)
                    return {"namespace": name.split("."), "properties": {}}
                case ("POST", ["namespaces", space, "tables"]):
                    return self._create(f"{space}.{body['name']}", body)
                case ("POST", ["namespaces", space, "register"]):
                    file = body["metadata-location"]
                    metadata = TableMetadataUtil.parse_raw(Path(file.removeprefix("file://")).read_text())
                    self.tables[f"{space}.{body['name']}"] = (file, metadata)
                    return self._told(f"{space}.{body['name']}")
                case (_, ["namespaces", space, "tables", name]):
                    return self._table(method, f"{space}.{name}", body)
        raise error(404, "NotFoundException", f"{method} {path}")

    def _table(self, method: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if method == "POST":
            return self._commit(name, body)
        if name not in self.tables:
            raise error(404, "NoSuchTableException", f"Table does not exist: {name}")
        if method == "DELETE":
            del self.tables[name]
            return {}
        return self._told(name)

    def _create(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if name in self.tables:
            raise error(409, "AlreadyExistsException", name)
        schema = Schema.model_validate(body["schema"])
        properties = {"format-version": "2", **body.get("properties", {})}
        location = (
            body.get("location") or f"file://{self._warehouse}/{name.replace('.', '/')}-{uuid.uuid4().hex[:6]}"
        )
        made = new_table_metadata(schema, PartitionSpec(), UNSORTED_SORT_ORDER, location, properties)
        if body.get("stage-create"):
            self._staged[name] = made
            return {"metadata": json.loads(made.model_dump_json()), "config": {}}
        self._write(name, made)
        return self._told(name)

    def _commit(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        requirements = REQUIREMENTS.validate_python(body["requirements"])
        held = self.tables[name][1] if name in self.tables else None
        try:
            for one in requirements:
                one.validate(held)
        except CommitFailedException as failed:
            raise error(409, "CommitFailedException", str(failed)) from None
        if held is None:
            # The updates repeat what the table was staged with; the others are new.
            held, known = self._staged.pop(name), ("add-snapshot", "set-snapshot-ref", "set-properties")
            body["updates"] = [one for one in body["updates"] if one["action"] in known]
        updates = UPDATES.validate_python(body["updates"])
        self._write(name, update_table_metadata(held, updates))
        return self._told(name)

    def _write(self, name: str, metadata: TableMetadata) -> None:
        folder = Path(metadata.location.removeprefix("file://")) / "metadata"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{uuid.uuid4().hex}.metadata.json"
        file.write_text(metadata.model_dump_json())
        self.tables[name] = (f"file://{file}", TableMetadataUtil.parse_raw(file.read_text()))

    def _told(self, name: str) -> dict[str, Any]:
        file, metadata = self.tables[name]
        return {"metadata-location": file, "metadata": json.loads(metadata.model_dump_json()), "config": {}}


@contextmanager
def running(warehouse: Path, port: int = 0, token: str = "") -> Iterator[str]:
    """The catalog's URI, while it runs. token: the only one that it accepts."""
    tables = Tables(warehouse)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            try:
                if token and self.headers.get("Authorization") != f"Bearer {token}":
                    raise error(401, "NotAuthorizedException", "wrong token")
                status, told = 200, tables.answer(self.command, self.path, body)
            except Answer as answer:
                status, told = answer.status, answer.body
            text = b"" if self.command == "HEAD" else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_HEAD = _handle

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
