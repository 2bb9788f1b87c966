"""Learning a model from one answer of each device, in a few rounds."""
