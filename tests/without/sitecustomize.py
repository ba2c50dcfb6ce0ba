"""What every Python process of a test run begins with: tests, the commands that they start, and Spark's workers.

It is an environment without pandas: looking for it fails. And with `BACKFILL_HINTS`, each hint is recorded.
(A module of that name that raises is found half imported by a second thread, and one that is None by pyarrow.)
"""

import os
import sys


class NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


RECORDED = (
    "backfill_cli.errors",
    "backfill_cli.model.reports",
    "backfill_cli.model.cutover",
    "backfill_cli.view.console",
)


class HintsRecorded:
    """Once the errors, doctor's checks, gates, or what prints errors are imported, `hint_log` wraps them."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name not in RECORDED:
            return None
        from importlib.machinery import PathFinder

        from hint_log import wrapped

        spec = PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            spec.loader = wrapped(spec.loader)
        return spec


sys.meta_path.insert(0, NoPandas)  # type: ignore[arg-type]
if os.environ.get("BACKFILL_HINTS"):
    sys.meta_path.insert(0, HintsRecorded)  # type: ignore[arg-type]
