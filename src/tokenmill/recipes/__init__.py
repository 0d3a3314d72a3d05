"""One YAML file from sources to batches: checked as a whole before anything runs, then the same verbs as in Python."""

from tokenmill.recipes.api import Recipe, recipe

__all__ = ["Recipe", "recipe"]
