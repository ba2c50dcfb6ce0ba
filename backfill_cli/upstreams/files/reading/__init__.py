"""Reads rows of Parquet, CSV and JSON files, for snapshots and change logs alike.

| reader | used for | who reports unexpected input |
| --- | --- | --- |
| workers write Arrow: formats/row_groups.py | Parquet snapshots (1) | the worker names it |
| Spark's own reader: formats/frames.py | other Parquet | Spark raises, spark/failures.py names it |
| workers decode records: csv_files.py, json_rows.py | CSV and JSON (2) | the worker names file, line and key |

(1) Without a transform, if executors have this package; never for rows that an expression touches. (2) Executors
need this package.
"""
