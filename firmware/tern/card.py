"""Decode cards with every bound checked, and certify their epsilon (shared_specs/cards.md).

A card is the table of integers that defines one mechanism of local differential privacy at one
epsilon. The host designs it; the device decodes it, checks that it keeps the epsilon it claims
(certifies it), and samples from it. A report holds symbols: indices of the card's outputs.

Probabilities are integers out of T = 2**30. Epsilon is counted in millionths (micro-epsilon).
"""

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

# Layouts of struct. The letters are those of shared_specs/cards.md; the function that decodes each
# body explains them.
HEADER = "<BI"  # version << 4 | shape, epsilon
TABLE_BODY = "<BB"  # p, levels; then the levels, then the thresholds
WINDOW_BODY = "<HHI"  # N, W, P
LAPLACE_BODY = "<BIIii"  # q, t, s, lowest, highest
MIXTURE_BODY = "<IH"  # P, length of the first card

_BODY_AT = const(5)  # bytes of the header
_MIXTURE_BYTES = const(6)  # of the fields of MIXTURE_BODY
_MAX_SCALE = const(1 << 20)  # of a laplace card, so that its sampler fits 32 bits
_MAX_SPAN = const(65535)  # between its outputs, so that a symbol fits 16 bits


class CardError(ValueError):
    """The bytes are not a card."""


def _require(condition, what=""):
    """Raise CardError with the text `what` unless `condition` holds."""
    if not condition:
        raise CardError(what)


class Card:
    """A decoded card. Which attributes it has depends on its shape, the kind of mechanism.

    data: its bytes. shape: one of tern.shapes. epsilon: the privacy loss that it claims, in
    micro-epsilon; of a sum with Gaussian noise rho of zCDP, in micro-rho. job: the int32 parameters
    of its sampler (tern.sampler); a mixture, and a card with a `body`, has none.
    """

    certified: "bool | None" = None  # whether it keeps its epsilon; None: not checked yet
    symbols: int  # the number of outputs

    # A table card. A knot is one of 2**p + 1 equally spaced inputs from -1 to 1.
    knot_bits: int  # p
    levels: "tuple[int, ...]"  # the number that each symbol stands for, before scaling
    thresholds: "memoryview"  # cumulative counts out of T: for each knot a row of symbols - 1
    extremes: "list[tuple[int, int]]"  # of each symbol: least and largest count over the knots

    # A window card: the symbol is uniform in a window around the input with probability P / T,
    # otherwise uniform outside of it.
    window: int  # W, the number of symbols in the window
    threshold: int  # P; of a mixture: the first card is used with probability P / T

    # A laplace card: noise of scale t / s on a grid of 2**q steps to 1, clamped.
    grid_bits: int  # q
    t: int
    s: int
    lowest: int  # output, in steps

    # A mixture: which of two cards draws is itself random.
    first: "Card"
    second: "Card"

    # Other shapes: tern.lhp.Hierarchy, tern.sums.Sum or tern.projection.Projection
    body: "object"

    def __init__(self, data, shape, epsilon):
        self.data = data
        self.shape = shape
        self.epsilon = epsilon


def decode(data):
    """Return the Card that `data` (bytes) holds. Raises CardError."""
    return _decode(bytes(data), False)


def _decode(data, nested):
    """Return the Card that `data` (bytes) holds. Raises CardError.

    nested: whether it is one of the two cards of a mixture, which may only be a table or a window.
    """
    _require(_BODY_AT < len(data) <= MAX_CARD, "card too short or too long")
    # The first byte has the version in its high four bits, and the shape in its low four.
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
        # The modules of these shapes take memory, and so are loaded only when a card needs one.
        try:
            if card.shape == SUM:
                from tern.sums import Sum as Body
            elif card.shape > SUM:
                from tern.projection import Projection as Body  # type: ignore[assignment]
            else:
                from tern.lhp import Hierarchy as Body  # type: ignore[assignment]
            card.body = Body(data, decode)
        # `tern board deploy` gives a board what its runs need.
        except (ImportError, ValueError) as error:
            raise CardError(str(error))
        card.symbols = card.body.symbols
    else:
        raise CardError("unknown shape")
    return card


def _body(card, layout, exact):
    """Return the fixed fields of a card's body, which follow its header, as a tuple.

    layout: of struct. exact: True if the card must end with these fields, False if more bytes must
    follow them. Raises CardError for a wrong length.
    """
    size = _BODY_AT + struct.calcsize(layout)
    _require(len(card.data) == size if exact else len(card.data) > size, "wrong length")
    return struct.unpack_from(layout, card.data, _BODY_AT)


def _table(card):
    """Decode the body of a table card: levels, and thresholds at 2**p + 1 knots (inputs).

    At a knot, symbol j has the probability count_j / T. The thresholds of a knot are the cumulative
    counts, all but the last one, which is T. Between two knots they are interpolated.

    The sampler's job has p in slot 4, the number of thresholds in a row (one less than the symbols)
    in slot 5, and from slot 6 on the thresholds, row by row. Raises CardError.
    """
    data = card.data
    knot_bits, symbols = _body(card, TABLE_BODY, False)
    _require(
        knot_bits <= MAX_KNOT_BITS and 2 <= symbols <= MAX_LEVELS, "knots or levels out of bounds"
    )
    rows = (1 << knot_bits) + 1
    offset = _BODY_AT + 2  # of the levels, a byte each
    _require(len(data) == offset + symbols + 4 * rows * (symbols - 1), "wrong length")
    levels = struct.unpack_from("%db" % symbols, data, offset)
    for j in range(1, symbols):
        _require(levels[j - 1] < levels[j], "levels not increasing")

    # 24 bytes are the first six slots. The thresholds are copied as they are: every machine here is
    # little-endian, as is the card.
    job = array("i", bytes(24) + data[offset + symbols :])
    job[4] = knot_bits
    job[5] = symbols - 1
    card.job = job
    card.thresholds = memoryview(job)[6:]

    # The counts of a symbol are the differences of its threshold and the one before, at each knot.
    # The privacy certificate needs the least and the largest of them.
    card.extremes = []
    thresholds = list(card.thresholds)  # from 2**31 on they are negative, and refused
    below = [0] * rows  # the thresholds of the symbol before, at each knot
    for j in range(symbols):
        # Column j of the rows; the last symbol ends at T.
        above = thresholds[j :: symbols - 1] if j < symbols - 1 else [T] * rows
        counts = [a - b for a, b in zip(above, below)]
        card.extremes.append((min(counts), max(counts)))
        _require(card.extremes[j][0] > 0, "thresholds not increasing")
        below = above
    card.knot_bits = knot_bits
    card.symbols = symbols
    card.levels = levels


