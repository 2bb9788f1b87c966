"""Estimates by simulation what a fleet can learn: `tern plan`."""
