"""A runner that looks into its sink at every checkpoint: python checked_runner.py FOLDER, of a job written there.

Each line of FOLDER/checked is what `pgbench.sums` found once an epoch was committed, written before anything else
happens; what a runner that was killed committed last, the next one looks at first. Nothing is looked at before
FOLDER/caught-up is there. BACKFILL_FAILPOINT kills as ever.
"""

import json
import sys
from pathlib import Path

from pgbench import sums


def main() -> None:
    from backfill_cli import failpoint
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import load
    from backfill_cli.engine.loop.run import start

    folder = Path(sys.argv[1])
    kill = failpoint.handler

    def look() -> None:
        if (folder / "caught-up").exists():
            with (folder / "checked").open("a") as out:
                out.write(json.dumps(sums(folder)) + "\n")

    def passed(name: str) -> None:
        if name == "after-commit":
            look()
        kill(name)

    failpoint.handler = passed
    look()
    start(load(folder / "job.toml"), Catalog(folder / "catalog.duckdb"), "forever", False, None)


if __name__ == "__main__":
    main()
