"""Inject random faults while jobs run, then account for every job: `make chaos`."""
