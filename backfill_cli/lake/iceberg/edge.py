"""Maps Iceberg's errors to ours: those that come through Spark, and those of pyiceberg, which reads metadata."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import requests
from py4j.protocol import Py4JError
from pydantic import ValidationError
from pyiceberg import exceptions

from backfill_cli.errors import RETRIED, BackfillError, Fatal, Transient, in_config, retried
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.iceberg.types import OTHER_TYPE
from backfill_cli.lake.options import REFUSED_PROPERTY, blamed
from backfill_cli.spark.api import SparkSession
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
            else in_config(f"correct that in the table, or in [spark.conf] '{CATALOG}{place.catalog}.…'")
        )
        raise Fatal(f"table {place}: {cause_in(said)}{named}", hint) from exc


def run(spark: SparkSession, place: Place, statement: str) -> None:
    """Runs SQL that changes the table. Raises as `failing`."""
    place.register(spark)
    with failing(place):
        spark.sql(statement)


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


def unknown_type(place: Place, exc: Exception) -> Fatal | None:
    unknown = re.search(r"Unsupported field type: '([^']+)'", str(exc))
    if unknown is None:
        return None
    return Fatal(f"table {place}: it has a column of type {unknown[1]}, which is not supported", OTHER_TYPE)


class reading_metadata:
    """pyiceberg's failures become ours."""

    def __init__(self, place: Place) -> None:
        self._place, self._option = place, f"{CATALOG}{place.catalog}."

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if exc is None or isinstance(exc, BackfillError):
            return
        said = " ".join(str(exc).split())[:300]
        if (of_store := meant(f"table {self._place}", str(exc))) is not None:
            raise of_store from exc
        passing = (exceptions.ServerError, exceptions.ServiceUnavailableError, requests.ConnectionError)
        if isinstance(exc, (*passing, requests.Timeout)):
            raise Transient(
                f"table {self._place}: its catalog does not answer: {said}",
                in_config(retried(f"start it, or correct [spark.conf] '{self._option}uri'")),
            ) from exc
        if isinstance(exc, exceptions.UnauthorizedError | exceptions.ForbiddenError):
            raise Fatal(
                f"table {self._place}: its catalog refuses: {said}",
                in_config(
                    f"correct [spark.conf] '{self._option}credential', or '{self._option}token'; or "
                    "let its user read the table"
                ),
            ).of("") from exc
        if isinstance(exc, ValidationError | exceptions.ValidationError):
            wrong = unknown_type(self._place, exc)
            raise wrong or Fatal(f"table {self._place}: its metadata cannot be read: {said}", FROM_COPY) from exc
        if isinstance(exc, PermissionError):
            raise Fatal(f"table {self._place}: {said}", "give this user the right to read it").of("") from exc
        if isinstance(exc, OSError):
            raise Transient(f"table {self._place}: {said}", RETRIED) from exc
