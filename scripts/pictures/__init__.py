"""Pictures of the command for the docs, recorded from real runs in a real terminal."""
