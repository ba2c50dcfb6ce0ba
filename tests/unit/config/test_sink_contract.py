"""What somebody else's sink leaves out has a default, or is refused when the sink is opened, by name."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

import pytest
from hint_typed import typed
from pydantic import BaseModel

from backfill_cli import registry
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import Sink, SinkCapabilities, SinkConnector, SinkExtras
from backfill_cli.errors import UsageError

JOB = """
[job]
name = "j"
[upstream]
type = "files"
snapshot = {{ path = "x.parquet", format = "parquet" }}
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "toy"
wrong = "{wrong}"
"""


class ToyOptions(BaseModel):
    wrong: Literal["nothing", "unsaid", "flagged", "unfenced", "alien", "own"]


class Unsaid(Sink):
    """All that a sink must do, but not what it can do."""

    def prepare(self, *_: Any) -> None: ...
    def owner(self, job: str) -> Any: ...
    def own(self, *_: Any) -> None: ...
    def fence(self, *_: Any) -> None: ...
    def committed(self, job: str) -> Any: ...
    def commit(self, commit: Any) -> None: ...
    def saved(self, job: str) -> Any: ...
    def drop(self, tables: Any) -> None: ...
    def forget(self, job: str) -> None: ...


class Toy(Unsaid):
    capabilities = SinkCapabilities(transactional=True, partial=False)


class Unfenced(Sink):
    """Its author did not know that a second runner can begin while one commits."""

    capabilities = Toy.capabilities

    prepare = owner = own = committed = commit = saved = drop = Toy.prepare


class Flagged(Unsaid):
    """Its author remembers flags."""

    capabilities: Any = ("transactional",)


class Own(Unsaid):
    """What it can do depends on its options."""

    def __init__(self) -> None:
        self.capabilities = SinkCapabilities(transactional=False, partial=True)
        self.extras = SinkExtras(clock_ms=lambda: 5)


def _open(options: ToyOptions) -> Any:
    wrong = {"unsaid": Unsaid, "flagged": Flagged, "unfenced": Unfenced, "alien": object}
    return {"nothing": Toy, "own": Own, **wrong}[options.wrong]()


toy = SinkConnector(ToyOptions, _open, lambda _: {})


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    installed = registry._installed
    there = EntryPoint("toy", f"{__name__}:toy", registry.SINKS)
    monkeypatch.setattr(registry, "_installed", lambda group: (there, *installed(group)))

    def with_fault(wrong: str) -> JobConfig:
        (tmp_path / "job.toml").write_text(JOB.format(wrong=wrong))
        return load(tmp_path / "job.toml")

    return with_fault


@pytest.mark.parametrize(
    ("wrong", "what", "way_on"),
    [
        ("unsaid", "Unsaid.capabilities is None, no SinkCapabilities", "capabilities = SinkCapabilities(…)"),
        ("flagged", "Flagged.capabilities is .*, no SinkCapabilities", "capabilities = SinkCapabilities(…)"),
        ("unfenced", "Unfenced lacks fence, forget", "the docstrings of backfill_cli.contracts say what each"),
    ],
)
def test_a_sink_that_leaves_out_what_every_sink_must_do_is_refused(
    config: Any, wrong: str, what: str, way_on: str
) -> None:
    with pytest.raises(UsageError, match=f"^sink type 'toy': {what}\n") as refused:
        config(wrong).open_sink()
    with typed(refused.value) as hint:
        hint.says(way_on)
        config("nothing").open_sink()


def test_a_sink_may_say_what_it_can_do_once_it_is_made(config: Any) -> None:
    sink: Sink = config("own").open_sink()
    assert (sink.capabilities.partial, sink.extras.clock_ms and sink.extras.clock_ms()) == (True, 5)


def test_what_is_no_sink_is_refused(config: Any) -> None:
    with pytest.raises(UsageError, match=r"^sink type 'toy' opens a object, which is no Sink") as refused:
        config("alien").open_sink()
    with typed(refused.value) as hint:
        hint.says("update its package")
        config("nothing").open_sink()


def test_a_sink_that_says_nothing_more_has_none_of_what_only_some_can_do(config: Any) -> None:
    sink: Sink = config("nothing").open_sink()
    sink.use(pytest.fail)
    sink.check("j", (), False)
    assert (sink.places(()), sink.extras) == ({}, SinkExtras())
    assert sink.capabilities.logical_types == frozenset()
