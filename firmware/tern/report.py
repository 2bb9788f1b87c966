"""A report: what computes it, its card, its draw and its tag.

The client calls prepare(), choose() and draw(), and then pays for the report. Nothing of it may
leave the board before the ledger is durable.
"""

from array import array

from tern import frames, wire
from tern.card import CardError, decode
from tern.coordinates import choose, gather
from tern.gradient import Answerer as Gradients
from tern.shapes import PROJECTION, SUM


class Answerers:
    """The answerers: objects that compute values and draw symbols, each made when first needed.

    An answerer has cost(card), the price of a report; values(client, records, card); and draw(card,
    entropy, inputs, out, k). Some have steps(client, records) as well, which yields in between.
    Sums and projections have answerers of a card's shape, all other requests those of a model.
    """

    def __init__(self, session, policy):
        """session: the Session of the frame under way. policy: the board's Policy."""
        self.gradients = Gradients(session.round)  # of the small models
        self._session = session
        self._policy = policy
        self._by_shape = {}
        self._by_model = {}

    def of(self, request):
        """Return the answerer of a ROUND. Raises FrameError where the board lacks its module."""
        shape = request.card[0] & 15  # the version is in the high bits
        if shape in (SUM, PROJECTION):
            return self.of_shape(shape)
        model = request.model
        if model <= wire.SVM:
            return self.gradients
        if model not in self._by_model:
            self._by_model[model] = self._made(shape, model)
        return self._by_model[model]

    def of_shape(self, shape):
        """Return the answerer of SUM or PROJECTION. Raises FrameError as of()."""
        if shape not in self._by_shape:
            self._by_shape[shape] = self._made(shape, 0)
        return self._by_shape[shape]

    def _made(self, shape, model):
        """Return a new answerer of `shape`, if that is SUM or PROJECTION, else of `model`.

        Raises FrameError where the board lacks its module.
        """
        request = self._session.round
        try:  # loaded only when asked for
            if shape == SUM:
                from tern.sums import Answerer
            elif shape == PROJECTION:
                from tern.projection import Answerer  # type: ignore[assignment]
            elif model == wire.SOFTMAX:
                from tern.inference import Answerer  # type: ignore[assignment]
            elif model == wire.SOFTMAX_GRADIENT:
                from tern.softmax import Answerer  # type: ignore[assignment]
            elif model in wire.COLLECTIONS:
                from tern.collect import Answerer  # type: ignore[assignment]
            else:
                from tern.local import Answerer  # type: ignore[assignment]
            answerer = Answerer(request)
        except ImportError:  # not every board has it: tern board deploy
            raise frames.FrameError(wire.ERR_MODEL, "no module for this model here", request.model)
        answerer.unit = self._policy.unit
        answerer.bound = self._policy.bound
        answerer.question = self._session.question  # type: ignore[attr-defined]
        return answerer


class Report:
    """The report under way: prepare(), choose() and draw(), in this order.

    card: the tern.card.Card of the ROUND, the table of the privacy mechanism. answerer: what
    computes and draws its values, see Answerers. packed_bytes: how many bytes its symbols take.
    sealed: a view of the whole frame.
    """

    def __init__(self, session, policy, reply):
        """session: the Session of the frame under way. policy: the board's Policy.

        reply: the buffer for the frame.
        """
        self.card = None
        self.answerer = None
        self.answerers = Answerers(session, policy)
        self.packed_bytes = 0
        self._session = session
        self._reply = reply
        self._k = 0  # values in it; 0: there is no card
        self._model = 0
        self._unsealed = self.sealed = None  # views of the reply, without and with tag
        self._make_room(wire.MAX_DIMENSION)

    def _make_room(self, k):
        """Allocate the buffers of a report of k values."""
        self._chosen = array("H", bytes(2 * k))
        self._inputs = array("h", bytes(2 * k))
        self._symbols = array("H", bytes(2 * k))

    def prepare(self):
        """Find the answerer of the session's ROUND and decode its card, unless both stay the same.

        Raises FrameError and CardError.
        """
        request = self._session.round
        is_other_card = request.k != self._k or request.card != self.card.data
        if is_other_card or request.model != self._model:
            self._model = 0
            self.answerer = self.answerers.of(request)
            self._model = request.model
        if is_other_card:
            self.decode(request.card, request.k)

    def decode(self, data, k):
        """Decode the card `data` for a report of k values. Raises CardError."""
        self._k = 0  # until all went well
        card = decode(data)
        size = frames.packed_size(card.symbols, k)
        if size > wire.MAX_PACKED:
            raise CardError("too many symbols for one report")
        if k > len(self._symbols):
            self._make_room(k)
        # The length of the report, and so the views of it, stay the same from round to round.
        n = frames.REPORT_BYTES + size
        view = memoryview(self._reply)
        self._unsealed = view[:n]
        self.sealed = view[: n + wire.TAG_BYTES]
        self.packed_bytes = size
        self.card = card
        self._k = k

    def price(self, measure):
        """Return the price of the report in millionths of a ledger's measure.

        measure: EPSILON (0) or RHO of tern.ledger. Raises FrameError.
        """
        card = self.card
        cost = self.answerer.cost(card)
        # The module of sums converts epsilon to rho, and knows the cards that cost rho.
        if measure or card.shape == SUM:
            cost = self.answerers.of_shape(SUM).price(measure, cost, card)
        return cost

    def choose(self, values):
        """Choose the k of `values` to report, for draw().

        values: array('h'), Q1.14. The question, not the data, decides which they are.
        """
        k = self._k
        session = self._session
        choose(session.question, session.round.values, k, self._chosen)
        gather(values, self._chosen, k, self._inputs)

    def draw(self, entropy):
        """Draw the symbols of the chosen values and write the report; return its length.

        Raises EntropyError. Whether or not it does, the report must be paid for: a failure can
        depend on the data.
        """
        k = self._k
        symbols = self._symbols
        self.answerer.draw(self.card, entropy, self._inputs, symbols, k)
        entropy.end_report()
        session = self._session
        return frames.encode_report(
            self._reply,
            session.key,
            session.device,
            session.number,
            symbols,
            k,
            self.card.symbols,
            self.packed_bytes,
            self._unsealed,
        )
