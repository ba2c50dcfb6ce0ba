"""The ways by which rows travel through the product, by name. What a route runs is the product's own code.

A route that the product has and that is not registered here makes `test_every_route_is_registered` fail: each
route names what it `covers` (the product's own names of it), and `covered()` must equal what introspection
finds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle import plain
from oracle.answer import Answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Inputs of equal options, written below `folder`; the route leaves the rows in `sink`, table `t`, key `id`.

    config: as a TOML file would hold it; paths absolute, `[sink]` and `[job]` set.
    """

    folder: Path
    config: Config

    @property
    def sink(self) -> Path:
        return self.folder / "sink.duckdb"


Run = Callable[[Batch, "SparkSession"], None]


@dataclass(frozen=True)
class Held:
    """What a sink holds. read: its columns with DuckDB's types, and its rows. kept: an answer as this sink has it:
    in wider types, where it lacks one."""

    read: Callable[[Batch], tuple[dict[str, str], list[plain.Row]]]
    kept: Callable[[Answer], Answer]


IN_DUCKDB = Held(lambda batch: plain.of_duckdb(batch.sink, "t"), lambda answer: answer)


@dataclass(frozen=True)
class Route:
    """forms: which inputs it takes. covers: the product's names of what it runs. together: inputs in one job.

    refusals: how many inputs that must be refused are tried, each alone, of a run; None: all. at_once: how many of
    these side by side. held: the sink that has the rows then.
    """

    name: str
    forms: frozenset[str]
    covers: frozenset[str]
    run: Run
    together: int = 200
    refusals: int | None = None
    at_once: int = 1
    held: Held = IN_DUCKDB


ROUTES: dict[str, Route] = {}


def route(
    name: str,
    *forms: str,
    covers: tuple[str, ...],
    together: int = 200,
    refusals: int | None = None,
    at_once: int = 1,
    held: Held = IN_DUCKDB,
) -> Callable[[Run], Run]:
    """Registers a function as the route `name` for these forms."""

    def registered(run: Run) -> Run:
        assert name not in ROUTES, name
        ROUTES[name] = Route(name, frozenset(forms), frozenset(covers), run, together, refusals, at_once, held)
        return run

    return registered


def of(form: str) -> list[Route]:
    return [one for one in ROUTES.values() if form in one.forms]


def covered() -> frozenset[str]:
    return frozenset().union(*(one.covers for one in ROUTES.values()))
