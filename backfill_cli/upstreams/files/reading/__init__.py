"""Reads rows of Parquet, CSV and JSON files, for snapshots and change logs alike.

| reader | used for | who reports unexpected input |
| --- | --- | --- |
| workers write Arrow: formats/row_groups.py | Parquet snapshots (1) | the worker names it |
| Spark's own reader: formats/frames.py | other Parquet (2) | Spark raises, spark/failures.py names it |
| workers split texts, Spark types them: csv_files.py | CSV (3) | the expression names file and column |
| workers parse a block: json_rows.py | JSON of simple types (3) | the block takes the checked path |
| checked path: formats/json_values.py | all other JSON | the expression names file and line |

(1) Without a transform, if executors have this package; never for rows that an expression touches. (2) Any
Parquet. (3) If executors have this package; otherwise CSV is refused and JSON takes the checked path.
"""
