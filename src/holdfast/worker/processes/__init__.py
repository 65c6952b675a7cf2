"""Child processes for handlers with executor="process": each runs one job at a time, and can be
killed. `pool` and `process` are the worker's side, `child` and `link` the child's."""
