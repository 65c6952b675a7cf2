"""The seam to the machine: clocks, randomness, threads, event loops, waiting."""
