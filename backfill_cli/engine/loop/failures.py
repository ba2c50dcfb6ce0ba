"""The transient failures of a run, counted where each is tried again."""

import threading
from collections.abc import Mapping

from backfill_cli.model.failures import cause_of, counted


class Failures:
    """by_cause: how many so far; see `model.failures`. Any thread may count one."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self.by_cause: Mapping[str, int] = {}

    def count(self, error: BaseException) -> None:
        with self._turn:
            self.by_cause = counted(self.by_cause, cause_of(error))
