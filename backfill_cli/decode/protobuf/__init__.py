"""Protobuf: a registry's schema, and messages as documents, by columns or one by one as tokens.

A schema is text (`text.py`) or a serialized descriptor (`descriptors.py`); both become files (`files.py`), which
`types.py` links into message types. `connect.py` says what their fields become; `columns.py` reads a batch of
messages, `one.py` a single one.
"""
