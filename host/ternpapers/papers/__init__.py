"""The figures and tables of each paper, by number: `FIGURES` of its module."""
