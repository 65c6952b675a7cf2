"""A small but real AppServer that fits a house on a plot."""
