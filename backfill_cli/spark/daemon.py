"""The process that Spark's Python workers are forked from in local mode: it has loaded what each of them needs.

Forked from Spark's own daemon a worker takes 0.25 s of CPU to begin (it loads pyarrow, and reads the directory of
pyspark.zip 16 times), from this one 0.01 s. New workers begin after each task that failed, and two at the start.
"""

import gc
from typing import Any


def main() -> None:
    """Serve until Spark ends. Spark calls it: `python -m backfill_cli.spark.daemon pyspark.worker`."""
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401
    from pydantic import BaseModel, Field, field_validator, model_validator  # noqa: F401
    from pyspark import daemon

    from backfill_cli.spark.arrow_tasks import forget_zips

    forget_zips()
    gc.freeze()  # what is loaded stays shared: no worker's collector touches it
    serving: Any = daemon
    serving.manager()


if __name__ == "__main__":
    main()
