"""What a plug-in says of itself: what cannot be is refused when it is opened, by name."""

from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from hint_typed import typed
from pydantic import BaseModel

from backfill_cli import registry
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import (
    BrokenContract,
    Capabilities,
    ChangeLog,
    ConsumableLog,
    Current,
    Extras,
    Pair,
    Pinned,
    Source,
    UpstreamConnector,
)
from backfill_cli.errors import UsageError

JOB = """
[job]
name = "j"
[upstream]
type = "toy"
log = "{log}"
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "duckdb"
path = "s.duckdb"
"""


class ToyOptions(BaseModel):
    log: Literal["consumed", "flag", "read", "unsaid", "alien", "unread", "silent"]


class Consumed(ConsumableLog):
    def take(self, *_: Any) -> Any: ...


class Toy(Source):
    """Shows only its current state, and has a log that can be read by itself: its author knows no other."""

    def __init__(self, options: ToyOptions) -> None:
        reads: Any = {
            "consumed": lambda: Current(Consumed()),
            "flag": lambda: Current(True),  # type: ignore[arg-type]
            "read": lambda: Current(self),  # type: ignore[arg-type]
            "unsaid": lambda: True,
        }[options.log]()
        self.capabilities = Capabilities(reads, before_images=True, one_log=True)

    def pin(self) -> Any: ...
    def restore(self, pin: Any) -> None: ...
    def observe(self, *_: Any) -> Any: ...
    def scan(self, *_: Any) -> Any: ...
    def changes(self, *_: Any) -> Any: ...


class Unread(Source):
    """Says neither how its rows are read, nor what its log has."""

    capabilities = Capabilities(Pinned(), before_images=True, one_log=True)

    pin = restore = Toy.pin


class Silent(Toy):
    def __init__(self, options: ToyOptions) -> None:
        """Leaves out what it can do."""


def _open(options: ToyOptions, _tables: Any) -> Any:
    others = {"alien": object, "unread": Unread, "silent": lambda: Silent(options)}
    return others.get(options.log, lambda: Toy(options))()


toy = UpstreamConnector(ToyOptions, _open, lambda _: {})


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    installed = registry._installed
    there = EntryPoint("toy", f"{__name__}:toy", registry.UPSTREAMS)
    monkeypatch.setattr(registry, "_installed", lambda group: (there, *installed(group)))

    def with_log(log: str) -> JobConfig:
        (tmp_path / "job.toml").write_text(JOB.format(log=log))
        return load(tmp_path / "job.toml")

    return with_log


@pytest.mark.parametrize(("log", "what"), [("flag", "bool"), ("read", "Toy")])
def test_current_rows_without_a_log_that_is_taken_together_with_them_are_refused(
    config: Any, log: str, what: str
) -> None:
    """Read by itself, such a log would apply changes to rows that are not there yet, and lose them."""
    with pytest.raises(UsageError, match=rf"^upstream type 'toy': .* {what} is no ConsumableLog") as refused:
        config(log).open_upstream()
    with typed(refused.value) as hint:
        hint.says("with its own subclass of ConsumableLog")
        assert config("consumed").open_upstream().capabilities.log is not None


def test_a_log_that_cannot_be_taken_is_no_consumable_log() -> None:
    class Unfinished(ConsumableLog): ...

    with pytest.raises(BrokenContract, match="Unfinished lacks take"):
        Unfinished()  # type: ignore[abstract]


def test_a_source_has_to_say_how_its_rows_are_read(config: Any) -> None:
    with pytest.raises(TypeError, match="reads"):
        Capabilities(before_images=True, one_log=True)  # type: ignore[call-arg]
    with pytest.raises(
        UsageError, match=r"^upstream type 'toy': it does not say how its rows can be read"
    ) as refused:
        config("unsaid").open_upstream()
    with typed(refused.value) as hint:
        hint.says("Capabilities(Pinned(), …), or Current(log), or Partitions(place)")
        config("consumed").open_upstream()


@pytest.mark.parametrize(
    ("log", "what", "way_on"),
    [
        ("unread", "Unread lacks batches or scan, observe", "the docstrings of backfill_cli.contracts say"),
        ("silent", "Silent.capabilities is None, no Capabilities", "capabilities = Capabilities(…)"),
    ],
)
def test_a_source_that_leaves_out_what_it_must_have_is_refused(
    config: Any, log: str, what: str, way_on: str
) -> None:
    with pytest.raises(UsageError, match=f"^upstream type 'toy': {what}\n") as refused:
        config(log).open_upstream()
    with typed(refused.value) as hint:
        hint.says(way_on)
        config("consumed").open_upstream()


def test_rows_that_workers_do_not_produce_need_a_scan() -> None:
    class Produced(Source):
        capabilities = Capabilities(Pinned(), before_images=True, one_log=True)
        pin = restore = observe = changes = Toy.pin

        def batches(self, *_: Any) -> Any:
            return None

    class Scanned(Produced):
        scan = Toy.scan

    session: Any = SimpleNamespace(conf={})
    with pytest.raises(BrokenContract, match="Produced lacks scan: its batches give nothing") as refused:
        Produced().scan(session, "t", [])
    with typed(refused.value) as hint:
        hint.says("write scan, too, for what batches cannot produce")
        Scanned().scan(session, "t", [])


def test_a_log_is_read_in_one_of_two_ways() -> None:
    class Unread(ChangeLog):
        begin = restore = observe = Toy.pin

    class InWorkers(Unread):
        change_batches = Toy.changes

    with pytest.raises(BrokenContract, match="Unread lacks change_batches or changes"):
        Unread()
    InWorkers()


def test_what_is_no_source_is_refused(config: Any) -> None:
    with pytest.raises(UsageError, match="'toy' opens a object, which is no Source") as refused:
        config("alien").open_upstream()
    with typed(refused.value) as hint:
        hint.says("update its package")
        config("consumed").open_upstream()


def test_a_snapshot_beside_a_log_is_not_asked_for_its_rows_at_a_position_of_that_log() -> None:
    """A cursor has a meaning only for the side that created it."""
    extras = Extras(rows_at=lambda *_: cast(Any, None), duckdb_sql=lambda *_: "SELECT 1")
    side = SimpleNamespace(keeps="files", extras=extras)
    says = {"before_images": True, "one_log": True, "apart": True, "correctable": False}
    log = SimpleNamespace(keeps="a topic", extras=Extras(), **says)
    pair = Pair(cast(Any, side), cast(Any, log))
    assert (pair.extras.rows_at, pair.extras.duckdb_sql) == (None, extras.duckdb_sql)
