"""A change log taken promptly, kept durably, and applied later: strategy chain. Start reading at `taker.py`."""
