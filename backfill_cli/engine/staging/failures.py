"""What a failure of Spark, or of a worker, means to the user: asked of the source, of our own code, of the job."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backfill_cli.config import JobConfig
from backfill_cli.contracts import Source
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.files import no_room
from backfill_cli.errors import BackfillError
from backfill_cli.spark.failures import from_spark


@contextmanager
def explaining(source: Source, config: JobConfig, folder: Path | None = None) -> Iterator[None]:
    """A failure in the block, where rows of this source are read, is raised as ours; an unknown one as it is.

    folder: where the rows are written; None for the job's staging folder.
    """
    try:
        yield
    except BackfillError:
        raise
    except Exception as exc:
        folder = folder or Path(config.job.staging) / config.job.name
        # a source need not know the errors that our own code raised in its workers
        known = no_room(exc, folder) or source.failure(exc) or from_spark(exc) or transform.failure(exc, config)
        if known is None:
            raise
        raise known from exc
