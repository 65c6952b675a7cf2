"""Leases over HTTP, for workers in any language."""
