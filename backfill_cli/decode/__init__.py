"""Formats of records and lines: raw bytes to rows as Arrow, in the worker that reads them (contracts/decoder.py).

| module | what it is |
| --- | --- |
| `avro` | Avro: records of a known schema by columns, and one by one |
| `cursors` | a position in each of many binary records: numbers, texts, ranges and branches of all at once |
| `tokens` | JSON without loss: numbers as they are written |
| `stored` | plain Python values as Arrow arrays of a column's type |
| `encodings` | how the values of a column are written |
| `values` | a JSON value or a text as a column's value, exactly, or `Unreadable` |
| `arrow_json` | Arrow's parser for a batch of objects, and which of them it cannot take |
| `arrow_values` | `values` for whole columns |
| `texts` | columns of text, as in CSV |
| `json_rows`, `debezium`, `plain` | the formats |
| `block`, `connect` | Debezium's schema block: its columns, and Kafka Connect's types |
| `debezium_forms` | which options records without a block need |
| `source_table`, `unsent`, `order` | an envelope's table, values that were not sent, keys that are checked late |
| `rows` | what formats share whose records are rows |
| `upserts` | rows by key: the newest of a key, tombstones |
"""
