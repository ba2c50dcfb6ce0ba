"""Fill a derived table from an upstream that keeps changing, then follow it, in control all the way."""

__version__ = "0.1.0"
