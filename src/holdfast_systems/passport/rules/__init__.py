"""Rules: a small typed expression language over facts. No I/O."""
