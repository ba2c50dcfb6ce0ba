"""The figures of all benchmarks on one machine, and what is made from them: docs/benchmarks.md, README's table.

`scripts/benchmark all` writes benchmarks/figures.json: the machine, and what each of RUNS measured.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "benchmarks" / "figures.json"
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- made by scripts/benchmark all -->\n", "<!-- end -->\n"
PACKAGES = ("pyspark", "duckdb", "pyarrow", "deltalake", "pyiceberg", "confluent-kafka", "psycopg")


@dataclass(frozen=True)
class Run:
    """One benchmark, with sizes by which all take half an hour. result: the name under which it reports."""

    benchmark: str
    result: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return " ".join(("scripts/benchmark", self.benchmark, *self.arguments))


def _run(command: str, result: str = "") -> Run:
    benchmark, *arguments = command.split()
    return Run(benchmark, result or benchmark, tuple(arguments))


RUNS = (
    _run("snapshot --rows 2000000 --pairs 3 --only pairs killed slice"),
    _run("control --quick --only live derived latency idle commands cron first"),
    _run("kafka --records 1000000 --rounds 2 --only pairs debezium avro live sink"),
    _run("postgres --rows 500000 --rounds 2 --only pairs filtered follow live"),
    _run("lake --rows 1000000 --versions 20 --pairs 2 --only snapshot changes planning", "lake-delta"),
    _run("lake --format iceberg --rows 1000000 --versions 20 --pairs 2 --only snapshot changes", "lake-iceberg"),
    _run("derived", "derived-duckdb"),
    _run("derived 1000000 --system postgres", "derived-postgres"),
    _run("derived_lake 200000 --times 1", "derived-delta"),
    _run("derived_lake 200000 --format iceberg --times 1", "derived-iceberg"),
    _run("chain --rows 500000 --only cost drain"),
    _run("log_store --epochs 200"),
    _run("barrier --quick"),
    _run("scale --quick"),
    _run("pgoutput --changes 200000"),
    _run("refill --only range --rows 1000000 --pairs 2", "refill-range"),
)


@dataclass(frozen=True)
class Shown:
    """A row of README's table: a figure in the reader's words."""

    words: str
    result: str
    figure: str


IN_README = (
    Shown("snapshot into DuckDB ÷ a copy by Spark and the same load", "snapshot", "snapshot ÷ plain way"),
    Shown(
        "`kill -9` half-way and `resume` ÷ uninterrupted, without one start of Spark and the commits in progress",
        "snapshot",
        "kill -9 half-way + resume ÷ uninterrupted",
    ),
    Shown("topic into DuckDB ÷ Spark's batch read and the same load", "kafka", "topic ÷ plain batch read"),
    Shown("topic into DuckDB ÷ Structured Streaming", "kafka", "topic ÷ Structured Streaming"),
    Shown("Debezium topic into DuckDB", "kafka", "Debezium"),
    Shown(
        "PostgreSQL into DuckDB ÷ Spark's JDBC source and the same load",
        "postgres",
        "copy ÷ JDBC to Parquet and load",
    ),
    Shown("the same, rows a second ÷ Debezium's snapshot", "postgres", "rows/s ÷ Debezium's snapshot"),
    Shown("changes of a PostgreSQL applied, pgbench's four tables", "postgres", "changes applied"),
    Shown("Delta table into Delta ÷ one plain Spark job", "lake-delta", "snapshot ÷ plain Spark job"),
    Shown("Iceberg table into Iceberg ÷ one plain Spark job", "lake-iceberg", "snapshot ÷ plain Spark job"),
    Shown(
        "queued upstream commits: how much faster than one commit each",
        "log_store",
        "log store: times as fast as one commit each",
    ),
    Shown("lag at 1,000 changes per second, files", "control", "live lag, median"),
    Shown("the same with a derived table ÷ without", "control", "live lag with a derived table ÷ without"),
    Shown("CPU of an idle commit", "control", "idle barrier, Python CPU"),
)


def machine() -> dict[str, str]:
    """What the figures depend on, in words."""
    named = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in named.splitlines() if line.startswith("model name")]
    cpu = f" ({models[0]})" if models else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = subprocess.run(("java", "-version"), capture_output=True, text=True).stderr.partition("\n")[0]
    packages = [f"{one} {version(one)}" for one in PACKAGES]
    return {
        "machine": f"{os.cpu_count()} cores{cpu}, {memory:.0f} GiB, {platform.system()}",
        "versions": ", ".join((f"Python {platform.python_version()}", java.replace('"', ""), *packages)),
    }


def number(value: float, unit: str) -> str:
    """Three digits, thousands with commas."""
    digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".strip()


def page(kept: Mapping[str, Any]) -> str:
    """docs/benchmarks.md."""
    text = [
        "# Benchmarks",
        "",
        "Made by `scripts/benchmark all`, which runs each of these once. A ratio (÷) compares what ran side by",
        "side, in turn, in one process or session: below 1 is faster or less, unless it is of rates. What is not",
        "a ratio is of this machine. `scripts/benchmark NAME` without arguments takes larger sizes.",
        "",
        f"- Machine: {kept['machine']}.",
        f"- Versions: {kept['versions']}.",
        f"- Measured on {kept['at'][:10]} in {kept['seconds'] / 60:.0f} minutes.",
        "",
    ]
    for run in RUNS:
        one = kept["results"].get(run.result)
        took = f", {one['seconds']:.0f} s" if one else ": not measured yet."
        text += [f"## {run.result}", "", f"`{run.command}`{took}", ""]
        if one is None:
            continue
        text += ["| figure | measured | each run | goal | |", "| --- | --- | --- | --- | --- |"]
        for figure in one["figures"]:
            runs = " ".join(f"{each:.3g}" for each in figure["runs"][:6])
            goal = "" if figure["goal"] == "-" else figure["goal"]
            reached = "" if not goal else "reached" if figure["reached"] else "**missed**"
            value = number(figure["value"], figure["unit"])
            cells = (figure["name"], value, runs, goal, "; ".join(filter(None, (reached, figure["note"]))))
            text.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        text.append("")
    return "\n".join(text)


def table(kept: Mapping[str, Any]) -> str | None:
    """README's table; None as long as a figure of it is missing."""
    lines = ["| | measured | by |", "| --- | --- | --- |"]
    commands = {run.result: f"`scripts/benchmark {run.benchmark}`" for run in RUNS}
    for row in IN_README:
        one = _named(kept["results"].get(row.result, {"figures": ()}), row.figure)
        if one is None:
            return None
        lines.append(f"| {row.words} | {number(one['value'], one['unit'])} | {commands[row.result]} |")
    return "\n".join(lines) + "\n"


