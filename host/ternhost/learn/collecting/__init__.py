"""Means, frequencies and sums of what devices hold."""
