"""Whole numbers in big-endian two's complement, as binary encodings write decimals, as columns."""

import numpy as np
import pyarrow as pa


def decimals(raw: pa.Array, scale: int) -> pa.Array:
    """BINARY values of 1 to 16 bytes as DECIMAL(38, scale), which may have more digits than that; else NULL."""
    if raw.offset:
        raw = raw.take(pa.array(np.arange(len(raw))))
    _, offsets, data = raw.buffers()
    ends = np.frombuffer(offsets, np.int32, len(raw) + 1).astype(np.int64)
    sizes = np.diff(ends)
    taken = (sizes > 0) & (sizes <= 16)
    if not taken.all():
        sizes = np.where(taken, sizes, 0)
    digits = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    sign = np.where(digits[np.minimum(ends[:-1], len(digits) - 1)] > 127, 255, 0).astype(np.uint8)
    numbers = np.repeat(sign, 16).reshape(len(raw), 16)
    for i in range(int(sizes.max(initial=0))):
        those = np.flatnonzero(sizes > i)
        numbers[those, i] = digits[ends[1:][those] - 1 - i]
    there = pa.array(taken) if raw.null_count == 0 else pa.array(taken & raw.is_valid().to_numpy(False))
    kind = pa.decimal128(38, scale)
    return pa.Array.from_buffers(kind, len(raw), [there.buffers()[1], pa.py_buffer(numbers)])
