"""Compares what the sink holds with what the upstream has."""
