"""The files that complete what is typed in bash, zsh and fish: each by its shell, if that is installed."""

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from command_builders import make_job

from backfill_cli.catalog import Catalog
from backfill_cli.main import VERBS
from backfill_cli.manual.files import pages, shared

SHARED = shared()
PAGES = {one.path: one for one in pages()}
PROGRAM = str(Path(sysconfig.get_path("scripts")) / "backfill")

BASH = """
source {file}
complete -p backfill >/dev/null || exit 9
COMP_WORDS=({words}) COMP_CWORD={at}
_backfill {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

ZSH = """
words=({words}) CURRENT={at} PREFIX={last}
compadd() {{ print -l -- ${{(M)found:#$PREFIX*}}; }}
compset() {{ PREFIX=${{PREFIX#*=}}; }}
_files() {{ print FILES; }}
source {file}
"""


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel installs."""
    made = tmp_path_factory.mktemp("prefix")
    for name, text in SHARED.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


def bash(prefix: Path, *typed: str) -> list[str]:
    """What bash offers for the last of these words."""
    words = ("backfill", *typed)
    script = BASH.format(
        file=prefix / "share/bash-completion/completions/backfill",
        words=" ".join(map(shlex.quote, words)),
        at=len(typed),
        program=PROGRAM,
    )
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def offered(path: str, start: str = "") -> list[str]:
    """The options of a command, by its help."""
    rows = [row for rows in PAGES[path].options.values() for row in rows]
    return [name for row in rows for name in row.names if name.startswith(start or "-")]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (("sta",), ["start", "status"]),
        (("",), [*VERBS, "help"]),
        (("help", "co"), ["config"]),
        (("help", "config", ""), ["schema", "show"]),
        (("config", "s"), ["schema", "show"]),
        (("--ver",), ["--version", "--verbose"]),
        (("wait", "--for", "ca"), ["caught-up"]),
        (
            (
                "wait",
                "--for=ca",
            ),
            [],
        ),
        (("wait", "--for", "=", "pa"), ["paused"]),
        (("start", "--until", "="), ["caught-up", "forever"]),
        (("start", "job.toml", "--until", "f"), ["forever"]),
        (("throttle", "--rate", ""), []),
        (("throttle", "--rate", "500", "--wa"), ["--wait"]),
        (("start", "--config", "job"), []),
        (("config", "show", "--js"), ["--json"]),
    ],
    ids=" ".join,
)
def test_bash_completes_without_a_call(folder_of: Path, typed: tuple[str, ...], found: list[str]) -> None:
    assert bash(folder_of, *typed) == found


@pytest.mark.parametrize("path", [path for path in PAGES if path != "backfill"])
def test_bash_knows_every_option(folder_of: Path, path: str) -> None:
    assert bash(folder_of, *path.split()[1:], "--") == offered(path, "--")


def test_bash_asks_for_names_of_jobs_and_answers(folder_of: Path, catalog: Catalog) -> None:
    make_job(catalog, "orders-eu")
    assert bash(folder_of, "pause", "or") == ["orders", "orders-eu"]
    assert bash(folder_of, "schema", "sta") == ["status"]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(folder_of: Path, catalog: Catalog) -> None:
    def fish(line: str) -> list[str]:
        file = folder_of / "share/fish/vendor_completions.d/backfill.fish"
        script = f"source {file}; complete -C {shlex.quote(line)}"
        path = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PATH": path},
        )
        assert (done.returncode, done.stderr) == (0, "")
        return sorted(row.split("\t")[0] for row in done.stdout.splitlines())

    assert fish("backfill sta") == ["start", "status"]
    assert fish("backfill config s") == ["schema", "show"]
    assert fish("backfill wait --for ca") == ["caught-up"]
    assert fish("backfill throttle --wa") == ["--wait"]
    assert fish("backfill pause or") == ["orders"]
    assert fish("backfill help sto") == ["stop"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(folder_of: Path, catalog: Catalog) -> None:
    def zsh(*typed: str) -> list[str]:
        words = (PROGRAM, *typed)
        script = ZSH.format(
            words=" ".join(map(shlex.quote, words)),
            at=len(words),
            last=shlex.quote(words[-1]),
            file=folder_of / "share/zsh/site-functions/_backfill",
        )
        done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    assert zsh("sta") == ["start", "status"]
    assert zsh("config", "s") == ["schema", "show"]
    assert zsh("wait", "--for", "ca") == zsh("wait", "--for=ca") == ["caught-up"]
    assert zsh("throttle", "--wa") == ["--wait"]
    assert zsh("start", "jo") == zsh("start", "--config=jo") == ["FILES"]
    assert zsh("pause", "or") == ["orders"]
    assert zsh("help", "sto") == ["stop"]
