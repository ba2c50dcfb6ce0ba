"""A table that is set aside: the job goes on without it, and its rows in the sink stay as they were."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Cursor


class Standing(StrEnum):
    """What a table is to its job. BACK: a table of it whose rows are not right before its refill is done."""

    IN = "is in the job"
    ASIDE = "is set aside"
    BACK = "is being put back"


@dataclass(frozen=True, slots=True)
class Aside:
    """section, options, tables: its part of the config and of the upstream's options, and what the sink has of it,
    as JSON.

    since: the barrier at which it left, ms. epoch: the commit that its rows are at; 0 for none. reason, why: the
    error, in words, and as JSON with what to type, see `Limit.columns`. keeps: what the upstream still does or
    keeps for it; empty for nothing. position, schema, sink_schemas, memory: as of that commit, of the logs that
    are its own and of its tables, see Checkpoint. began: where its pin had these logs begin. pin: its part of the
    job's, as JSON, without the splits of a snapshot. refill: that puts it back: with it, it is a table of the job
    again, whose rows are not right before it is done; None before. exact: all rows had been read at that commit,
    or unread ones are in the log; with refill, this goes on after that commit: the refill only proves the rows.
    """

    table: str
    section: str
    options: str
    tables: str
    since: int
    epoch: int
    reason: str
    why: str | None = None
    keeps: str = ""
    position: Mapping[str, Cursor] = field(default_factory=dict)
    began: Mapping[str, Cursor] = field(default_factory=dict)
    schema: str = ""
    sink_schemas: Mapping[str, str] = field(default_factory=dict)
    memory: str = ""
    pin: str = ""
    refill: int | None = None
    exact: bool = False

    @property
    def cause(self) -> Limit:
        return Limit.stored(self.reason, self.why)

    @staticmethod
    def read(told: Mapping[str, Any]) -> "Aside":
        """As the codec reads it, without pydantic."""
        known = Aside.__dataclass_fields__
        return Aside(**{name: value for name, value in told.items() if name in known})


def spelled(tables: Iterable[Aside]) -> str | None:
    """As the catalog keeps them: JSON; None for none."""
    told = [{name: getattr(one, name) for name in Aside.__dataclass_fields__} for one in tables]
    return json.dumps(told, ensure_ascii=False) if told else None


def read(told: str | None) -> tuple[Aside, ...]:
    """What `spelled` wrote."""
    return () if told is None else tuple(map(Aside.read, json.loads(told)))


def out(tables: Iterable[Aside]) -> tuple[Aside, ...]:
    """Those of these that the job goes on without."""
    return tuple(one for one in tables if one.refill is None)


def standing(table: str, tables: Iterable[str], aside: Iterable[Aside]) -> Standing | None:
    """What a table is to a job with these tables; None: nothing. aside: see `JobDefinition`."""
    before = next((one for one in aside if one.table == table), None)
    if table in tables:
        return Standing.IN if before is None or before.refill is None else Standing.BACK
    return None if before is None else Standing.ASIDE


Section = tuple[str, str, str]
"""A table, and its part of the config and of the upstream's options, as JSON."""


def with_sections(tables: Iterable[Aside], sections: Iterable[Section]) -> tuple[Aside, ...]:
    """The same, which come back with these sections."""
    now = {table: (section, options) for table, section, options in sections}
    return tuple(
        replace(one, section=now[one.table][0], options=now[one.table][1])
        if one.table in now and one.refill is None
        else one
        for one in tables
    )


def put_back(one: Aside, refill: int, goes_on: bool) -> Aside:
    """goes_on: its log goes on after the commit that its rows are at, and the sink still has them."""
    return replace(one, refill=refill, exact=goes_on and one.exact)
