"""Rows -> batches: the same ones on any number of ranks, after any number of restarts."""

from tokenmill.loading.loader import Loader
from tokenmill.loading.mixture import Mixture, mix
from tokenmill.loading.opening import load

__all__ = ["Loader", "Mixture", "load", "mix"]
