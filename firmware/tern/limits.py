"""Limits that the fleet has learned: above them, a value of a feature is unusual for this fleet.

A host estimates a high quantile of each feature over the devices of a fleet, such as the value that
99 in 100 stay below, and sends these values in a MODEL frame (shared_specs/wire.md). A board keeps
them beside its model, in a file of their own.
"""

from tern import wire
from tern.compat import TYPE_CHECKING
from tern.model import AT, Received

if TYPE_CHECKING:
    from array import array


class Limits(Received):
    """The limits of features, from the last MODEL frame that brought some.

    round: the number in that frame. ready: whether there are limits. d: features of a row, the
    constant included. Nothing here allocates memory once the limits are there.
    """

    FILE = "/limits.bin"
    KINDS = bytes((wire.LIMITS,))

    def limit(self, feature: int) -> int:
        """Return the limit of a feature, in Q1.14; wire.NO_LIMIT if it has none.

        Raises RuntimeError if there are no limits, or none of such a feature.
        """
        if not 0 <= feature < self.d:
            raise RuntimeError("no limits for this row")
        return self._image[AT + feature]

    def unusual(self, row: "array[int]", start: int = 0) -> int:
        """Return the first feature of a row that is above its limit, counted from 0; -1 if none is.

        row: features in Q1.14, array('h'); what follows them, such as a label, does not count.
        start: the feature to begin with, by which a program finds the next one. Raises RuntimeError
        if there are no limits, or not for such a row.
        """
        d = self.d
        if not self.ready or len(row) < d or start < 0:
            raise RuntimeError("no limits for this row")
        image = self._image
        for feature in range(start, d):
            if row[feature] > image[AT + feature]:
                return feature
        return -1
