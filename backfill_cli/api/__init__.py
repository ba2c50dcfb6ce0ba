"""A job from Python: `Job`, and what both it and the commands call. Nothing here prints or parses."""
