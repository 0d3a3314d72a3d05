"""Which engine to use for a tokenizer: probes, trials, the race and the cached verdicts."""
