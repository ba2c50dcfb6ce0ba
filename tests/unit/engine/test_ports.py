"""What a sink is not given: rows that it would write with NULLs, a truncate that it would leave out."""

from types import SimpleNamespace
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.contracts import SinkCapabilities
from backfill_cli.engine.loop.ports import require_taken
from backfill_cli.errors import BadData
from backfill_cli.model.plan import Staged, StagedTable

WHOLE = StagedTable(changed=1)


def sink(partial: bool) -> Any:
    return SimpleNamespace(capabilities=SinkCapabilities(transactional=True, partial=partial))


def test_a_sink_of_whole_rows_is_given_no_others() -> None:
    staged = Staged("a", {"orders": WHOLE, "notes": StagedTable(changed=1, partial=("body", "more"))})
    said = r"table 'notes': changes leave out the value of body, more, .* writes whole rows"
    with pytest.raises(BadData, match=said) as refused:
        require_taken(sink(partial=False), staged)
    with typed(refused.value) as hint:
        assert hint.statements() == ["ALTER TABLE notes REPLICA IDENTITY FULL"]
        assert refused.value.hint.starts_over
        require_taken(sink(partial=False), Staged("b", {"notes": WHOLE}))
    require_taken(sink(partial=True), staged)


def test_a_sink_that_cannot_empty_a_table_is_given_no_truncate() -> None:
    staged = Staged("a", {"orders": StagedTable(truncated=True)})
    with pytest.raises(BadData, match="table 'orders': it was truncated, which the sink cannot apply") as refused:
        require_taken(sink(partial=False), staged)
    with typed(refused.value) as hint:
        hint.says("start over")
        require_taken(sink(partial=False), Staged("b", {"orders": WHOLE}))
    require_taken(sink(partial=True), staged)
