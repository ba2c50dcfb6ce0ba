"""JSON Schemas of all that `--json` prints, made from the types of the answers: there is no other description."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from backfill_cli.errors import Hint
from backfill_cli.model.cutover import CutoverReport
from backfill_cli.model.limit import Limit
from backfill_cli.model.reports import PlanReport
from backfill_cli.model.verify import VerifyReport
from backfill_cli.view.answers import (
    SCHEMA,
    Advice,
    Detached,
    DroppedJob,
    Failed,
    Limited,
    LogLine,
    Logs,
    NotStarted,
    Options,
    Posted,
    Reached,
    WrittenConfig,
    WrittenReport,
    code,
    members,
)
from backfill_cli.view.journal import EventTold
from backfill_cli.view.model import Jobs, Refilled
from backfill_cli.view.reports import Checks, History
from backfill_cli.view.running import Ran
from backfill_cli.view.splits import JobSplits
from backfill_cli.view.status import HealthReport

ANSWERS: Mapping[str, tuple[type, str]] = {
    "status": (Jobs, "status, and each line of status --watch"),
    "splits": (JobSplits, "status --splits"),
    "health": (HealthReport, "status --check"),
    "run": (Ran, "start, resume"),
    "detached": (Detached, "start --detach, resume --detach"),
    "not-started": (NotStarted, "start --from, where the answer is no"),
    "command": (Posted, "pause, resume of a job with a runner, throttle, stop"),
    "refill": (Refilled, "refill"),
    "wait": (Reached, "wait"),
    "history": (History, "history"),
    "logs": (Logs, "logs"),
    "log-line": (LogLine, "each line of logs --follow"),
    "plan": (PlanReport, "plan, and start --from where it would be refused"),
    "verify": (VerifyReport, "verify"),
    "cutover": (CutoverReport, "cutover"),
    "doctor": (Checks, "doctor"),
    "report": (WrittenReport, "report"),
    "drop": (DroppedJob, "drop"),
    "init": (WrittenConfig, "init"),
    "config": (Options, "config show"),
    "error": (Failed, "a command that fails"),
    "event": (EventTold, "a hook, on its stdin"),
}
"""By name: the answer, and what prints it."""

Schema = dict[str, Any]
SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema(name: str) -> Schema:
    """The schema of one answer. Raises KeyError for a name that is not in ANSWERS."""
    kind, by = ANSWERS[name]
    made = _Made()
    top = made.object(kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"backfill: {by}",
        **top,
        "properties": {"schema": {"const": SCHEMA}, **top["properties"]},
        "required": ["schema", *top["required"]],
        "$defs": made.defs,
    }


class _Made:
    """The schema of each kind of value as `answers.plain` prints it. defs: of classes met so far, by name."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        origin, args = get_origin(kind), get_args(kind)
        if kind is Any:
            return {}
        if kind in SIMPLE:
            return {"type": SIMPLE[kind]}
        if kind is Hint:
            return {"anyOf": [self.named(Advice), {"type": "null"}]}
        if kind is Limit:
            return self.named(Limited)
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(one) for one in args]}
        if origin is Literal:
            return {"enum": list(args)}
        if origin is tuple and args[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [self.of(one) for one in args], "items": False}
        if inspect.isclass(origin) and issubclass(origin, Mapping):
            return {"type": "object", "propertyNames": self.of(args[0]), "additionalProperties": self.of(args[1])}
        if inspect.isclass(origin) and issubclass(origin, Sequence):
            return {"type": "array", "items": self.of(args[0])}
        return self.named(kind)

    def named(self, kind: type) -> Schema:
        if kind.__name__ not in self.defs:
            self.defs[kind.__name__] = {}  # holds its place: what is in it may be of the same class
            self.defs[kind.__name__] = self.object(kind) if is_dataclass(kind) else _codes(kind)
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def object(self, kind: type) -> Schema:
        """A dataclass: its fields and properties, all of them required."""
        hints = get_type_hints(kind)
        for name in members(kind):
            if name not in hints:
                hints[name] = get_type_hints(getattr(kind, name).fget)["return"]
        told = {name: self.of(hints[name]) for name in members(kind)}
        return {**_described(kind), "type": "object", "properties": told, "required": list(told)}


def _codes(kind: type) -> Schema:
    if not issubclass(kind, StrEnum):
        raise TypeError(f"{kind} has no form in JSON")
    return {**_described(kind), "enum": [code(one) for one in kind]}


def _described(kind: type) -> Schema:
    said = vars(kind).get("__doc__") or ""
    return {} if said.startswith(f"{kind.__name__}(") or not said else {"description": inspect.cleandoc(said)}
