"""What operators do: one module for each noun of the command line."""
