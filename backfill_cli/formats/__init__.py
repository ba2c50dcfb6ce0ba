"""Formats and decoding that several connectors share."""
