"""What is dropped with a job's tables: the whole table, or only the job's branch of a table that people query."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from backfill_cli.errors import UsageError
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.state import Claim, JobRecord, JobState, jobs
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.iceberg.heads import Head


def statement(place: Place, branch: str | None) -> str:
    """The statement that drops it. branch: the job's, None if the whole table is the job's."""
    if branch is None:
        return f"DROP TABLE IF EXISTS {place.sql} PURGE"
    return f"ALTER TABLE {place.sql} DROP BRANCH IF EXISTS {branch}"


def claims_on(folder: Blobs | None, places: Collection[Place]) -> Iterator[tuple[JobRecord, Mapping[str, Claim]]]:
    """The jobs with claims on these places, and those claims."""
    for record in jobs(folder) if folder is not None else []:
        going = {table: claim for table, claim in record.claims.items() if Place.of(claim.place) in places}
        if going:
            yield record, going


Going = Iterable[tuple[JobRecord, Mapping[str, Claim]]]


def refuse_live(going: Going, held: Callable[[Claim], Head | None], queried: Collection[Place]) -> None:
    """Raises UsageError for a table that was cut over: people query the job's rows.

    queried: the places where only a branch is the job's. Side tables are the job's as a whole.
    """
    for record, claims in going:
        for table, claim in claims.items():
            head = held(claim) if Place.of(claim.place) in queried or table in record.cuts else None
            if head is not None and head.is_live:
                raise UsageError(
                    f"{claim.place} was cut over: queries of it see the rows of job {record.job!r}",
                    f"backfill cutover {record.job} --reverse, then drop it; or forget the job and keep the rows: "
                    f"backfill drop {record.job} --confirm {record.job}",
                )


def keep_markers(state: JobState, going: Collection[str], markers: Mapping[str, Marker]) -> None:
    """The job's record holds the markers of tables that are about to be dropped."""
    dropped = {table: markers[table] for table in going if table in markers}

    def kept(known: JobRecord | None) -> JobRecord:
        assert known is not None
        return replace(known, dropped={**known.dropped, **dropped})

    state.change(kept)
