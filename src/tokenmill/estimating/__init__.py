"""What an estimate is made from: a sample spread over the corpus, what is odd about it, and what a build of it costs."""
