"""Connectors by name, from the entry points `backfill.upstreams` and `backfill.sinks`.

Only the one asked for is imported.
"""

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from backfill_cli.contracts import SinkConnector, UpstreamConnector
from backfill_cli.errors import UsageError

UPSTREAMS = "backfill.upstreams"
SINKS = "backfill.sinks"


def upstream(kind: str) -> UpstreamConnector:
    """The upstream connector of that name. Raises UsageError listing the known ones, nearest first."""
    found = _find(UPSTREAMS, "upstream", kind).load()
    if not isinstance(found, UpstreamConnector):
        raise UsageError(f"upstream type {kind!r} does not name an UpstreamConnector", "reinstall its package")
    return found


def sink(kind: str) -> SinkConnector:
    """The sink connector of that name. Raises UsageError listing the known ones, nearest first."""
    found = _find(SINKS, "sink", kind).load()
    if not isinstance(found, SinkConnector):
        raise UsageError(f"sink type {kind!r} does not name a SinkConnector", "reinstall its package")
    return found


def known(group: str) -> tuple[str, ...]:
    """The names installed under an entry point group, sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def nearest_first(name: str, names: tuple[str, ...]) -> list[str]:
    """`names` with those that look like `name` in front."""
    near = get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
    return near + [other for other in names if other not in near]


def _find(group: str, word: str, kind: str) -> EntryPoint:
    for entry in entry_points(group=group):
        if entry.name == kind:
            return entry
    listed = ", ".join(nearest_first(kind, known(group))) or "none installed"
    raise UsageError(f"unknown {word} type {kind!r}; known: {listed}")
