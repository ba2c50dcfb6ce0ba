"""The registry that tests share and `scripts/registry` starts: it answers, and ends with its starter."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
from registry import Registry
from server_process import free_port

SCRIPT = Path(__file__).parents[2] / "scripts" / "registry.py"


def test_a_registry_ends_with_its_script_and_a_taken_port_is_told(schema_registry: Registry) -> None:
    """`schema_registry` tells whether one can run here."""
    taken = [sys.executable, SCRIPT, "--port", str(schema_registry.port)]
    again = subprocess.run(taken, capture_output=True, text=True, timeout=60)
    assert again.returncode == 1
    assert "choose another one with --port" in again.stderr

    command = [sys.executable, SCRIPT, "--port", str(free_port())]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert started.stdout is not None
    url = started.stdout.readline().strip()
    assert url.endswith("/apis/ccompat/v7")
    children = psutil.Process(started.pid).children(recursive=True)
    started.send_signal(signal.SIGINT)
    assert started.wait(60) == 0
    assert children
    assert psutil.wait_procs(children, 30)[1] == []
