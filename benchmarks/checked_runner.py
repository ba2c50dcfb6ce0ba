"""A runner that checks its sink at every checkpoint: python checked_runner.py FOLDER, with a job written there.

Each line of FOLDER/checked is what `pgbench.sums` found after an epoch was committed, written before anything
else happens; the last commit of a killed runner is checked first by the next one. Nothing is checked before
FOLDER/caught-up exists. BACKFILL_FAILPOINT kills as usual.
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
