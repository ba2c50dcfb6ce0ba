"""A table of a job as its upstream sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableSpec:
    """key: source columns that identify a row. immutable_key: the key is promised never to change."""

    name: str
    key: tuple[str, ...]
    immutable_key: bool = False
