"""Demos: each system end to end, with one failure on the way."""
