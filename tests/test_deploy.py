"""docs/deploy: each file is linted by a tool of its kind, and what it types is a command of this program."""

import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
import typer.main

from backfill_cli import config
from backfill_cli.main import app

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "docs" / "deploy"
LINT = ROOT / ".venv-lint" / "bin"
DOCKERFILE, KUBERNETES, UNIT = (DEPLOY / name for name in ("Dockerfile", "kubernetes.yaml", "backfill@.service"))
linted = pytest.mark.skipif(not LINT.exists(), reason="scripts/test installs what lints docs/deploy")


@linted
def test_the_dockerfile_has_no_fault() -> None:
    done = subprocess.run([LINT / "hadolint", DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@linted
def test_the_kubernetes_resources_are_valid() -> None:
    done = subprocess.run([LINT / "kubernetes-validate", "--strict", KUBERNETES], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert (done.returncode, said.count(" passed for "), "ERROR" in said) == (0, 2, False), said


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_the_unit_is_one_of_systemd(tmp_path: Path) -> None:
    """Its program is not installed where it says."""
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/backfill/bin/backfill", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def typed() -> list[list[str]]:
    """What each file types after `backfill`."""
    lists = re.findall(r'(?:CMD|command:|args:) \[("[^]]*")\]', DOCKERFILE.read_text() + KUBERNETES.read_text())
    words = [[word.strip(' "') for word in one.split(",")] for one in lists]
    words += [shlex.split(line) for line in re.findall(r"^ExecStart=(.*)", UNIT.read_text(), re.MULTILINE)]
    return [one[1:] if one[0].endswith("backfill") else one for one in words]


def test_what_they_type_are_commands() -> None:
    assert {words[0] for words in typed()} == {"start", "status"}
    for verb, *words in typed():
        typer.main.get_command(app).commands[verb].make_context(verb, words)


def test_the_config_in_kubernetes_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"job\.toml: \|\n((?:    .*\n)+)", KUBERNETES.read_text())
    file = tmp_path / "job.toml"
    file.write_text(textwrap.dedent(text))
    assert config.load(file).job.name == "orders"
