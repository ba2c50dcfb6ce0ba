"""A way by which rows can travel is a route of the oracle: read off the product's code and its options."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from backfill_cli import registry
from oracle import changes_routes, routes, snapshot_routes, topics

assert snapshot_routes
assert changes_routes

ENGINE = Path(registry.__file__).parent / "engine"
CONTRACT = Path(registry.__file__).parent / "contracts" / "source.py"
READS = {"scan", "changes", "batches", "change_batches", "made_in_workers"}
"""What gives rows: the contract's functions, and the engine's own over them."""

NOT_TO_THE_SINK = ("verify.", "staging.sample")
"""Modules that read rows to compare or look at them, not to load them: those come again by a way of their own.
What a refill writes is what `verify` has read."""


def ways_of_the_engine() -> set[str]:
    """`room.module.function:what` wherever rows are asked for."""
    found = set()
    for file in sorted([*ENGINE.rglob("*.py"), CONTRACT]):
        module = f"{file.parent.name}.{file.stem}"
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef) and not module.startswith(NOT_TO_THE_SINK):
                found |= {f"{module}.{function.name}:{name}" for name in _called(function) & READS}
    return found


def _called(function: ast.FunctionDef) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {call.attr for call in calls if isinstance(call, ast.Attribute)} | {
        call.id for call in calls if isinstance(call, ast.Name)
    }


def ways_of_the_options() -> set[str]:
    """`connector.option=value` for each format and reader that a config can choose."""
    return {
        f"{name}.{option}"
        for name in registry.known(registry.UPSTREAMS)
        for option in _choices(registry.upstream(name).options)
    }


def _choices(model: type[BaseModel], path: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        for kind in _parts(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _choices(kind, f"{path}{name}.")
            elif get_origin(kind) is Literal and name in ("format", "file_format", "reader"):
                yield from (f"{path}{name}={value}" for value in get_args(kind))


def _parts(annotation: Any) -> tuple[Any, ...]:
    inner = get_args(annotation)
    return (
        (annotation,)
        if get_origin(annotation) is Literal or not inner
        else tuple(p for i in inner for p in _parts(i))
    )


def test_the_ways_are_found() -> None:
    assert "staging.stage._by_spark:scan" in ways_of_the_engine()
    assert "files.snapshot.format=csv" in ways_of_the_options()


MISSING = {
    *("kafka.reader=spark", "kafka.value.format=bytes", "files.snapshot.format=avro"),
    *("contracts.source.scan:batches", "contracts.source.changes:change_batches"),
}
"""Ways that have no route: two have none yet, and what reads rows of Avro has an oracle of its own (test_avro.py).
The contract's are for other packages, and for databases."""


@pytest.mark.parametrize("way", sorted(ways_of_the_engine() | ways_of_the_options()))
def test_every_way_is_a_route(way: str) -> None:
    assert (way in routes.covered() | topics.COVERS.keys()) != (way in MISSING), (
        f"{way}: give the oracle a route that covers it"
    )
