"""Every test of a run is given to one process, its file whole, and first to the process that has its servers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shares import BROKER, LONGEST, OTHER, SPARK, WISHES, Shares, _kinds, kinds_of


class Process:
    """A process that does what it is given, one test at a time."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def fixture(file: str, name: str) -> Any:
    return SimpleNamespace(nodeid=f"{file}::test", fixturenames=[name])


def test_a_file_is_of_the_kind_that_the_most_of_its_servers_have() -> None:
    items = [fixture("a", "tmp_path"), fixture("b", "spark"), fixture("b", "broker"), fixture("c", "tmp_path")]
    items += [fixture("c", "spark"), fixture("d", "schema_registry"), fixture("e", "postgres")]
    assert kinds_of(items) == {"a": OTHER, "b": BROKER, "c": SPARK, "d": BROKER, "e": OTHER}


@given(
    files=st.lists(st.tuples(st.sampled_from([BROKER, SPARK, OTHER]), st.integers(1, 4)), min_size=1, max_size=12),
    processes=st.integers(1, 4),
    turns=st.lists(st.integers(0, 3), max_size=60),
)
def test_each_test_runs_once_in_one_process_with_its_file(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, int]], processes: int, turns: list[int]
) -> None:
    tests = [f"{file}.py::test_{n}" for file, (_, many) in enumerate(files) for n in range(many)]
    kinds = {f"{file}.py": kind for file, (kind, _) in enumerate(files)}
    told = tmp_path_factory.mktemp("told") / "kinds.json"
    told.write_text(json.dumps(kinds))
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(stash={_kinds: told}, option=option, getvalue=lambda _: ["popen"] * processes)
    shares = Shares(config)
    nodes: list[Any] = [Process(f"gw{n}") for n in range(processes)]
    for node in nodes:
        shares.add_node(node)
        shares.add_node_collection(node, tests)
    shares.schedule()
    assert not told.parent.exists()
    first = [kinds[tests[node.given[0]].split("::")[0]] for node in nodes if node.given]
    there = [kind for kind, _ in files]
    assert first[0] == min(there, key=WISHES[0].index)

    done: dict[Any, int] = dict.fromkeys(nodes, 0)
    for turn in [*turns, *range(processes * len(tests))]:
        node = nodes[turn % processes]
        # the last one that it knows of waits for the next or for the end
        if node in shares.nodes and done[node] < len(node.given) - (not node.shutting_down):
            shares.mark_test_complete(node, node.given[done[node]])
            done[node] += 1
    assert sorted(index for node in nodes for index in node.given) == list(range(len(tests)))
    assert shares.tests_finished
    for node in nodes:
        ran = [tests[index].split("::")[0] for index in node.given]
        assert all(ran.count(file) == sum(test.startswith(f"{file}::") for test in tests) for file in set(ran))


def test_the_longest_file_is_there_and_is_begun_before_the_others(tmp_path: Path) -> None:
    assert (Path(__file__).parents[1] / LONGEST).exists()
    told = tmp_path / "told" / "kinds.json"
    told.parent.mkdir()
    told.write_text(json.dumps({"a.py": OTHER, LONGEST: OTHER}))
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(stash={_kinds: told}, option=option, getvalue=lambda _: ["popen"])
    shares, node = Shares(config), Process("gw0")
    shares.add_node(node)  # type: ignore[arg-type]
    shares.add_node_collection(node, ["a.py::test", f"{LONGEST}::test"])  # type: ignore[arg-type]
    shares.schedule()
    assert node.given[0] == 1
