"""Bounded, idempotent steps that any worker may run; there is no leader."""
