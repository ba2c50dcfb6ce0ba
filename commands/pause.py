"""`backfill pause`: stop every read that ends in the sink; barriers go on."""

from backfill_cli.model.job import Verb

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption
from ._posting import post


def pause(
    job: JobArgument = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Stop reading at the next barrier; the job stays and can be resumed."""
    post(catalog, job, Verb.PAUSE, rate=None, wait=wait, timeout=timeout, as_json=as_json)
