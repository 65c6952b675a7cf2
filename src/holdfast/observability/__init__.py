"""Logs, metrics and traces of the engine."""
