"""Pictures, drawn with matplotlib, whose import takes a second: import these modules late.

`canvas` has what all pictures share. The others draw cards, accounts, runs, and panels of curves.
"""
