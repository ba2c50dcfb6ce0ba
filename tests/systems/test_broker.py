"""The broker that tests share and `scripts/broker` starts: it answers, ends, and never outlives its starter."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from broker import Broker
from server_process import free_port

SCRIPT = Path(__file__).parents[2] / "scripts" / "broker.py"


@pytest.fixture
def script(broker: Broker) -> "subprocess.Popen[str]":
    """The script with a broker that answers. `broker` tells whether one can run here."""
    command = [sys.executable, SCRIPT, "--port", str(free_port()), "--topic", "orders:4"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert started.stdout is not None
    assert started.stdout.readline().startswith("127.0.0.1:")
    return started


def test_a_broker_ends_with_ctrl_c(script: "subprocess.Popen[str]") -> None:
    children = psutil.Process(script.pid).children(recursive=True)
    script.send_signal(signal.SIGINT)
    assert script.wait(60) == 0
    assert children
    assert psutil.wait_procs(children, 30)[1] == []


def test_a_broker_does_not_outlive_a_script_that_was_killed(script: "subprocess.Popen[str]") -> None:
    children = psutil.Process(script.pid).children(recursive=True)
    script.kill()
    script.wait()
    assert children
    assert psutil.wait_procs(children, 30)[1] == []


def test_a_taken_port_is_told(script: "subprocess.Popen[str]") -> None:
    port = str(script.args[3])  # type: ignore[index]
    again = subprocess.run([sys.executable, SCRIPT, "--port", port], capture_output=True, text=True, timeout=60)
    script.terminate()
    script.wait(60)
    assert again.returncode == 1
    assert "choose another one with --port" in again.stderr
