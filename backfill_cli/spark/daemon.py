"""The process from which Spark's Python workers are forked in local mode, with all that they need already loaded.

A worker forked from Spark's own daemon takes 0.25 s of CPU to start (it loads pyarrow, and reads the directory of
pyspark.zip 16 times), from this one 0.01 s. Two workers start at the beginning, and one after each failed task.
"""

import gc
from typing import Any


def main() -> None:
    """Serves until Spark ends. Spark starts it: `python -m backfill_cli.spark.daemon pyspark.worker`."""
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401
    from pydantic import BaseModel, Field, field_validator, model_validator  # noqa: F401
    from pyspark import daemon

    from backfill_cli.spark.arrow_tasks import forget_zips

    forget_zips()
    gc.freeze()  # no worker's collector touches what is loaded, so its memory stays shared
    serving: Any = daemon
    serving.manager()


if __name__ == "__main__":
    main()
