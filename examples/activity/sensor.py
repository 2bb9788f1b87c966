"""A simulated accelerometer that somebody wears at the thigh, in the manner of WISDM; runs on
MicroPython and CPython.

What is from where. Kwapisz, Weiss and Moore (Activity Recognition using Cell Phone Accelerometers,
SensorKDD 2010) let people carry a phone in a front trouser pocket and label six activities. From
them are the activities, their shares of the time (SHARES, of data set WISDM 1.1), gravity along y
when the thigh is upright and along z when it lies, and the time between peaks: about 1/2 s walking
and downstairs, 1/4 s jogging, 3/4 s upstairs. They sampled at 20 Hz; RATE and windows of 128
samples are those of UCI HAR (Anguita et al., ESANN 2013). All else, the sizes of harmonics and of
noise and how people and bouts differ, is ours, and was chosen so that the activities overlap as
they do there: stairs are taken for walking, and seldom anything for jogging. No person was
measured.

Integers only, but for a table of sines. A seed is a person: each has a cadence, a force and a way
to wear the thing.
"""

from array import array
from math import pi, sin

ACTIVITIES = ("walking", "jogging", "upstairs", "downstairs", "sitting", "standing")
SHARES = (386, 312, 112, 91, 55, 44)  # in 1000, of WISDM 1.1
RATE = 50  # Hz
G = 8192  # int16: +-4 g

# For each activity: cadence in steps a minute, then amplitudes in 1/1000 g: at half the cadence
# (x), at the cadence along y, at twice and at four times it (the impact), along z, and the noise.
_MOTION = (
    (115, 110, 210, 130, 60, 150, 55),
    (165, 250, 700, 320, 160, 380, 120),
    (98, 130, 190, 95, 45, 175, 55),
    (116, 120, 230, 150, 90, 140, 70),
    (0, 0, 0, 0, 0, 0, 7),
    (0, 0, 0, 0, 0, 0, 9),
)
_SITTING = 4
# How people differ, and bouts of one person: standard deviations, of cadence and force in 1/1000,
# of tilts in 1/1000 of a turn.
_PEOPLE = (50, 110, 14, 14)
_BOUTS = (55, 120, 12, 12)

_SINE = array("h", (round(1024 * sin(2 * pi * i / 256)) for i in range(256)))


class Person:
    """A person who wears the sensor: begin() an activity, then read() sample by sample.

    The same seed is the same person, and on the same day he or she does the same.
    """

    def __init__(self, seed, day=0):
        """seed: the person; day: what he or she does that day.

        Random numbers: Wichmann and Hill (1982), three small generators. For the simulation, never
        for anything private.
        """
        self._a, self._b, self._c = seed % 30268 + 1, seed * 7 % 30306 + 1, seed * 131 % 30322 + 1
        for _ in range(20):
            self._draw()
        self._own = [self._normal(sd) for sd in _PEOPLE]
        self._c = (self._c + 977 * day) % 30322 + 1
        self.begin(_SITTING)

    def _draw(self):
        """Return a random number: the sum of three uniform ones, 3 .. 90896."""
        a = self._a = self._a * 171 % 30269
        b = self._b = self._b * 172 % 30307
        c = self._c = self._c * 170 % 30323
        return a + b + c

    def _normal(self, sd):
        """Return a nearly normal number of mean 0 and standard deviation `sd`."""
        return (self._draw() - 45449) * sd // 15150

    def choose(self):
        """Return a random activity, as often as SHARES says."""
        share = self._draw() % 1000
        activity = 0
        while share >= SHARES[activity]:
            share -= SHARES[activity]
            activity += 1
        return activity

    def begin(self, activity):
        """Begin a bout of ACTIVITIES[activity], with a cadence, a force and tilts of its own."""
        self.activity = activity
        steps, half, once, twice, fourth, forward, noise = _MOTION[activity]
        cadence, force, roll, pitch = (self._own[i] + self._normal(_BOUTS[i]) for i in range(4))
        # Phases count 1/65536 of a turn; per sample they move on by this.
        self._step = steps * 65536 * (1000 + cadence) // (60 * RATE * 1000)
        force += self._normal(120)
        self._sizes = [
            size * (1000 + force + self._normal(150)) // 1000
            for size in (half, once, twice, fourth, forward)
        ]
        self._noise = noise * (1000 + self._normal(200)) // 1000
        self._phase = self._draw() & 65535
        self._shift = 20 + self._normal(15) & 255  # of the impact, in 1/256 of a turn
        # Gravity's way through the sensor: along y, or along z where the thigh lies.
        if activity == _SITTING:
            pitch = pitch + 235 + self._normal(20)
        roll = roll * 256 // 1000
        pitch = pitch * 256 // 1000
        self._roll = _SINE[roll & 255], _SINE[roll + 64 & 255]
        self._pitch = _SINE[pitch & 255], _SINE[pitch + 64 & 255]

    def read(self):
        """Return the next sample, x, y, z in int16.

        Each axis is a sum of harmonics of the step, plus noise, turned by the two tilts of the
        sensor.
        """
        phase = self._phase
        self._phase = phase + self._step & 131071  # two steps are a stride
        angle = phase >> 8
        half, once, twice, fourth, forward = self._sizes
        x = half * _SINE[angle >> 1] >> 10
        y = 1000 + (
            once * _SINE[angle & 255]
            + twice * _SINE[2 * angle + self._shift & 255]
            + fourth * _SINE[4 * angle + 2 * self._shift & 255]
            >> 10
        )
        z = forward * _SINE[angle + 90 & 255] >> 10
        noise = self._noise
        x += self._normal(noise)
        y += self._normal(noise)
        z += self._normal(noise)
        # Turn by the pitch, then by the roll; sines are in 1/1024.
        sine, cosine = self._pitch
        y, z = y * cosine - z * sine >> 10, y * sine + z * cosine >> 10
        sine, cosine = self._roll
        x, y = x * cosine - y * sine >> 10, x * sine + y * cosine >> 10
        return _int16(x), _int16(y), _int16(z)


def _int16(v):
    """Return v, in 1/1000 g, as the sensor does: an int16 of +-4 g, clipped."""
    return max(-32768, min(32767, v * G // 1000))


def windows(person, window, row, bouts, each=4):
    """Yield the activity of each window, with its features in `row`, as fast as it goes.

    person: a Person; window: a tern.features.Window of three axes; row: array('h'). A bout has
    `each` windows; what is across two bouts is left out.
    """
    for _ in range(bouts):
        person.begin(person.choose())
        samples_of_bout = 0
        windows_left = each
        while windows_left:
            samples_of_bout += 1
            if window.push(*person.read()):
                window.features(row)
                if samples_of_bout >= window.n:
                    windows_left -= 1
                    yield person.activity
