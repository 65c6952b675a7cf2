"""An AppServer that fits a house on a plot: small, and real."""
