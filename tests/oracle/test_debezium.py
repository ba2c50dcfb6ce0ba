"""Change files of Debezium by every way: exactly the table that plain Python makes of them."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from oracle import changes_routes, debezium_avro_inputs, debezium_inputs, judge
from oracle.debezium_inputs import MANNERS
from oracle.inputs import SEED, TIMES, Drawn
from oracle.routes import of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

assert changes_routes


EACH = [pytest.param(manner, False, id="-".join(told)) for manner, told in enumerate(MANNERS)]
TRANSFORMED = [
    pytest.param(manner, True, id="-".join(told) + "-transformed", marks=[pytest.mark.long] if manner else [])
    for manner, told in enumerate(MANNERS)
]


@pytest.mark.parametrize(("manner", "transformed"), [*EACH, *TRANSFORMED])
def test_logs_of_debezium(
    spark: "SparkSession", manner: int, transformed: bool, judged: Callable[[int], None]
) -> None:
    chance = random.Random(SEED + manner)
    unit, form = MANNERS[manner]
    pool = debezium_inputs.pools(unit, form, 60)
    logs = [
        debezium_inputs.log(chance, pool, manner, transformed)
        for _ in range(int((60 if form == "block" else 160) * TIMES))
    ]
    whole, told = debezium_inputs.merged(logs), []
    for way in of("debezium")[: 1 if transformed or unit == "ns" else None]:
        measured = judge.judge(way, [Drawn(whole)], spark)
        judged(len(logs))
        told += measured.findings
    assert not told, "\n\n".join(str(one)[:6000] for one in told)


def test_logs_of_debezium_in_avro(spark: "SparkSession", judged: Callable[[int], None]) -> None:
    chance, manner = random.Random(SEED), next(i for i, (_, form) in enumerate(MANNERS) if form == "block")
    pool = debezium_inputs.pools(*MANNERS[manner], 60)
    logs = [debezium_inputs.log(chance, pool, manner, False) for _ in range(int(60 * TIMES))]
    whole = debezium_avro_inputs.of(debezium_inputs.merged(logs))
    measured = judge.judge(of("debezium")[0], [Drawn(whole)], spark)
    judged(len(logs))
    assert not measured.findings, "\n\n".join(str(one)[:6000] for one in measured.findings)
