"""Prints backfill_cli/tried.py from the lock files: scripts/lock runs it once they are written."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def locked(name: str) -> dict[str, list[str]]:
    """package -> its versions, one per range of Pythons."""
    found: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text("utf-8"), re.MULTILINE):
        found.setdefault(package, []).append(version)
    return found


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    parts = project["optional-dependencies"]  # but for schedulers, which have lock files of their own
    extras = [one for extra, names in parts.items() if extra not in ("airflow", "dagster") for one in names]
    direct = {re.split(r"[<>=\[ ]", one)[0].lower() for one in [*project["dependencies"], *extras]}
    lowest, newest = locked("requirements-lowest.lock"), locked("requirements-dev.lock")
    print('"""The versions that the tests of this release ran with. Written by scripts/lock."""\n')
    print("TRIED = {")
    for name in sorted(direct):
        print(f'    "{name}": ("{lowest[name][0]}", "{newest[name][-1]}"),')
    print("}")
    print('"""package -> the lowest and the newest version"""')


if __name__ == "__main__":
    main()
