"""The machine: clocks, randomness, threads, event loops, waiting."""
