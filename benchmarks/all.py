"""Every benchmark once, half an hour on 2 cores; or each of two codes, side by side, and whether one became worse.

    python benchmarks/all.py                       makes docs/benchmarks.md and README's table
    python benchmarks/all.py --only derived-duckdb log_store      these again; what the page says of others stays
    python benchmarks/all.py --against v1.4        an hour: the code here beside that of a tag, branch or commit

--against: each benchmark runs in a checkout of the other code and in this one, in turn, in one environment.
Each code has its own benchmarks; figures of the same name and sizes are compared. Where one of this code is worse
by more than a tenth, both run twice more. A figure that is worse each time is a failure (exit code 1). Prints the
ratios as CHANGELOG has them: above 1 is worse.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import figures
from figures import COMPARISONS, ROOT, RUNS, Ratio, Run


def measured(run: Run, checkout: Path) -> dict[str, Any] | None:
    """What the benchmark of a checkout reports, with the seconds that it took; None if it reports nothing."""
    report = checkout / "benchmarks" / "results" / f"{run.result}.json"
    report.unlink(missing_ok=True)
    script = checkout / "benchmarks" / f"{run.benchmark}.py"
    if not script.exists():
        return None
    began = time.monotonic()
    subprocess.run(
        (sys.executable, str(script), *run.arguments),
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdin=subprocess.DEVNULL,
    )
    if not report.exists():
        return None
    found = json.loads(report.read_text("utf-8"))
    said = {name: found[name] for name in ("sizes", "figures")}
    return {**said, "seconds": round(time.monotonic() - began, 1)}


def once(runs: tuple[Run, ...]) -> int:
    """Each of the runs; the pages are made anew. 1 if one of them reported nothing."""
    kept = figures.read() if figures.KEPT.exists() and runs != RUNS else {"results": {}}
    kept |= {**figures.machine(), "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    silent = []
    for run in runs:
        print(f"== {run.command}", flush=True)
        found = measured(run, ROOT)
        if found is None:
            silent.append(run.command)
            continue
        kept["results"][run.result] = found
        kept["seconds"] = sum(one["seconds"] for one in kept["results"].values())
        figures.write(kept)
    for command in silent:
        print(f"{command}: it ended without figures", file=sys.stderr)
    return 1 if silent else 0


def checkout(ref: str, folder: Path) -> Path:
    """The files of a commit below `folder`. Exits if there is no such commit."""
    packed = folder / "code.tar"
    done = subprocess.run(("git", "archive", "--output", str(packed), ref), cwd=ROOT)
    if done.returncode:
        sys.exit(2)
    code = folder / "code"
    with tarfile.open(packed) as files:
        files.extractall(code, filter="data")
    return code


def against(ref: str, runs: tuple[Run, ...]) -> int:
    """Prints the ratios of all figures. 1 if one became worse, or a benchmark of this code reports nothing."""
    with tempfile.TemporaryDirectory(prefix="backfill-against-") as folder:
        theirs = checkout(ref, Path(folder))
        ratios, silent = list[Ratio](), list[str]()
        for number, run in enumerate(runs):
            print(f"== {run.command}: {ref} and this code", flush=True)
            found, missing = _beside(run, theirs, first=number % 2)
            ratios += found
            silent += missing
    print(f"\nFigures ÷ those of {ref}, side by side on {figures.machine()['machine']}; above 1 is worse:\n")
    for one in ratios:
        worse = " **worse**" if one.is_worse and len(one.ratios) == COMPARISONS else ""
        print(f"- {one.result}: {one.figure}: {one.median:.2f}{worse}")
    for command in silent:
        print(f"{command}: it ended without figures", file=sys.stderr)
    return 1 if silent or any(one.is_worse for one in ratios) else 0


def _beside(run: Run, theirs: Path, first: int) -> tuple[list[Ratio], list[str]]:
    """Compared once, and where something looks worse, COMPARISONS times; the command if this code reports nothing.

    first: whose turn comes first, which alternates.
    """
    ours_found, theirs_found = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    for turn in range(COMPARISONS):
        order = [(ROOT, ours_found), (theirs, theirs_found)]
        for code, found in order if (turn + first) % 2 else reversed(order):
            result = measured(run, code)
            if result is None:
                return [], [run.command] if code == ROOT else []
            found.append(result)
        ratios = figures.compared(run.result, ours_found, theirs_found)
        if not any(one.is_worse for one in ratios):
            break
    return ratios, []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [run.result for run in RUNS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--pages", action="store_true", help="only makes the pages, of what was measured")
    parser.add_argument("--against", metavar="REF", help="a tag, branch or commit; nothing is written")
    given = parser.parse_args()
    runs = tuple(run for run in RUNS if run.result in given.only)
    if given.pages:
        figures.write(figures.read())
        return 0
    return against(given.against, runs) if given.against else once(runs)


if __name__ == "__main__":
    sys.exit(main())
