"""What the upstream holds for a job that no runner has: asked of the upstream itself, which it fills."""

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from backfill_cli.config import from_stored
from backfill_cli.contracts import HeldUpstream
from backfill_cli.errors import BackfillError

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.upstream import HeldLog


def held_without_runner(name: str, catalog: "Catalog", upstream: HeldUpstream) -> "HeldLog | None":
    """What it keeps for the job now; None where nothing is counted, or a runner has the job and sees to it.

    upstream: pinned, by somebody who only looks. Changes nothing. Raises what a run of the job would raise at its
    first look: HistoryGone for a slot that is gone, StateConflict for another database.
    """
    if catalog.job(name).live:
        return None
    definition = catalog.definition(name)
    try:
        return upstream.held(definition.pin, catalog.acknowledged(name))
    except BackfillError as error:
        raise error.naming(name, definition.has_tables_to_itself) from None


def held_now(name: str, catalog: "Catalog") -> "HeldLog | None":
    """As `held_without_runner`, of the upstream that the catalog has for the job. Spark does not start."""
    with closing(from_stored(catalog.definition(name).config).open_upstream()) as upstream:
        if not isinstance(upstream, HeldUpstream):
            return None
        upstream.pin()
        return held_without_runner(name, catalog, upstream)


def told_by_upstreams(names: Iterable[str], catalog: "Catalog") -> "dict[str, HeldLog | BackfillError]":
    """By job what it is told by `held_now`, or why it is told nothing."""
    found: dict[str, HeldLog | BackfillError] = {}
    for name in names:
        try:
            held = held_now(name, catalog)
        except BackfillError as error:
            found[name] = error
        else:
            if held is not None:
                found[name] = held
    return found
