"""Processes: children that run handlers with executor="process", workers that a worker or the
supervisor starts, and the warden. Of a child, `pool` and `process` are the worker's side, `child`
and `link` the child's."""
