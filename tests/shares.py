"""Which process of a run takes which files: those that need the same servers run in the same process.

Tests wait for servers, those of a broker longest: three processes keep two cores busy. The first takes what
needs a broker, the third what needs a Spark session, the second everything else. Who has done its own
helps the second, whose last files need no server. No file is cut, a process has the files of a kind in the order
of collection, and few servers are started twice.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

BROKER, SPARK, OTHER = "broker", "spark", "other"
WISHES = ((BROKER, OTHER, SPARK), (OTHER, SPARK, BROKER), (SPARK, OTHER, BROKER))
"""Of the first, second and third process: what it takes first, what then, what last."""

LONGEST = "tests/unit/derived/test_derived_oracle.py"
"""Of those that need no server, the one that takes longest: the others waited two minutes for its end."""

TOLD = "kinds of files"
"""What each process is given: the file in which the first one tells them."""
_kinds = pytest.StashKey[Path]()


def tell_where(node: WorkerController) -> None:
    """A process is about to start."""
    if _kinds not in node.config.stash:
        node.config.stash[_kinds] = Path(tempfile.mkdtemp(prefix="backfill-shares-"), "kinds.json")
    node.workerinput[TOLD] = str(node.config.stash[_kinds])


def tell(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process that has collected all tests, before it says so."""
    given: Mapping[str, str] = getattr(config, "workerinput", {})
    if given.get("workerid") == "gw0":
        Path(given[TOLD]).write_text(json.dumps(kinds_of(items)))


def kinds_of(items: list[pytest.Item]) -> dict[str, str]:
    """Of each file, what its tests need."""
    needed: dict[str, set[str]] = {}
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        needed.setdefault(item.nodeid.split("::", 1)[0], set()).update(fixtures)
    return {
        file: BROKER if needs & {"broker", "schema_registry"} else SPARK if "spark" in needs else OTHER
        for file, needs in needed.items()
    }


class Shares(LoadFileScheduling):
    """Each process gets the next file of the kind that it wishes for most."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config)
        self._kinds: Mapping[str, str] = {}
        self._wishes: dict[WorkerController, tuple[str, ...]] = {}

    def schedule(self) -> None:
        told = self.config.stash[_kinds]
        if told.exists():  # all have collected
            self._kinds = json.loads(told.read_text())
            told.unlink()
            told.parent.rmdir()
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        wishes = self._wishes.setdefault(node, WISHES[len(self._wishes) % len(WISHES)])
        # the first of several: files are queued as they were collected
        chosen = min(self.workqueue, key=lambda file: (wishes.index(self._kinds[file]), file != LONGEST))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)
