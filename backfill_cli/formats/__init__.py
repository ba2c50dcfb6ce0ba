"""Decoding that several upstreams share."""
