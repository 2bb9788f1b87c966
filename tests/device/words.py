"""Numbers for tests, the same on every device."""


class Words:
    """A small repeatable source of test words (not for anything private)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 25173 + 13849) & 0xFFFFFF
        return (self.state >> 4) * n >> 20

    def between(self, low, high):
        return low + self.below(high - low + 1)
