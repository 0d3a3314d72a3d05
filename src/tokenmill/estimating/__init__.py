"""What a build would produce and cost, estimated from a sample of the corpus, with warnings about unusual text."""
