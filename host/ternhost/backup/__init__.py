"""Backups of a host: one archive with everything that it needs to go on elsewhere."""
