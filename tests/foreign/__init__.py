"""Data sets that tern does not bundle, as a user would bring them: a table and a schema each.

Nobody chose a default of tern by them. `python -m foreign`, in the folder tests, measures what tern
learns of them.
"""
