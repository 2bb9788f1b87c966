"""Pictures, drawn with matplotlib, whose import takes a second: import these modules late.

`base` has what all pictures share. The others draw cards, accounts, runs, and panels of curves.
"""
