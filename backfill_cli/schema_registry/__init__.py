"""A schema registry that speaks Confluent's protocol: where topics keep the schemas that their records name by id.

`options.py` is what a config says, `registry.py` asks, `http.py` is one request, `wire.py` what stands before a
record's bytes.
"""
