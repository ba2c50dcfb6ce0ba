"""A table of a job as its upstream sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableSpec:
    """key: source columns of the row's identity. immutable_key: promised never to change."""

    name: str
    key: tuple[str, ...]
    immutable_key: bool = False
