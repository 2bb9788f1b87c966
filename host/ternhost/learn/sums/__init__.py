"""Learning from noisy sums of clipped gradients over the many records of a few boards."""
