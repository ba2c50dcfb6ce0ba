"""Reads rows of Parquet, CSV and JSON files, for snapshots and change logs alike.

| reader | used for | who reports unexpected input |
| --- | --- | --- |
| workers read Arrow: parquet_rows.py | Parquet (1) | the worker names file, row and key |
| Spark's own reader: formats/frames.py | other Parquet | Spark raises, spark/failures.py names it |
| workers decode records: csv_files.py, json_rows.py | CSV and JSON (2) | the worker names file, line and key |

(1) A snapshot without a transform, and all rows where those that cannot be read are quarantined; if executors have
this package, and no old Spark wrote the files. (2) Executors need this package.
"""
