"""An oracle that shares no code with the product: what an input holds, told by a small reader in plain Python.

An **input** is one generated upstream: the bytes of its files and the options that a config would give them. A
**reader** (`readers/`) answers for it either `Rows`, exactly these, or `Refused`, because no exact rows exist. A
**route** (`routes.py`) is one way by which rows travel through the product; each ends in a DuckDB file, through
the real staging and the real sink, and is read back by DuckDB. `judge.py` compares: exact and typed rows, or a
refusal of ours (`BackfillError`) that names the place. Anything else, a traceback too, is a finding.

Of the product only what drives it is imported, by `jobs.py`, `judge.py` and the routes: never a reader.

To add a form of input (a change format, Kafka records):

1. A reader: a function `(files, options) -> Rows | Refused`, in `readers/<form>.py`; values are those of
   `plain.py`.
2. A subclass of `Input` (`inputs.py`): `form`, `options` (the tables `[upstream]` and `[transform]` of the
   config, with paths relative to the job's folder), `files(number)` and `answer(number)`. `number` tells an
   input from its neighbours in a batch: its keys lie in `number * KEYS … number * KEYS + KEYS - 1`, its file
   names begin with it.
3. A Hypothesis strategy of such inputs; `inputs.generated(strategy, count)` draws them, the same in every run
   (in other runs others with BACKFILL_ORACLE_SEED, more with BACKFILL_ORACLE_TIMES).
4. Its routes: functions `(Batch, SparkSession) -> None` decorated by `routes.route(name, forms…, covers=…)`,
   which leave the rows in `batch.sink`; `jobs.loaded(config, spark, plans)` does the work.
5. A test that gives both to `judge.judge(route, inputs, spark)` and asserts that there are no findings.

Inputs whose answer is `Rows` travel many in one job; where such a job differs or is refused it is halved until
the input that differs stands alone, and that is made smaller by Hypothesis. Inputs that must be refused travel
alone. `typed.py` collects what was measured by route and type: `docs/types.md`.
"""