def readme(text: str, kept: Mapping[str, Any]) -> str:
    """README with its table made anew, once all of it has been measured."""
    before, _, rest = text.partition(BEGIN)
    made = table(kept)
    return text if made is None else before + BEGIN + made + END + rest.partition(END)[2]


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8"))
    return found


def write(kept: Mapping[str, Any]) -> None:
    """The figures and what is made from them."""
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(kept), "utf-8")
    README.write_text(readme(README.read_text("utf-8"), kept), "utf-8")


WORSE = 1.1
"""A figure is worse if each of COMPARISONS, side by side, shows it by more than this."""
COMPARISONS = 3


@dataclass(frozen=True)
class Ratio:
    """A figure of this code ÷ the same of another one: above 1 is worse, whether more of it is better or less."""

    result: str
    figure: str
    ratios: tuple[float, ...]

    @property
    def is_worse(self) -> bool:
        return min(self.ratios) > WORSE

    @property
    def median(self) -> float:
        ordered = sorted(self.ratios)
        return ordered[len(ordered) // 2]


def compared(result: str, ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> list[Ratio]:
    """The figures that both have, of runs of the same sizes."""
    found = []
    for one in ours[0]["figures"]:
        pairs = [
            (_named(a, one["name"]), _named(b, one["name"]))
            for a, b in zip(ours, theirs, strict=True)
            if a["sizes"] == b["sizes"]
        ]
        ratios = tuple(_ratio(a, b) for a, b in pairs if a is not None and b is not None)
        if ratios:
            found.append(Ratio(result, one["name"], ratios))
    return found


def _named(result: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = next((one for one in result["figures"] if one["name"] == name), None)
    return found


def _ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Of what may be 0, such as a count of lost epochs or a difference, one more of both is compared."""
    a, b = (theirs["value"], ours["value"]) if ours["higher"] else (ours["value"], theirs["value"])
    return float(a / b) if min(a, b) > 0 else (1 + max(a, 0.0)) / (1 + max(b, 0.0))
