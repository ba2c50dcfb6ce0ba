"""The wheel that users install: built offline, it holds every package and nothing that would clash."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email import message_from_string
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from backfill_cli.manual.files import shared
from backfill_cli.tried import TRIED

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing is left in the checkout."""
    source = _source(tmp_path_factory.mktemp("source"))
    target = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--offline", "--no-build-isolation", "--python", sys.executable, "--out-dir", target]
    built = [sys.executable, "-m", "uv", "build", *options, source]
    done = subprocess.run(built, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = target.glob("*.whl")
    return zipfile.ZipFile(file)


def _source(folder: Path) -> Path:
    """What a wheel is built of."""
    for name in ("backfill_cli", "commands"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


INSTALLERS = {
    "pip": ("pip", "--python", "{0}/venv/bin/python", "install", "--quiet"),
    "pipx": ("pipx", "install", "--quiet", "--python", sys.executable),
    "uv": ("uv", "tool", "install", "--quiet", "--offline", "--python", sys.executable),
}
WHERE = {
    "PIPX_HOME": "{0}/pipx",
    "PIPX_BIN_DIR": "{0}/bin",
    "PIPX_MAN_DIR": "{0}/man",
    "UV_TOOL_DIR": "{0}/tools",
    "UV_TOOL_BIN_DIR": "{0}/bin",
}


@pytest.mark.parametrize("installer", INSTALLERS)
def test_the_built_wheel_installs_and_its_command_runs(
    wheel: zipfile.ZipFile, tmp_path: Path, installer: str
) -> None:
    """Its dependencies are those of this environment: CI's newest environment has all of its own."""
    venv.create(tmp_path / "venv")
    words = [word.format(tmp_path) for word in INSTALLERS[installer]]
    env = os.environ | {name: value.format(tmp_path) for name, value in WHERE.items()}
    done = subprocess.run(
        [sys.executable, "-m", *words, _alone(wheel, tmp_path)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (program,) = {*tmp_path.glob("*/bin/backfill"), *tmp_path.glob("bin/backfill")}
    (packages,) = program.resolve().parents[1].glob("lib/python*/site-packages")
    (packages / "of_tests.pth").write_text(sysconfig.get_path("purelib"))
    told = subprocess.run(
        [program, "--version", "--verbose"], env=env, capture_output=True, text=True, cwd=tmp_path
    )
    assert told.returncode == 0, told.stderr
    assert [line.split()[0] for line in told.stdout.splitlines()] == ["backfill", "java", "python"]
    prefix = program.resolve().parents[1]
    assert {name: (prefix / name).read_text("utf-8") for name in shared()} == shared()
    if installer == "pipx":
        assert (tmp_path / "man/man1/backfill-start.1").resolve().is_relative_to(prefix)


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_man_finds_the_pages_of_an_installation_whose_programs_are_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in shared().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "MANPAGER": "cat", "MANWIDTH": "80"}
    env.pop("MANPATH", None)
    shown = subprocess.run(["man", "backfill-wait"], env=env, capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Wait until a job is caught up" in shown.stdout


def _alone(wheel: zipfile.ZipFile, folder: Path) -> Path:
    """The same wheel, which names no dependencies."""
    alone = folder / Path(str(wheel.filename)).name
    with zipfile.ZipFile(alone, "w") as written:
        for name in wheel.namelist():
            lines = wheel.read(name).splitlines(keepends=True) if name.endswith("METADATA") else None
            kept = (
                None if lines is None else b"".join(one for one in lines if not one.startswith(b"Requires-Dist"))
            )
            written.writestr(name, wheel.read(name) if kept is None else kept)
    return alone


def test_the_wheel_holds_every_module_and_data_file(wheel: zipfile.ZipFile) -> None:
    in_tree = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "backfill_cli").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    in_tree |= {
        f"backfill_cli/{path.relative_to(ROOT)}"
        for path in (ROOT / "commands").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    in_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert in_wheel == in_tree


def test_the_wheel_holds_man_pages_and_completions_made_of_the_help(wheel: zipfile.ZipFile) -> None:
    there = {name.partition(".data/data/")[2]: name for name in wheel.namelist() if ".data/" in name}
    assert {name: wheel.read(path).decode() for name, path in there.items()} == shared()


def test_the_help_is_made_with_what_an_isolated_build_has() -> None:
    wanted = [
        Requirement(one)
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    ]
    there: set[str] = set()
    while wanted:
        name = canonicalize_name(wanted.pop().name)
        if name not in there:
            there.add(name)
            told = map(Requirement, metadata.requires(name) or ())
            wanted += [one for one in told if one.marker is None or one.marker.evaluate({"extra": ""})]
    tops = metadata.packages_distributions().items()
    absent = [
        top for top, names in tops if not {*there, "backfill-cli"} & {canonicalize_name(one) for one in names}
    ]
    look = "import sys\nclass Absent:\n def find_spec(self, name, *_):\n"
    look += "  if name.partition('.')[0] in sys.argv[1:]: raise ModuleNotFoundError(name)\n"
    look += "sys.meta_path.insert(0, Absent())\nfrom backfill_cli.manual.files import shared\nprint(len(shared()))"
    done = subprocess.run([sys.executable, "-c", look, *absent], capture_output=True, text=True)
    assert {"tomli", "duckdb"} <= set(absent)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(shared()))), done.stderr


def test_a_build_leaves_nothing_that_the_next_one_would_put_into_its_wheel(tmp_path: Path) -> None:
    """`pip install .` builds in the checkout: what is in `build/lib` is taken again."""
    source = _source(tmp_path / "source")
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", build], cwd=source, env=env, check=True, capture_output=True)
    assert not list((source / "build/lib").rglob("__pycache__"))


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_the_man_pages_are_set_without_a_warning(tmp_path: Path) -> None:
    """mandoc's own lint is not used: few machines have it."""
    pages = [text for name, text in shared().items() if name.endswith(".1")]
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-rF0", "-P-cbou"], input="".join(pages), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(pages) == done.stdout.count("SYNOPSIS")
    assert "--until caught-up|forever" in done.stdout


def test_nothing_called_commands_lands_at_the_top(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"backfill_cli", *(top for top in tops if top.endswith((".dist-info", ".data")))}
    data = {name for name in wheel.namelist() if ".data/" in name}
    assert all(".data/data/share/" in name for name in data)


def test_the_wheel_names_its_command_its_connectors_and_its_licence(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    entry_points = wheel.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "backfill = backfill_cli.main:main" in entry_points
    assert "[backfill.upstreams]" in entry_points
    assert "[backfill.sinks]" in entry_points
    assert any(name.endswith("licenses/LICENSE") for name in names)
    told = message_from_string(wheel.read(next(name for name in names if name.endswith("METADATA"))).decode())
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == "<3.14,>=3.11"


def test_the_lock_files_hold_hashes_and_no_address() -> None:
    for file in ROOT.glob("requirements*.lock"):
        name = file.name
        text = (ROOT / name).read_text("utf-8")
        assert not re.search(r"://|^--(?:index|extra|find|trusted)|/(?:home|work|opt|tmp)/", text, re.MULTILINE), (
            name
        )
        for block in re.split(r"\n(?=\S)", text.strip()):
            assert "--hash=sha256:" in block, f"{name}: {block.splitlines()[0]}"


def test_both_lock_files_hold_the_same_versions_of_what_users_get() -> None:
    users, developers = (_locked(name) for name in ("requirements.lock", "requirements-dev.lock"))
    assert users.items() <= developers.items()
    assert users["pyspark"] == "4.1.4"


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    locked = _locked("requirements-dev.lock")
    extras = _extras(project["project"])
    groups = [one for names in project["dependency-groups"].values() for one in names if isinstance(one, str)]
    for wanted in [*project["project"]["dependencies"], *extras, *groups]:
        assert re.split(r"[<>=\[ ]", wanted)[0].lower() in locked, f"{wanted}: run scripts/lock"


@pytest.mark.parametrize("scheduler", ["airflow", "dagster"])
def test_a_scheduler_is_tried_beside_the_locked_packages(scheduler: str) -> None:
    (wanted,) = map(Requirement, _project()["optional-dependencies"][scheduler])
    beside, locked = _locked(f"requirements-{scheduler}.lock"), _locked("requirements.lock")
    assert beside[wanted.name] in wanted.specifier
    assert {name: beside[name] for name in beside.keys() & locked} == {
        name: locked[name] for name in beside.keys() & locked
    }


def test_what_is_said_to_be_tried_is_what_the_lock_files_hold() -> None:
    lowest, newest = (_locked(name) for name in ("requirements-lowest.lock", "requirements-dev.lock"))
    assert {name: (lowest[name], newest[name]) for name in TRIED} == TRIED, "run scripts/lock"
    assert TRIED.keys() == {one.name for one in _direct()}


def test_the_lowest_environment_has_each_dependency_at_its_declared_minimum() -> None:
    lowest = _locked("requirements-lowest.lock")
    for wanted in _direct():
        (least,) = (Version(bound.version) for bound in wanted.specifier if bound.operator == ">=")
        found = Version(lowest[wanted.name])
        assert found == least or (least.micro == 0 and found.release[: len(least.release)] == least.release), (
            wanted
        )


def test_a_plain_install_brings_the_spark_that_is_tested() -> None:
    """PySpark 4.2 fails on a Parquet snapshot with a `timestamp with time zone`."""
    wanted = [Requirement(one) for one in _project()["dependencies"]]
    (spark,) = (one.specifier for one in wanted if one.name == "pyspark")
    assert [v for v in ("4.1.3", "4.1.4", "4.1.9", "4.2.0", "4.3.0", "5.0.0") if v in spark] == ["4.1.4", "4.1.9"]


def test_what_is_locked_is_what_a_plain_install_may_bring() -> None:
    locked = _locked("requirements.lock")
    for wanted in map(Requirement, _project()["dependencies"]):
        assert locked[wanted.name] in wanted.specifier, wanted


def _direct() -> list[Requirement]:
    """Everything that a user may get by us."""
    return [Requirement(one) for one in (*_project()["dependencies"], *_extras(_project()))]


def _extras(project: dict[str, Any]) -> list[str]:
    """Of connectors and the like: a scheduler has an environment and a lock file of its own."""
    parts = project["optional-dependencies"]
    return [one for extra, names in parts.items() if extra not in ("airflow", "dagster") for one in names]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _locked(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text("utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))
