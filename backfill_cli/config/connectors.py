"""Which connector `[upstream]` or `[sink]` names, and its options."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from backfill_cli import registry
from backfill_cli.config.faults import spell_faults
from backfill_cli.contracts import SinkConnector, UpstreamConnector
from backfill_cli.errors import UsageError

Tree = dict[str, Any]
SIDES = ("snapshot", "changes")


def upstream_of(told: Mapping[str, Any]) -> UpstreamConnector:
    """The connector of an `[upstream]` without faults."""
    return registry.upstream(told["type"]) if "type" in told else registry.two_systems(*_side_types(told))


def known(part: str, told: Any) -> UpstreamConnector | SinkConnector | None:
    """The connector of an `[upstream]` or `[sink]` that may have faults; None if it names no known one."""
    found = _connector(part, told) if isinstance(told, dict) else None
    return None if isinstance(found, str) else found


def sink_of(told: Mapping[str, Any]) -> SinkConnector:
    """The connector of a `[sink]` without faults."""
    return registry.sink(told["type"])


def of_one_system(tree: Tree) -> Tree:
    """The tree, with one `upstream.type` if both sides name the same type."""
    told = tree.get("upstream")
    if not isinstance(told, dict) or "type" in told:
        return tree
    kind, other = _side_types(told)
    if kind != other or kind not in registry.known(registry.UPSTREAMS) or registry.upstream(kind).snapshot is None:
        return tree
    sides = {side: {k: v for k, v in told[side].items() if k != "type"} for side in SIDES}
    return {**tree, "upstream": {"type": kind, **told, **sides}}


def options_of(part: str, told: Any, faults: list[str], context: Any) -> BaseModel | None:
    """`[upstream]` or `[sink]` as its connector's model; None, with faults added. context: STORED, or None."""
    if not isinstance(told, dict):
        return None
    connector = _connector(part, told)
    if isinstance(connector, str):
        faults.append(connector)
        return None
    model = connector.options
    options = {key: value for key, value in told.items() if key != "type" or "type" in model.model_fields}
    try:
        return model.model_validate(options, context=context)
    except ValidationError as error:
        faults += spell_faults(error, model, options, (part,))
        return None


def _connector(part: str, told: Tree) -> UpstreamConnector | SinkConnector | str:
    """The connector, or the fault in naming it."""
    kind = told.get("type")
    if part == "upstream" and any(_side_types(told)):
        return (
            _of_sides(told)
            if kind is None
            else "upstream.type: leave it out, or leave out the types of both sides"
        )
    if not isinstance(kind, str):
        known = ", ".join(registry.known(registry.UPSTREAMS if part == "upstream" else registry.SINKS))
        return f"{part}.type: {'missing' if kind is None else 'must be text'}; known: {known}"
    try:
        return registry.upstream(kind) if part == "upstream" else registry.sink(kind)
    except UsageError as error:
        return f"{part}.type: {error.message}"


def _of_sides(told: Tree) -> UpstreamConnector | str:
    kinds = _side_types(told)
    for side, kind in zip(SIDES, kinds, strict=True):
        if not isinstance(kind, str):
            what = "missing" if kind is None else "must be text"
            return f"upstream.{side}.type: {what}: an upstream of two systems needs a type for each side"
    try:
        return registry.two_systems(*kinds)
    except UsageError as error:
        return f"upstream: {error.message}"


def _side_types(told: Mapping[str, Any]) -> list[Any]:
    """The types of both sides, None for a side without one."""
    return [side.get("type") if isinstance(side := told.get(name), dict) else None for name in SIDES]
