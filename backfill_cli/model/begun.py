"""A start in progress, as a value: kept from before it holds anything upstream until its job exists."""

from dataclasses import dataclass

from backfill_cli.model.upstream import Pin


@dataclass(frozen=True, slots=True)
class Begun:
    """mark: part of a name that nobody else can have chosen. config: as stored. pin: identifies the upstream."""

    job: str
    mark: str
    config: str
    pin: Pin
    begun_ms: int
