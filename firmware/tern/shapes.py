"""The shapes of cards (shared_specs/cards.md), and what their probabilities are out of."""

from tern.compat import const

TABLE = const(1)
WINDOW = const(2)
LAPLACE = const(3)
MIXTURE = const(4)
HIERARCHY = const(5)
SUM = const(6)
PROJECTION = const(7)

T_BITS = const(30)
T = const(1 << 30)  # thresholds are out of T
