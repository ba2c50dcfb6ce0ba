"""Removes each rule of tests/rules.toml once, in a copy of the tree: the tests that guard it have to fail.

python scripts/mutate.py [WORDS]   # only the rules whose names contain these words
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rules import Misplaced, Rule, without

ROOT = Path(__file__).parent.parent
COPIED = ("backfill_cli", "commands", "tests", "scripts", "pyproject.toml")
LIMIT_S = 900
QUICK = ("tests/unit/", "tests/simulation")
FAILED = 1
"""Pytest's exit code if a test failed; other codes mean that none did, or none ran."""


def taken_out(rule: Rule, tree: Path) -> None:
    """The rule is removed from the tree. Raises SystemExit unless it is there once."""
    try:
        path, text = without(rule, tree)
    except Misplaced as error:
        sys.exit(str(error))
    path.write_text(text, "utf-8")


def seen(rule: Rule) -> str:
    """What the tests report without the rule: empty if they fail, as they should."""
    with tempfile.TemporaryDirectory(prefix="backfill-mutate-") as folder:
        tree = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
        taken_out(rule, tree)
        said = _tested(tree, rule["tests"], "--quick") if all(p.startswith(QUICK) for p in rule["tests"]) else "-"
        # What `--quick` leaves out needs Spark, a server or seconds.
        return said and _tested(tree, rule["tests"])


def _tested(tree: Path, tests: Sequence[str], *how: str) -> str:
    command = [sys.executable, "-m", "pytest", *how, "-x", "-q", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(tree), "BACKFILL_SCHEDULES": "600"}
    try:
        ended = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return ""  # an endless loop counts as a failure, too
    if ended.returncode == FAILED:
        return ""
    return ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ended.stderr.strip()


def main(words: Sequence[str]) -> int:
    rules: list[Rule] = tomllib.loads((ROOT / "tests" / "rules.toml").read_text("utf-8"))["rule"]
    chosen = [rule for rule in rules if all(word in rule["name"] for word in words)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        blind = 0
        for rule, said in zip(chosen, pool.map(seen, chosen), strict=True):
            blind += bool(said)
            print(f"{'NOT SEEN' if said else 'seen'}  {rule['name']}{f': {said}' if said else ''}", flush=True)
    print(f"for {len(chosen) - blind} of {len(chosen)} rules, a test fails without the rule, as it should")
    return 1 if blind or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
