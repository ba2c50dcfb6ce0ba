"""The live log: its cluster, its growth, and the records of ranges of offsets.

| a record's way | taken for | on a surprise |
| --- | --- | --- |
| plain: read and written by one worker: plain.py | events of plain JSON, or bytes (1) | all go the third way |
| short: the worker parses it: reader.py | JSON of simple types | its batch goes the third way |
| careful: every guard: decode/ | all others | a fault beside the row: set aside, or the job stops |

(1) Without a transform the rows are written where they are read; with one Spark takes them on.
"""
