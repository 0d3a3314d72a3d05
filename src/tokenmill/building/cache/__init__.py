"""Stores that are found by what they hold: built, listed, removed, pruned, verified."""
