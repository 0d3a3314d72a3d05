"""What a build did and does, from its events: a history, charts, and the panel that a page or a notebook shows."""
