"""The snapshot side: pinned files, their splits and their rows."""
