"""A start on its way: a value, kept from before it holds anything upstream until its job is there."""

from dataclasses import dataclass

from backfill_cli.model.upstream import Pin


@dataclass(frozen=True, slots=True)
class Begun:
    """mark: part of a name that nobody else can have chosen. config: stored. pin: of which upstream."""

    job: str
    mark: str
    config: str
    pin: Pin
    begun_ms: int
