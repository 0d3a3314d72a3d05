"""For trainers that need more than an iterable of batches with `state_dict` and `load_state_dict`."""
