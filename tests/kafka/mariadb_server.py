"""A real MariaDB on loopback, in a temporary folder, whose binary log has whole rows: what Debezium reads."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from server_process import ServerProcess, free_port, last_lines

START_LIMIT_S = 180.0

_SETTINGS = (
    "--bind-address=127.0.0.1",
    "--user=root",  # whoever starts it owns the folder; MariaDB ignores this unless root does
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=16M",
    "--innodb-flush-log-at-trx-commit=0",
    "--character-set-server=utf8mb4",
    "--default-time-zone=+00:00",
    "--server-id=1",
    "--log-bin=changes",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
)


class NoMariaDB(Exception):
    """Why no server can run here; the text ends with what to do."""


class MariaDB:
    """One server; its only user is root, who needs no password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """The server answers. Raises NoMariaDB if it does not within START_LIMIT_S."""
        install, server = _program("mariadb-install-db"), _program("mariadbd")
        data, log = self.folder / "data", self.folder / "mariadb.log"
        self.folder.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--user=root", "--innodb-log-file-size=4M",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode != 0:
            raise NoMariaDB(f"mariadb-install-db ended with {made.returncode}: {made.stderr[-500:]}")
        told = [f"--datadir={data}", "--socket=mariadb.sock", f"--port={self.port}", *_SETTINGS]
        self._process = ServerProcess([server, "--no-defaults", *told], log)
        until = time.monotonic() + START_LIMIT_S
        while self._client("SELECT 1").returncode:
            if self._process.ended or time.monotonic() > until:
                self.stop()
                raise NoMariaDB(f"MariaDB did not start; its log ends:\n{last_lines(log)}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def run(self, *statements: str) -> None:
        """They ran in one session, each committed by itself."""
        done = self._client(";\n".join(statements))
        assert done.returncode == 0, done.stderr.decode()

    def rows(self, query: str) -> list[list[str | None]]:
        """What MariaDB's own client prints, a text for each value; it writes SQL NULL as the text NULL."""
        done = self._client(query)
        assert done.returncode == 0, done.stderr.decode()
        return [
            [None if value == "NULL" else value for value in line.split("\t")]
            for line in done.stdout.decode().splitlines()
        ]

    def _client(self, sql: str) -> subprocess.CompletedProcess[bytes]:
        client = [
            _program("mariadb"),
            "--no-defaults",
            "--protocol=tcp",
            "--host=127.0.0.1",
            f"--port={self.port}",
        ]
        told = ["--user=root", "--default-character-set=utf8mb4", "--batch", "--raw", "--skip-column-names"]
        return subprocess.run([*client, *told], input=sql.encode(), capture_output=True)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        raise NoMariaDB(f"{name} was not found\nTry: apt-get install mariadb-server-core mariadb-client-core")
    return found


@contextlib.contextmanager
def running(folder: Path) -> Iterator[MariaDB]:
    """A server that runs until the end of the block."""
    server = MariaDB(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
