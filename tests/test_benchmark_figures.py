"""What `scripts/benchmark all` says: pages are of what was measured; a figure is worse if it is so each time."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def loaded(name: str) -> ModuleType:
    """A module of benchmarks/, which is on no path: some of its names are those of scripts/."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


figures = loaded("figures")


def result(*, sizes: int = 1, **values: float) -> dict[str, Any]:
    """What a benchmark reported; more of `rate` is better."""
    each = [{"name": name, "value": value, "higher": name == "rate"} for name, value in values.items()]
    return {"sizes": {"rows": sizes}, "figures": each}


def test_the_page_has_what_was_measured_and_says_what_was_not() -> None:
    figure = {"name": "snapshot ÷ plain way", "value": 0.6412, "unit": "", "goal": "≤ 1.0", "reached": True}
    more = {"runs": [0.6, 0.64, 0.7], "note": "ours | theirs", "higher": False}
    kept = {
        "machine": "2 cores",
        "versions": "Python 3",
        "at": "2026-11-28T09:00:00Z",
        "seconds": 120,
        "results": {"snapshot": {"sizes": {}, "seconds": 90.2, "figures": [figure | more]}},
    }
    page = figures.page(kept)
    assert "| snapshot ÷ plain way | 0.641 | 0.6 0.64 0.7 | ≤ 1.0 | reached; ours \\| theirs |\n" in page
    assert "`scripts/benchmark log_store --epochs 200`: not measured yet.\n" in page
    before = f"a\n{figures.BEGIN}old\n{figures.END}z"
    assert figures.readme(before, kept) == before  # a figure of the table is missing
    for row in figures.IN_README:
        one = kept["results"].setdefault(row.result, {"sizes": {}, "seconds": 1, "figures": []})
        one["figures"].append(figure | more | {"name": row.figure, "value": 1234.5, "unit": "rows/s"})
    made = figures.readme(before, kept)
    assert made.startswith(f"a\n{figures.BEGIN}| | measured | by |\n")
    assert made.endswith(f"{figures.END}z")
    assert made.count("| 1,234 rows/s | `scripts/benchmark ") == len(figures.IN_README) - 1
    assert made.count("| 0.641 | `scripts/benchmark snapshot` |") == 1


def test_page_and_readme_are_of_the_figures_that_are_kept() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert figures.BEGIN in readme
    assert figures.END in readme
    assert figures.PAGE.exists() == figures.KEPT.exists()
    if figures.KEPT.exists():
        kept = figures.read()
        assert figures.PAGE.read_text("utf-8") == figures.page(kept), "Try: python benchmarks/all.py --pages"
        assert readme == figures.readme(readme, kept), "Try: python benchmarks/all.py --pages"
    for run in figures.RUNS:
        assert (ROOT / f"benchmarks/{run.benchmark}.py").exists()


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio"),
    [
        (result(took=3), result(took=2), 1.5),
        (result(rate=3), result(rate=2), 2 / 3),
        (result(lost=0), result(lost=0), 1),
        (result(lost=1), result(lost=0), 2),
        (result(off=-0.5), result(off=1), 0.5),
    ],
)
def test_above_one_is_worse(ours: dict[str, Any], theirs: dict[str, Any], ratio: float) -> None:
    (found,) = figures.compared("x", [ours], [theirs])
    assert found.ratios == pytest.approx((ratio,))


def test_worse_once_is_not_worse() -> None:
    ours, theirs = [result(took=3), result(took=3), result(took=2)], [result(took=2)] * 3
    (found,) = figures.compared("x", ours, theirs)
    assert found.median == 1.5
    assert not found.is_worse
    (found,) = figures.compared("x", ours[:2], theirs[:2])
    assert found.is_worse


def test_what_only_one_code_has_or_measures_otherwise_is_not_compared() -> None:
    assert not figures.compared("x", [result(took=3)], [result(other=2)])
    assert not figures.compared("x", [result(took=3)], [result(took=2, sizes=2)])


def test_a_code_that_became_slower_fails(tmp_path: Path) -> None:
    """Against itself with one benchmark made quicker, in a repository of its own: exit code 1, with the ratio."""
    folder = tmp_path / "code" / "benchmarks"
    folder.mkdir(parents=True)
    for name in ("all", "figures"):
        (folder / f"{name}.py").write_text((ROOT / "benchmarks" / f"{name}.py").read_text("utf-8"), "utf-8")
    script = """\
import json, pathlib
results = pathlib.Path(__file__).parent / "results"
results.mkdir(exist_ok=True)
figure = {{"name": "took", "value": {}, "unit": "s", "goal": "-", "reached": True, "runs": [], "note": ""}}
(results / "log_store.json").write_text(json.dumps({{"sizes": {{}}, "figures": [figure | {{"higher": False}}]}}))
"""

    def git(*arguments: str) -> None:
        named = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        subprocess.run(("git", *named, *arguments), cwd=tmp_path / "code", check=True, capture_output=True)

    def against(ref: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "benchmarks/all.py", "--only", "log_store", "--against", ref]
        return subprocess.run(command, cwd=tmp_path / "code", capture_output=True, text=True)

    git("init", "-q")
    (folder / "log_store.py").write_text(script.format("1.0"), "utf-8")
    git("add", ".")
    git("commit", "-qm", "before")
    git("tag", "v1")
    same = against("v1")
    assert same.returncode == 0
    assert "- log_store: took: 1.00\n" in same.stdout
    (folder / "log_store.py").write_text(script.format("1.2"), "utf-8")
    slower = against("v1")
    assert slower.returncode == 1
    assert "- log_store: took: 1.20 **worse**\n" in slower.stdout
    (folder / "log_store.py").write_text("", "utf-8")
    silent = against("v1")
    assert silent.returncode == 1
    assert "it ended without figures" in silent.stderr
    assert against("no-such-tag").returncode == 2
