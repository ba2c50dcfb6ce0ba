"""What `backfill --version --verbose` prints below the version: Python, Java, Spark and other packages."""

import os

from backfill_cli.view.console import answer


def show_machine() -> None:
    from backfill_cli.engine.job.machine import SHOWN, checks

    for one in checks(os.environ, frozenset()):
        if one.name in ("python", "java", *SHOWN):
            answer(f"{one.name:<8}{one.said}")
