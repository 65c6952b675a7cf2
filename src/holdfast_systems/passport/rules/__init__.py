"""Rules: a small typed expression language over facts. Nothing here does I/O."""
