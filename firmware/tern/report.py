"""A report: what computes it, its card, its draw and its tag.

The client calls prepare(), choose() and draw(), and then pays for the report. Nothing of it may
leave the board before the ledger is durable.
"""

from array import array

from tern import frames, wire
from tern.card import CardError, decode
from tern.coordinates import choose, gather
from tern.frames import write_report
from tern.gradient import Answerer as Gradients
from tern.octets import digest_into
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
    computes and draws its values, see Answerers. is_checked: whether the client whose ledger is
    loaded may give a report of this card to a ROUND like this one; it may have another round and
    other parameters. packed_bytes: how many bytes its symbols take. sealed: a view of the whole
    frame, which has `length` bytes.
    """

    def __init__(self, session, policy, reply):
        """session: the Session of the frame under way. policy: the board's Policy.

        reply: the buffer for the frame.
        """
        self.card = None
        self.answerer = None
        self.answerers = Answerers(session, policy)
        self.is_checked = False
        self.packed_bytes = self.length = 0
        self._packing = None
        self._session = session
        self._reply = reply
        self._k = 0  # values in it; 0: there is no card
        self._model = 0
        self._changes = 0  # of the ROUND for which all is prepared
        # Views of the reply: without tag, the place for the digest that begins with it, and with tag.
        self._unsealed = self._digest = self.sealed = None
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
        if request.changes == self._changes:
            return
        self.is_checked = False
        is_other_card = request.k != self._k or request.card != self.card.data
        if is_other_card or request.model != self._model:
            self._model = 0
            self.answerer = self.answerers.of(request)
            self._model = request.model
        if is_other_card:
            self.decode(request.card, request.k)
        self._changes = request.changes

    def decode(self, data, k):
        """Decode the card `data` for a report of k values. Raises CardError."""
        self._k = 0  # until all went well
        card = decode(data)
        try:
            packing = frames.report_packing(k, card.symbols)
        except frames.FrameError:
            raise CardError("too many symbols for one report")
        if k > len(self._symbols):
            self._make_room(k)
        # The length of the report, and so the views of it, stay the same from round to round.
        n = packing[3]
        view = memoryview(self._reply)
        self._unsealed = view[:n]
        self._digest = view[n : n + wire.KEY_BYTES]
        self.length = n + wire.TAG_BYTES
        self.sealed = view[: self.length]
        self.packed_bytes = n - frames.REPORT_BYTES
        self._packing = packing
        self.card = card
        self._k = k

    def price(self, measure, cost):
        """Return the price of the report in millionths of a ledger's measure, by the module of sums.

        It converts epsilon to rho, and knows the cards that cost rho. All other reports cost what
        their answerer says. measure: EPSILON (0) or RHO of tern.ledger. cost: that of the answerer.
        Raises FrameError.
        """
        return self.answerers.of_shape(SUM).price(measure, cost, self.card)

    def choose(self, values):
        """Choose the k of `values` to report, for draw().

        values: array('h'), Q1.14. The question, not the data, decides which they are.
        """
        k = self._k
        session = self._session
        choose(session.question, session.round.values, k, self._chosen)
        gather(values, self._chosen, k, self._inputs)

    def draw(self, entropy):
        """Draw the symbols of the chosen values and write the report: `sealed`.

        Raises EntropyError. Whether or not it does, the report must be paid for: a failure can
        depend on the data.
        """
        symbols = self._symbols
        self.answerer.draw(self.card, entropy, self._inputs, symbols, self._k)
        entropy.end_report()
        session = self._session
        write_report(self._reply, session.device, session.number, symbols, self._packing)
        digest_into(session.key, self._unsealed, self._digest)
