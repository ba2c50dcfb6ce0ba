"""Rows of Parquet, CSV and JSON files, for snapshots and change logs alike.

| path of a row | taken for | what is not as expected |
| --- | --- | --- |
| workers write Arrow: snapshot/row_groups.py | Parquet snapshots (1) | the worker names it |
| Spark's own reader: formats/frames.py | other Parquet (2) | Spark raises, spark/failures.py names it |
| workers split texts, Spark types them: csv_files.py | CSV (3) | the expression names file and column |
| workers parse a block: json_rows.py | JSON of simple types (3) | the block takes the checked path |
| checked path: formats/json_values.py | all other JSON | the expression names file and line |

(1) without a transform, where executors have this package; never rows that an expression touches. (2) Any Parquet.
(3) Where executors have this package; else CSV is refused and JSON takes the checked path.
"""
