"""`holdfast top`: everything at a glance, live."""
