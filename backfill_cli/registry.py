"""Connectors and formats by name, from the entry points `backfill.upstreams`, `.sinks` and `.decoders`.

Only what is requested is imported.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ConfigDict, Field, create_model

from backfill_cli.contracts import Pair, SinkConnector, TableSpec, UpstreamConnector
from backfill_cli.contracts.decoder import Decoder
from backfill_cli.errors import UsageError
from backfill_cli.model.units import spell_known

UPSTREAMS = "backfill.upstreams"
SINKS = "backfill.sinks"
DECODERS = "backfill.decoders"
_CONFIG = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, serialize_by_alias=True)


def upstream(kind: str) -> UpstreamConnector:
    """The upstream connector of that name. Raises UsageError listing the known ones, nearest first."""
    found = _find(UPSTREAMS, "upstream", kind).load()
    if not isinstance(found, UpstreamConnector):
        raise UsageError(f"upstream type {kind!r} does not name an UpstreamConnector", "reinstall its package")
    return found


@cache
def two_systems(snapshot: str, changes: str) -> UpstreamConnector:
    """The connector of an upstream whose snapshot is of one type and whose changes are of another.

    Its options are those of both sides (`snapshot`, `changes`). Raises UsageError for a type without such a side.
    """
    held, log = upstream(snapshot).snapshot, upstream(changes).changes
    if held is None:
        raise UsageError(
            f"a snapshot of type {snapshot!r} cannot be combined with changes of another type",
            "name two that can be combined, for example files and kafka",
        )
    if log is None:
        raise UsageError(
            f"changes of type {changes!r} cannot be combined with a snapshot of another type",
            "name two that can be combined, for example files and kafka",
        )
    options = create_model(
        "TwoSystems", __config__=_CONFIG, snapshot=(held.options, Field()), changes=(log.options, Field())
    )

    def opened(told: Any, tables: Sequence[TableSpec]) -> Pair:
        return Pair(held.open(told.snapshot, tables), log.open(told.changes, tables))

    def fingerprint(told: Any) -> Mapping[str, Any]:
        sides = {"snapshot": held.fingerprint(told.snapshot), "changes": log.fingerprint(told.changes)}
        types = {"snapshot": snapshot, "changes": changes}
        return {name: {"type": types[name], **side} for name, side in sides.items()}

    formats = (*upstream(snapshot).formats, *upstream(changes).formats)
    return UpstreamConnector(options, opened, fingerprint, formats=formats)


def pairs() -> tuple[tuple[str, str], ...]:
    """(the snapshot's type, the changes' type) of every possible upstream of two systems."""
    kinds = [(kind, upstream(kind)) for kind in known(UPSTREAMS)]
    return tuple(
        (one, other)
        for one, held in kinds
        for other, log in kinds
        if one != other and held.snapshot is not None and log.changes is not None
    )


def sink(kind: str) -> SinkConnector:
    """The sink connector of that name. Raises UsageError listing the known ones, nearest first."""
    found = _find(SINKS, "sink", kind).load()
    if not isinstance(found, SinkConnector):
        raise UsageError(f"sink type {kind!r} does not name a SinkConnector", "reinstall its package")
    return found


def decoder(kind: str) -> Decoder:
    """The format of that name. Raises UsageError listing the known ones, nearest first."""
    found: Decoder = _find(DECODERS, "format", kind).load()
    return found


def known(group: str) -> tuple[str, ...]:
    """The names installed under an entry point group, sorted."""
    return tuple(sorted({entry.name for entry in _installed(group)}))


@cache
def _every() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Read once per process: it opens a file of every installed package, and a start asks 13 times."""
    every = entry_points()
    return {group: tuple(every.select(group=group)) for group in (UPSTREAMS, SINKS, DECODERS)}


def _installed(group: str) -> tuple[EntryPoint, ...]:
    return _every()[group]


def _find(group: str, word: str, kind: str) -> EntryPoint:
    for entry in _installed(group):
        if entry.name == kind:
            return entry
    listed = spell_known(kind, known(group), "known") or "; none is installed"
    raise UsageError(
        f"unknown {word} type {kind!r}{listed}",
        "name one of them, or install the package that provides it",
    )
