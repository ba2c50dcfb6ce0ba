"""The options of a config file as JSON Schema, derived from the models."""

from typing import Any

from pydantic import BaseModel

from backfill_cli import registry
from backfill_cli.config.sections import JobFile

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The JSON Schema of the file, with the installed connectors."""
    whole = JobFile.model_json_schema(by_alias=True)
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["title"] = "backfill job"
    for part in ("upstream", "sink"):
        kinds = [with_type(kind, model) for kind, model in options_by_type(part)]
        if part == "upstream":
            both = ((f"{one}+{other}", registry.two_systems(one, other)) for one, other in registry.pairs())
            kinds += [_named(kind, connector.options) for kind, connector in both]
        for kind in kinds:
            whole["$defs"] |= kind.pop("$defs")
        whole["properties"][part] = {"oneOf": kinds}
    return whole


def options_by_type(part: str) -> list[tuple[str, type[BaseModel]]]:
    """The types of `[upstream]` or `[sink]`, each with the model of its options."""
    if part == "upstream":
        return [(kind, registry.upstream(kind).options) for kind in registry.known(registry.UPSTREAMS)]
    return [(kind, registry.sink(kind).options) for kind in registry.known(registry.SINKS)]


def _named(kind: str, model: type[BaseModel]) -> Schema:
    """A model's schema, its parts prefixed with `kind`."""
    schema = model.model_json_schema(by_alias=True, ref_template=f"#/$defs/{kind}.{{model}}")
    schema["$defs"] = {f"{kind}.{name}": inner for name, inner in schema.get("$defs", {}).items()}
    return schema


def with_type(kind: str, model: type[BaseModel]) -> Schema:
    """A connector's schema with `type` fixed to its name, first."""
    schema = _named(kind, model)
    named = {"const": kind, "type": "string", "description": "Which connector."}
    schema["properties"] = {"type": named} | schema["properties"] | {"type": named}
    schema["required"] = sorted({"type", *schema.get("required", ())})
    return schema
