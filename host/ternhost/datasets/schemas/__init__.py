"""Schemas: what the columns of a table mean, how that is written, and what it does to the records."""
