"""What a job is and what may happen to it: pure, without input or output."""
