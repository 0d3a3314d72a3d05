"""Files on this machine: atomic writes and locks."""
