"""Hints that there is something to do. The database is the only truth; these make it faster."""
