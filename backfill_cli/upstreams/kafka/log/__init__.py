"""The live log: its cluster, its growth, and the records of ranges of offsets.

| path of a record | used for | a record that is not as expected |
| --- | --- | --- |
| plain: one worker reads and writes it: plain.py | events of plain JSON, or bytes (1) | is read again: checked |
| fast: the worker parses it: reader.py | JSON of simple types | its batch takes the checked path |
| checked: every check in Spark: decode/ | all others | the row gets a fault: quarantined, or the job stops |

(1) Without a transform the rows are written where they are read; with one they pass through Spark.
"""
