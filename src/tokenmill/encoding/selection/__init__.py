"""Engine selection, and the proof that an engine gives the ids of the reference."""
