"""Rows -> batches: the same batches on any number of ranks, and after any number of restarts."""

from tokenmill.loading.api import load
from tokenmill.loading.loader import Loader
from tokenmill.loading.mixture import Mixture, mix

__all__ = ["Loader", "Mixture", "load", "mix"]
