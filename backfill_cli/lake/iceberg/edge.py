"""Maps Iceberg's errors that come through Spark to ours."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from backfill_cli.errors import RETRIED, BackfillError, Fatal, Transient
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.options import REFUSED_PROPERTY, blamed
from backfill_cli.spark.beside import CATALOG
from backfill_cli.spark.failures import cause_in, from_spark
from backfill_cli.spark.object_store import meant


class Moved(Transient):
    """Another writer committed to the table meanwhile: read it again."""


@contextmanager
def failing(
    place: Place,
    properties: Mapping[str, str] | None = None,
    fault: Callable[[], BackfillError | None] = lambda: None,
) -> Iterator[None]:
    """Iceberg's failures inside become ours; Moved for those caused by another commit.

    properties: those that the config gives to the table, of which an error names the one that it is about. fault:
    what is wrong with the table's files.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except BackfillError:
        raise
    except (PySparkException, Py4JError) as exc:
        said = str(exc)
        if any(text in said for text in _MOVED):
            raise Moved(cause_in(said)) from exc
        known = meant(f"table {place}", said) or from_spark(exc)
        if known is not None:
            raise known from exc
        if any(text in said for text in _PASSING):
            raise Transient(f"table {place}: {cause_in(said)}", RETRIED) from exc
        if (found := fault()) is not None:
            raise found from exc
        named = blamed(said, properties or {})
        hint = (
            REFUSED_PROPERTY
            if named
            else f"correct that in the table, or in [spark.conf] '{CATALOG}{place.catalog}.…'"
        )
        raise Fatal(f"table {place}: {cause_in(said)}{named}", hint) from exc


_MOVED = (
    "Cannot fast-forward",
    "is not an ancestor",
    "Cannot use branch (does not exist)",
    "Ref does not exist",
    "CommitFailedException",
    "Requirement failed",
    "Cannot commit",
)
_PASSING = ("ConnectException", "SocketTimeoutException", "ServiceUnavailable", "No space left on device")
