"""Decode cards with every bound checked, and certify their epsilon (shared_specs/cards.md)."""

import hashlib
import struct
from array import array

from tern.compat import const
from tern.fixed import EXP_BITS, MAX_EPSILON, exp_lower
from tern.shapes import HIERARCHY as HIERARCHY
from tern.shapes import LAPLACE as LAPLACE
from tern.shapes import MIXTURE as MIXTURE
from tern.shapes import PROJECTION as PROJECTION
from tern.shapes import SUM as SUM
from tern.shapes import T_BITS as T_BITS
from tern.shapes import TABLE as TABLE
from tern.shapes import WINDOW as WINDOW
from tern.shapes import T as T

VERSION = const(1)
MAX_CARD = const(2048)  # bytes
MAX_KNOT_BITS = const(5)
MAX_LEVELS = const(16)
MAX_SYMBOLS = const(256)  # of every shape but laplace

HEADER = "<BI"  # version << 4 | shape, epsilon
TABLE_BODY = "<BB"  # p, levels; then the levels, then the thresholds
WINDOW_BODY = "<HHI"  # N, W, P
LAPLACE_BODY = "<BIIii"  # q, t, s, lowest, highest
MIXTURE_BODY = "<IH"  # P, length of the first card

_BODY_AT = const(5)
_MIXTURE_BYTES = const(6)
_MAX_SCALE = const(1 << 20)
_MAX_SPAN = const(65535)


class CardError(ValueError):
    """The bytes are not a card."""


def _require(condition, what=""):
    if not condition:
        raise CardError(what)


class Card:
    """A decoded card: its bytes `data`, its `shape`, and its claimed `epsilon` (micro-epsilon;
    micro-rho: tern.sums).

    `job`: the int32 parameters of its sampler (tern.sampler), not for a mixture or a card with a
    `body`.
    """

    certified: "bool | None" = None  # whether it keeps its epsilon, once that is known
    symbols: int  # how many outputs
    knot_bits: int  # table: p,
    levels: "tuple[int, ...]"
    thresholds: "memoryview"  # 2**p + 1 rows of symbols - 1,
    extremes: (
        "list[tuple[int, int]]"  # and the least and the largest count of each symbol over the knots
    )
    window: int  # window: W,
    threshold: int  # and, as for a mixture, P
    grid_bits: int  # laplace: q
    t: int
    s: int
    lowest: int
    first: "Card"  # mixture
    second: "Card"
    body: "object"  # tern.lhp.Hierarchy, tern.sums.Sum or tern.projection.Projection

    def __init__(self, data, shape, epsilon):
        self.data = data
        self.shape = shape
        self.epsilon = epsilon


def decode(data):
    """Return the Card that `data` (bytes) holds. Raises CardError."""
    return _decode(bytes(data), False)


def _decode(data, nested):
    """Return the Card of `data` (bytes); nested: whether it is one of the two cards of a mixture.

    Raises CardError.
    """
    _require(_BODY_AT < len(data) <= MAX_CARD, "card too short or too long")
    tag, epsilon = struct.unpack_from(HEADER, data, 0)
    _require(tag >> 4 == VERSION, "card of another version")
    _require(1 <= epsilon <= MAX_EPSILON, "epsilon out of bounds")
    card = Card(data, tag & 15, epsilon)
    if card.shape == TABLE:
        _table(card)
    elif card.shape == WINDOW:
        _window(card)
    elif card.shape == LAPLACE and not nested:
        _laplace(card)
    elif card.shape == MIXTURE and not nested:
        _mixture(card)
    elif HIERARCHY <= card.shape <= PROJECTION and not nested:
        try:  # loaded only when asked for
            if card.shape == SUM:
                from tern.sums import Sum as Body
            elif card.shape > SUM:
                from tern.projection import Projection as Body  # type: ignore[assignment]
            else:
                from tern.lhp import Hierarchy as Body  # type: ignore[assignment]
            card.body = Body(data, decode)
        except (ImportError, ValueError) as error:  # not every board has it: tern deploy
            raise CardError(str(error))
        card.symbols = card.body.symbols
    else:
        raise CardError("unknown shape")
    return card


def _body(card, layout, exact):
    """Return the fields of a card's body, which follow its header.

    exact: whether nothing may follow them. Raises CardError for a wrong length.
    """
    size = _BODY_AT + struct.calcsize(layout)
    _require(len(card.data) == size if exact else len(card.data) > size, "wrong length")
    return struct.unpack_from(layout, card.data, _BODY_AT)