def _window(card):
    """Decode the body of a window card. It has N symbols; the window is the W around the input.

    With probability P / T the symbol is uniform in the window, otherwise uniform among the other
    N - W symbols. Raises CardError.
    """
    symbols, width, threshold = _body(card, WINDOW_BODY, True)
    _require(2 <= symbols <= MAX_SYMBOLS and 1 <= width < symbols, "levels or window out of bounds")
    _require(0 < threshold < T, "probability out of bounds")
    card.symbols = symbols
    card.window = width
    card.threshold = threshold
    card.job = array(
        "i",
        (
            # four slots of every job: next coordinate, end, position in the pool, its end
            0,
            0,
            0,
            0,
            symbols - width,
            width,
            threshold,
            _mask(symbols - width),
            _mask(width),
            0,  # 1 while the inputs are window starts (sample_categories)
        ),
    )


def _laplace(card):
    """Decode the body of a laplace card: discrete Laplace noise on a grid, clamped to outputs.

    q: the grid has 2**q steps to 1. t, s: the scale of the noise is t / s steps. lowest, highest:
    the outputs, in steps; inputs, from -2**q to 2**q steps, lie between them. Raises CardError.
    """
    q, t, s, lowest, highest = _body(card, LAPLACE_BODY, True)
    _require(
        q <= 14 and 1 <= t <= _MAX_SCALE and 1 <= s <= _MAX_SCALE, "grid or scale out of bounds"
    )
    one = 1 << q  # the number 1 in steps
    _require(
        -_MAX_SCALE <= lowest <= -one and one <= highest <= _MAX_SCALE, "outputs out of bounds"
    )
    _require(highest - lowest <= _MAX_SPAN, "too many outputs")
    card.symbols = highest - lowest + 1
    card.grid_bits = q
    card.t = t
    card.s = s
    card.lowest = lowest
    # Four slots of every job (next coordinate, end, position in the pool, its end), then those of
    # sampler.grid(); q + 1, since inputs range over 2.
    card.job = array("i", (0, 0, 0, 0, q + 1, t, s, lowest, highest, _mask(t)))


def _mixture(card):
    """Decode the body of a mixture of two cards. One of them, chosen at random, draws the symbol.

    The first card is used with probability P / T. The symbols of the second one follow those of the
    first, so a symbol tells which card has drawn it. Raises CardError.
    """
    threshold, length = _body(card, MIXTURE_BODY, False)
    _require(0 < threshold < T, "probability out of bounds")
    start = _BODY_AT + _MIXTURE_BYTES
    card.threshold = threshold
    card.first = _decode(card.data[start : start + length], True)
    card.second = _decode(card.data[start + length :], True)
    card.symbols = card.first.symbols + card.second.symbols
    _require(card.symbols <= MAX_SYMBOLS, "too many outputs")


def _mask(n):
    """Return the smallest 2**b - 1 that covers 0 .. n - 1, for a uniform draw by rejection."""
    mask = 0
    while mask < n - 1:
        mask = mask << 1 | 1
    return mask


def certify(card, epsilon=None):
    """Return whether `card` keeps `epsilon`, in micro-epsilon (None: what it claims itself).

    That is: whatever two inputs a client may have, no output is more than exp(epsilon) times
    likelier with one than with the other. The test is exact: an inequality of integers for each
    shape (shared_specs/cards.md), with a lower bound of exp(epsilon) in units of 2**-40.
    """
    if epsilon is None:
        epsilon = card.epsilon
    if card.shape == LAPLACE:
        # Two inputs differ by at most 2, which is 2 * 2**q steps; a step costs s / t.
        return epsilon * card.t >= 2_000_000 * (card.s << card.grid_bits)
    if card.shape == MIXTURE:
        # The symbol tells which card has drawn, and the choice does not depend on the input.
        return certify(card.first, epsilon) and certify(card.second, epsilon)
    if card.shape >= HIERARCHY:
        return card.body.keeps(epsilon)
    bound = exp_lower(epsilon)
    if card.shape == WINDOW:
        # A symbol has the probability P / (T W) inside of the window, and (T - P) / (T (N - W))
        # outside. Multiplied by T W (N - W), neither may be more than exp(epsilon) times the other.
        inside = card.threshold * (card.symbols - card.window)
        outside = (T - card.threshold) * card.window
        return inside << EXP_BITS <= bound * outside and outside << EXP_BITS <= bound * inside
    # A table: no symbol may be more than exp(epsilon) times likelier at one knot than at another.
    # Between two knots its probability is between theirs.
    for least, most in card.extremes:
        if most << EXP_BITS > bound * least:
            return False
    return True


def card_hash(data):
    """Return the 8 bytes that identify a card."""
    return hashlib.sha256(data).digest()[:8]
