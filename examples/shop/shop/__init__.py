"""A small web shop, with Holdfast for everything that happens after the click."""