def _table(card):
    """Decode the body of a table card: thresholds at 2**p + 1 knots, and m levels.

    The sampler's job is [next coordinate, end, position, its end, p, m - 1, the thresholds row by
    row].
    """
    data = card.data
    knot_bits, symbols = _body(card, TABLE_BODY, False)
    _require(
        knot_bits <= MAX_KNOT_BITS and 2 <= symbols <= MAX_LEVELS, "knots or levels out of bounds"
    )
    rows = (1 << knot_bits) + 1
    offset = _BODY_AT + 2
    _require(len(data) == offset + symbols + 4 * rows * (symbols - 1), "wrong length")
    levels = struct.unpack_from("%db" % symbols, data, offset)
    for j in range(1, symbols):
        _require(levels[j - 1] < levels[j], "levels not increasing")

    job = array("i", bytes(24) + data[offset + symbols :])  # every machine here is little-endian
    job[4] = knot_bits
    job[5] = symbols - 1
    card.job = job
    card.thresholds = memoryview(job)[6:]

    card.extremes = []
    # Counts of a symbol: differences of its threshold and the one before, at each knot.
    thresholds = list(card.thresholds)  # from 2**31 on they are negative, and refused
    below = [0] * rows
    for j in range(symbols):
        above = thresholds[j :: symbols - 1] if j < symbols - 1 else [T] * rows
        counts = [a - b for a, b in zip(above, below)]
        card.extremes.append((min(counts), max(counts)))
        _require(card.extremes[j][0] > 0, "thresholds not increasing")
        below = above
    card.knot_bits = knot_bits
    card.symbols = symbols
    card.levels = levels


def _window(card):
    """Decode the body of a window card: N symbols, a window of W, drawn from with P / T."""
    symbols, width, threshold = _body(card, WINDOW_BODY, True)
    _require(2 <= symbols <= MAX_SYMBOLS and 1 <= width < symbols, "levels or window out of bounds")
    _require(0 < threshold < T, "probability out of bounds")
    card.symbols = symbols
    card.window = width
    card.threshold = threshold
    card.job = array(
        "i",
        (0, 0, 0, 0, symbols - width, width, threshold, _mask(symbols - width), _mask(width), 0),
    )


def _laplace(card):
    """Decode the body of a laplace card: grid (q), scale of the noise (t / s), outputs."""
    q, t, s, lowest, highest = _body(card, LAPLACE_BODY, True)
    _require(
        q <= 14 and 1 <= t <= _MAX_SCALE and 1 <= s <= _MAX_SCALE, "grid or scale out of bounds"
    )
    one = 1 << q
    _require(
        -_MAX_SCALE <= lowest <= -one and one <= highest <= _MAX_SCALE, "outputs out of bounds"
    )
    _require(highest - lowest <= _MAX_SPAN, "too many outputs")
    card.symbols = highest - lowest + 1
    card.grid_bits = q
    card.t = t
    card.s = s
    card.lowest = lowest
    card.job = array("i", (0, 0, 0, 0, q + 1, t, s, lowest, highest, _mask(t)))


def _mixture(card):
    """Decode the body of a mixture: the first card is used with probability P / T."""
    threshold, length = _body(card, MIXTURE_BODY, False)
    _require(0 < threshold < T, "probability out of bounds")
    start = _BODY_AT + _MIXTURE_BYTES
    card.threshold = threshold
    card.first = _decode(card.data[start : start + length], True)
    card.second = _decode(card.data[start + length :], True)
    card.symbols = card.first.symbols + card.second.symbols
    _require(card.symbols <= MAX_SYMBOLS, "too many outputs")


def _mask(n):
    """Return the smallest 2**b - 1 that covers 0..n-1."""
    mask = 0
    while mask < n - 1:
        mask = mask << 1 | 1
    return mask


def certify(card, epsilon=None):
    """Return whether `card` keeps `epsilon` micro-epsilon (None: its own claim), exactly.

    Each shape has its condition in shared_specs/cards.md, an inequality of integers with a lower
    bound of exp(epsilon).
    """
    if epsilon is None:
        epsilon = card.epsilon
    if card.shape == LAPLACE:  # an input moves by at most 2 * 2**q steps of s / t each
        return epsilon * card.t >= 2_000_000 * (card.s << card.grid_bits)
    if card.shape == MIXTURE:
        return certify(card.first, epsilon) and certify(card.second, epsilon)
    if card.shape >= HIERARCHY:
        return card.body.keeps(epsilon)
    bound = exp_lower(epsilon)
    if card.shape == WINDOW:
        inside = card.threshold * (card.symbols - card.window)
        outside = (T - card.threshold) * card.window
        return inside << EXP_BITS <= bound * outside and outside << EXP_BITS <= bound * inside
    # A table: no symbol may be more than exp(epsilon) times likelier at one knot than at another.
    for least, most in card.extremes:
        if most << EXP_BITS > bound * least:
            return False
    return True


def card_hash(data):
    """Return the 8 bytes that identify a card."""
    return hashlib.sha256(data).digest()[:8]
