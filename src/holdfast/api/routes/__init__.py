"""The routes, one module per noun, as on the command line."""
