"""The marks that an option's type carries (`Secret`, `FilePath`), found by the option's path in a config."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from backfill_cli.config.faults import models_in

Steps = Sequence[str | int]


def marks_along(model: type[BaseModel] | None, path: Steps) -> Iterator[tuple[str, list[Any]]]:
    """For each name on a path below a model: the name and its marks; none where keys are free, or unknown."""
    models = [model] if model is not None else []
    for step in path:
        if isinstance(step, int):
            continue
        fields = [
            field for one in models for name, field in one.model_fields.items() if (field.alias or name) == step
        ]
        yield step, [mark for field in fields for mark in (*field.metadata, *_metadata(field.annotation))]
        models = [inner for field in fields for inner in models_in(field.annotation)]


def _metadata(annotation: Any) -> Sequence[Any]:
    """The marks anywhere in a type: `Annotated[str, Secret()] | None`."""
    own = list(getattr(annotation, "__metadata__", ()))
    return own + [mark for inner in get_args(annotation) for mark in _metadata(inner)]
