"""What the engine says of itself."""
