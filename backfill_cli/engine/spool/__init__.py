"""A change log taken at once, kept durably, and read in peace: strategy chain. Start reading at `taker.py`."""
