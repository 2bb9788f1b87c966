"""A simulated room and its heating, in integers: hundredths of a degree, a step a minute.

MicroPython and CPython.

The room loses heat to the outside through its walls, with a time constant of `leak` minutes, and
gains it from a radiator, which warms and cools in minutes, and from people and the sun by day.
Rooms differ in their walls, their radiator and their people: a seed is a room. We chose the sizes,
in the range of real dwellings; none was measured.
"""

COLD, WARM = 500, 1500  # mean outside temperatures at night and by day
DAY = 1440  # minutes


class Room:
    """One room; see the module.

    `inside` and `outside` are in 1/100 degree Celsius. `duty` of the heating is 0 .. 100. `minute`
    counts the minutes since midnight.
    """

    def __init__(self, seed):
        """seed: the room, its walls, its radiator and its people."""
        self._a, self._b, self._c = seed % 30268 + 1, seed * 7 % 30306 + 1, seed * 131 % 30322 + 1
        for _ in range(20):
            self._draw()
        self._leak = 500 + self._draw() % 400
        self._power = 20 + self._draw() % 10
        self._people = 2 + self._draw() % 4
        self.minute = 0
        self.inside = 1900
        self.outside = COLD
        self.duty = 0
        self._weather = 0
        self._radiator = 0  # in 1/100 of duty
        self._inside = self.inside << 8

    def _draw(self):
        """Return a random number: the sum of three uniform ones."""
        a = self._a = self._a * 171 % 30269
        b = self._b = self._b * 172 % 30307
        c = self._c = self._c * 170 % 30323
        return a + b + c

    def _noise(self, size):
        """Return a nearly normal number of mean 0 and standard deviation `size`."""
        return (self._draw() - 45449) * size // 15150

    def step(self):
        """Let a minute go by: the weather, the controller, the radiator and the room."""
        self.minute = minute = (self.minute + 1) % DAY
        if minute % 60 == 0:
            self._weather += self._noise(80) - self._weather // 12
        noon = abs(minute - DAY // 2)  # 0 at noon, 720 at midnight
        self.outside = WARM - (WARM - COLD) * noon // (DAY // 2) + self._weather
        by_day = 6 * 60 <= minute < 22 * 60
        wanted = 2100 if by_day else 1700
        if self.inside < wanted - 30:  # on and off, with hysteresis
            self.duty = 100
        elif self.inside > wanted + 30:
            self.duty = 0
        self._radiator += (self.duty * 100 - self._radiator) // 8
        # Through the walls, from the radiator, from people by day, and noise; in 1/256 of 1/100
        # degree.
        self._inside += (
            ((self.outside - self.inside) << 8) // self._leak
            + (self._radiator * self._power << 8) // 100000
            + (self._people * by_day << 8) // 8
            + self._noise(150)
        )
        self.inside = self._inside >> 8
