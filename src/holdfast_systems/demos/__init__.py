"""Demonstrations: each system's line from end to end, with one failure on the way."""
