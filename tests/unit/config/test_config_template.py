"""What `init` writes: every option of the connectors that it is told, and no fault once it is filled in."""

import re
from collections.abc import Callable

import pytest
from config_builders import config_text
from pydantic import BaseModel

from backfill_cli import config, registry
from backfill_cli.config import JobConfig
from backfill_cli.config.template import FILL_IN, kinds
from backfill_cli.errors import UsageError

Load = Callable[[str], JobConfig]

UPSTREAMS, SINKS = kinds(), registry.known(registry.SINKS)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that knows its tables' keys."""
    monkeypatch.setattr(
        config, "_primary_keys", lambda tree, upstream, tables: {table: ["id"] for table in tables}
    )


@pytest.mark.parametrize("full", [False, True], ids=["short", "full"])
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_template_has_no_fault(load_text: Load, upstream: str, sink: str, full: bool) -> None:
    told = load_text(config_text(upstream=upstream, sink=sink, full=full))
    assert told.job.name == "orders"
    assert told.tree["sink"]["type"] == sink
    assert told.tree["upstream"].get("type", upstream) == upstream


def test_there_is_one_for_every_pair_of_systems() -> None:
    assert set(UPSTREAMS) >= {"files", "kafka", "postgres", "files+kafka"}


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_template_names_every_option_with_its_meaning(upstream: str) -> None:
    text = config_text(upstream=upstream, full=True)
    one, _, other = upstream.partition("+")
    connector = registry.two_systems(one, other) if other else registry.upstream(one)
    for name in options(connector.options):
        assert re.search(rf"^(# )?({name} =|\[upstream[\w.]*\.{name}\]$)", text, re.MULTILINE), name


def options(model: type[BaseModel]) -> set[str]:
    """The names in a model and in the models that its options are."""
    found = set()
    for name, field in model.model_fields.items():
        found.add(field.alias or name)
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= options(kind)
    return found


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_what_is_commented_out_is_toml_with_known_options(load_text: Load, upstream: str) -> None:
    """Each default is written as it would be given."""
    import tomli

    text = config_text(upstream=upstream, sink="postgres", full=True)
    body = text.partition("[[tables]]")[0].partition("[upstream")
    lines = f"[upstream{body[2]}".splitlines()
    uncommented = [re.sub(r"^# (?=\[|\w+ = )", "", line) for line in lines]
    told = tomli.loads("\n".join(uncommented))
    if upstream == "files":
        assert told["upstream"]["snapshot"]["csv"]["header"] is True
        assert told["upstream"]["changes"]["csv"]["header"] is False


def test_what_is_to_be_filled_in_is_marked() -> None:
    text = config_text(upstream="postgres", sink="postgres")
    marked = [line.split(" = ")[0] for line in text.splitlines() if FILL_IN in line]
    assert marked == ["dsn", "slot", "name", "dsn"]
    assert 'key = ["id"]   # <- fill in' in config_text()
    assert "\nkey" not in config_text(upstream="kafka"), "an event's key is where it is"


def test_an_unknown_type_lists_those_there_are_nearest_first() -> None:
    with pytest.raises(UsageError, match="unknown upstream type 'postgers'; did you mean postgres"):
        config_text(upstream="postgers")
    with pytest.raises(UsageError, match="unknown sink type 'duckbd'; did you mean duckdb"):
        config_text(sink="duckbd")


def test_inits_help_names_every_connector() -> None:
    from backfill_cli.commands import init

    told = {"upstream": init.UpstreamOption, "sink": init.SinkOption}
    for group, option in ((registry.UPSTREAMS, told["upstream"]), (registry.SINKS, told["sink"])):
        said = option.__metadata__[0].help
        assert [kind for kind in registry.known(group) if kind not in said] == []
