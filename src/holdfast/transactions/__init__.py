"""Transactions that jobs share with an application's own rows."""
