"""`scripts/postgres` starts a server of its own, or says why not."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from postgres import NoPostgres, Server

SCRIPT = Path(__file__).parents[2] / "scripts/postgres.py"


def test_a_server_that_has_the_port_is_not_taken_for_a_new_one(postgres: Server, tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--port", str(postgres.port), "--folder", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        printed = started.stdout.readline()
        started.terminate()
        _, said = started.communicate(timeout=60)
    assert printed == ""
    assert started.returncode == 1
    assert said.startswith(f"port {postgres.port} on 127.0.0.1: Address already in use")
    assert not (tmp_path / "data").exists()


def test_whatever_listens_on_the_port_is_refused(postgres: Server, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(NoPostgres, match=f"port {port} on 127.0.0.1: Address already in use"):
            Server(tmp_path, port).start()
