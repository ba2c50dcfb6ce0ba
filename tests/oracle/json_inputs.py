"""JSON lines as Hypothesis draws them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st

from oracle.answer import Answer
from oracle.inputs import KEYS, Files, Input
from oracle.readers import json_lines


@dataclass(frozen=True)
class JsonCell(Input):
    """One file, one line, one value: `text` as JSON writes it, in a column of type `kind`."""

    kind: str
    text: str
    form: ClassVar[str] = "json"

    @property
    def schema(self) -> str:
        return f"id BIGINT, v {self.kind}"

    @property
    def options(self) -> Mapping[str, Any]:
        return {"upstream": {"type": "files", "snapshot": {"path": "in", "format": "json", "schema": self.schema}}}

    def files(self, number: int) -> Files:
        return {
            f"in/{number}.json": f'{{"id": {number * KEYS}, "v": {self.text}}}\n'.encode("utf-8", "surrogatepass")
        }

    def answer(self, number: int) -> Answer:
        return json_lines.read(self.files(number), self.schema)

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind,)


def cells() -> st.SearchStrategy[JsonCell]:
    whole = st.integers(-(2**65), 2**65).map(str)
    edge = st.sampled_from([str(s * 2**b + d) for b in (7, 15, 31, 63) for s in (-1, 1) for d in (-1, 0, 1)])
    text = st.text().map(json.dumps)
    return st.one_of(
        st.builds(JsonCell, st.sampled_from(["TINYINT", "SMALLINT", "INT", "BIGINT"]), whole | edge),
        st.builds(JsonCell, st.just("STRING"), text),
    )
