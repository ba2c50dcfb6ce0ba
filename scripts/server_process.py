"""A server's process, and a free port for it: what the servers for demos and tests share."""

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

_PORTS = 12_000, 32_000
"""Where free ports are looked for: below those of outgoing connections, above most servers' own."""


class ServerProcess:
    """A process that writes to a log, and never outlives this one, not even after kill -9."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        with log.open("ab") as written:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        # reads to the end of a pipe that we hold open
        self._watch = subprocess.Popen(
            ["sh", "-c", f"cat >/dev/null; kill {self._process.pid}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """The process has ended; killed if it does not end within 30 s."""
        self._watch.terminate()
        self._watch.communicate()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """A port at which nothing listens, and that no connection gets for its own end before a server is there.

    The system gives those from 32768 on (Linux) or 49152 on to outgoing connections, while a server starts, or is
    started again. Two processes that ask at one time get different ones: the generator is the system's own.
    """
    chance = SystemRandom()
    while is_taken(port := chance.randrange(*_PORTS)):
        pass
    return port


def is_taken(port: int) -> bool:
    """Whether something else listens there."""
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").strip().splitlines()[-5:])
