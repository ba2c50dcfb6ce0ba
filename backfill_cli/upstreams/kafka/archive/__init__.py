"""An archive of the log: which file holds which offsets, and their rows."""
