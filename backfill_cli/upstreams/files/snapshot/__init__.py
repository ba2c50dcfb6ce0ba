"""The snapshot side: files held still, their splits, their rows."""
