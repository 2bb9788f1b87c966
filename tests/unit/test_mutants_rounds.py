"""Wrong implementations of frames, draws, generators and rounds: each fails a vector."""

import pytest
from mutants import Wrong, caught, misplaced, of

# The files of tests/device whose vectors find them, the quickest first.
CHECKS = {
    "tern.frames": ("test_frames.py", "test_rounds.py"),
    "tern.coordinates": ("test_coordinates.py",),
    "tern.entropy": ("test_entropy.py", "test_sampler.py", "test_rounds.py"),
    "tern.hash_drbg": ("test_entropy.py",),
    "tern.sampler": ("test_sampler.py", "test_rounds.py"),
    "tern.table": ("test_sampler.py",),
    "tern.lhp": ("test_sampler.py", "test_rounds.py"),
    "tern.model": ("test_frames.py", "test_model.py"),
    "tern.noise": ("test_sums.py",),
    "tern.rotation": ("test_projection.py", "test_rounds.py"),
    "tern.projection": ("test_projection.py", "test_card.py", "test_rounds.py"),
    "tern.sums": ("test_sums.py", "test_rounds.py"),
}

_AHEAD = "wire.FLEET_AHEAD if request.device == wire.FLEET else wire.CLIENT_AHEAD"
_POLICY = "cost > client.largest or (client.shapes and not client.shapes >> card.shape & 1)"
_OLD = """        if number < last:
            raise FrameError(wire.ERR_OLD_ROUND, "round is over", last)
"""
_TOO_FAR = f"""        if number - last > ({_AHEAD}):
            raise FrameError(wire.ERR_AHEAD, "too many rounds skipped", last)
"""
_ANSWERER = """        model = SUM - (request.card[0] & 15)
        if model + 1 >> 1:  # neither a sum, 0, nor a projection, -1
            model = request.model
        self.answerer = self._gradients if 0 < model <= wire.SVM else self._answerer(model)
"""
_CARD = """        if request.k != self._k or request.card != self._form[0].data:
            self._decode(request.card, request.k)
"""
_ALLOWED = f"""        if {_POLICY}:
            raise FrameError(wire.ERR_POLICY, "too dear, or not this shape", client.largest)
"""
_SLOT = """        if self._slot_ms:
            work = work_ms(self.round, card, self._form[1], self._bound, self._recorder)
            if work > self._slot_ms:
                raise FrameError(wire.ERR_SLOT, "too long for the slot")
"""
_CERTIFIED = """        if self._certified is None:
            self._certified = certify(card)
        if not self._certified:
            raise FrameError(wire.ERR_NOT_CERTIFIED, "card does not keep its epsilon", card.epsilon)
"""
_RECORDS = "        self.records = self.open_records(client)\n"
_ENTROPY = """        if self.entropy.state == wire.FAILED:
            raise EntropyError
"""
_BUDGET = """        left = min(client.budget, ledger.budget) - ledger.spent
        if cost > left:
            raise FrameError(wire.ERR_BUDGET, "budget spent", max(0, left))
"""
_PAUSE = """        if self._paid:
            rest = self._pause_ms - ticks_diff(self.arrived, self._paid[client.device - client.first])
            if 0 < rest <= self._pause_ms:
                raise FrameError(wire.ERR_TOO_SOON, "the client pauses", (rest + 999) // 1000)
"""
_TAG = """        if not member and difference(frame, len(frame) - wire.TAG_BYTES, question, wire.TAG_BYTES):
            raise FrameError(wire.ERR_TAG, "tag does not verify")
"""
_SPEAKS = """        pack_into("32s", self._question, 0, question)
        self._key = self._answer_key
        self._device = device
"""
_DECODE = "        self.round.decode(frame, self._address)\n"
_LOAD = "        ledger = self._load(device)\n        last = ledger.round\n"
_AT_ONCE = "min(self._ahead, left // cost)"
_PAY = "self._ledger.pay(self._number, self._question, self._cost, report, self._at_once)"

WRONG = [
    *of(
        "frames",
        ("COBS blocks of 253 bytes", "(code == 255 and i < n)", "(code == 254 and i < n)"),
        ("a block more behind 254 bytes at the end", "(code == 255 and i < n)", "code == 255"),
        ("a zero behind a full block", "zero = 1 if value < 255 else 0", "zero = 1"),
        ("a frame cut within its block", "if bad or left:", "if bad:"),
        ("frames of any length", "put = zero\n", "put = zero if length else 0\n"),
        ("no symbols but 0 and 1", "if carry >= base:", "if carry >= 2:"),
        (
            "most significant symbol first",
            "i = k - 1\n    while i >= 0:\n        carry = symbols[i]",
            "i = k - 1\n    while i >= 0:\n        carry = symbols[k - 1 - i]",
        ),
        (
            "most significant byte first",
            "        out[i] = ((value + 32768) & 65535) - 32768",
            "        out[i] = (((value & 255) << 8 | value >> 8) + 32768 & 65535) - 32768",
        ),
        ("unsigned parameters", "((value + 32768) & 65535) - 32768", "value & 32767"),
        ("bytes for base**k itself", "while holds < values:", "while holds <= values:"),
        (
            "bits a symbol rounded up",
            "values = base**k",
            "values = 1 << k * (base - 1).bit_length()",
        ),
        (
            "tags of the last bytes",
            "return digest(key, data)[: wire.TAG_BYTES]",
            "return digest(key, data)[-wire.TAG_BYTES :]",
        ),
        (
            "data before key",
            "state = hashlib.sha256(key)\n    state.update(data)",
            "state = hashlib.sha256(data)\n    state.update(key)",
        ),
        (
            "seven bytes of a tag count",
            "    while i < n:\n        bits |= a[start + i] ^ b[i]",
            "    while i < n - (n == 8):\n        bits |= a[start + i] ^ b[i]",
        ),
        (
            "differences that cancel out",
            "bits |= a[start + i] ^ b[i]",
            "bits ^= a[start + i] ^ b[i]",
        ),
        (
            "a checksum that is not checked",
            "if not difference(frame, n, whole, wire.TAG_BYTES):",
            "if True:",
        ),
        (
            "a question without the client's id",
            "    state.update(address)\n",
            "    state.update(address[:1])\n",
        ),
        ("a question of nothing", "    state.update(asked)\n", ""),
        (
            "a question without the round",
            "    state.update(asked)\n",
            "    state.update(asked[4:])\n",
        ),
        (
            "the first bytes of Q are the answer key",
            "question[wire.TAG_BYTES : 3 * wire.TAG_BYTES]",
            "question[: 2 * wire.TAG_BYTES]",
        ),
        (
            "an answer key to the end of Q",
            "question[wire.TAG_BYTES : 3 * wire.TAG_BYTES]",
            "question[wire.TAG_BYTES :]",
        ),
        (
            "answers under the client's key",
            "question[wire.TAG_BYTES : 3 * wire.TAG_BYTES]",
            "bytes(16)",
        ),
        (
            "one half twice hides a fleet's key",
            'digest(key, label + b"2")[:16]',
            'digest(key, label + b"1")[:16]',
        ),
        (
            "a fleet's key hidden by one whole hash",
            'digest(key, label + b"1")[:16] + digest(key, label + b"2")[:16]',
            'digest(key, label + b"1")',
        ),
        (
            "a fleet's key hidden without its epoch",
            'struct.pack("<I", epoch)',
            'struct.pack("<I", 0)',
        ),
        ("round 0", "1 <= round_number <= wire.MAX_ROUND", "0 <= round_number <= wire.MAX_ROUND"),
        (
            "round 2**30",
            "1 <= round_number <= wire.MAX_ROUND",
            "1 <= round_number <= wire.MAX_ROUND + 1",
        ),
        (
            "a last round of 2**30 - 2",
            "1 <= round_number <= wire.MAX_ROUND",
            "1 <= round_number < wire.MAX_ROUND",
        ),
        ("device ids below 2**31", "device >> 32", "device >> 31"),
        (
            "frames of 2561 bytes",
            "1 + wire.TAG_BYTES <= len(frame) <= wire.MAX_FRAME",
            "1 + wire.TAG_BYTES <= len(frame) <= wire.MAX_FRAME + 1",
        ),
        (
            "model 12",
            "wire.LINEAR <= model <= wire.LAST_MODEL",
            "wire.LINEAR <= model <= wire.LAST_MODEL + 1",
        ),
        ("model 0", "wire.LINEAR <= model <= wire.LAST_MODEL", "0 <= model <= wire.LAST_MODEL"),
        ("d of 129", "1 <= d <= wire.MAX_DIMENSION and", "1 <= d <= wire.MAX_DIMENSION + 1 and"),
        ("d of 127 at most", "1 <= d <= wire.MAX_DIMENSION and", "1 <= d < wire.MAX_DIMENSION and"),
        ("more than 1024 values", " and (counts or classes * d <= wire.MAX_VALUES)", ""),
        (
            "1023 values at most",
            "classes * d <= wire.MAX_VALUES), ",
            "classes * d < wire.MAX_VALUES), ",
        ),
        (
            "one class",
            "2 <= classes <= wire.MAX_DIMENSION if many",
            "1 <= classes <= wire.MAX_DIMENSION if many",
        ),
        ("any classes of other models", "if many else classes == 1", "if many else True"),
        ("a range of 13", "wire.MAX_RANGE if model", "wire.MAX_RANGE + 1 if model"),
        (
            "ranges of every model",
            "wire.MAX_RANGE if model in wire.SCALED else collects and not counts",
            "wire.MAX_RANGE",
        ),
        ("no hashed categories", "in wire.SCALED else collects", "in wire.SCALED else False"),
        (
            "no range for softmax regression",
            "wire.MAX_RANGE if model in wire.SCALED",
            "wire.MAX_RANGE if model in (1, 2, 3, 8)",
        ),
        (
            "no range for collection",
            "wire.MAX_RANGE if model in wire.SCALED",
            "wire.MAX_RANGE if model in wire.GRADIENTS",
        ),
        (
            "local training of classes that trains nothing",
            "trains = model in wire.TRAININGS",
            "trains = wire.SOFTMAX < model < wire.VALUES",
        ),
        (
            "local training of classes that has one",
            "counts or model in wire.OF_CLASSES",
            "counts or model in (4, 10)",
        ),
        (
            "exponents of -30 in local training",
            "wire.MIN_LOCAL_EXPONENT if trains",
            "wire.MIN_EXPONENT if trains",
        ),
        ("an exponent of -31", "least <= exponent <=", "least - 1 <= exponent <="),
        (
            "an exponent of -11",
            "exponent <= wire.MAX_EXPONENT, ",
            "exponent <= wire.MAX_EXPONENT + 1, ",
        ),
        ("exponents in a collection", "exponent == 0 if collects", "True if collects"),
        ("batches of 33", "else wire.MAX_BATCH), ", "else wire.MAX_BATCH + 1), "),
        (
            "batches of one record's models",
            "0 if model in wire.OF_ONE_RECORD else wire.MAX_BATCH",
            "wire.MAX_BATCH",
        ),
        ("no epochs", "1 <= epochs <= 255", "0 <= epochs <= 255"),
        ("a rate of 17", "0 <= rate <= wire.MAX_RATE", "0 <= rate <= wire.MAX_RATE + 1"),
        ("tau of 0", "1 <= tau <= wire.MAX_TAU", "0 <= tau <= wire.MAX_TAU"),
        ("tau above 2**23", "1 <= tau <= wire.MAX_TAU", "1 <= tau"),
        ("epochs where nothing is trained", "not (epochs or rate or tau)", "not (rate or tau)"),
        ("a rate where nothing is trained", "not (epochs or rate or tau)", "not (epochs or tau)"),
        ("tau where nothing is trained", "not (epochs or rate or tau)", "not (epochs or rate)"),
        ("k of 0", "require(1 <= k <= values and", "require(0 <= k <= values and"),
        ("some of the probabilities", " and (model != wire.SOFTMAX or k == 1 or k == classes)", ""),
        ("no label", "model != wire.SOFTMAX or k == 1 or", "model != wire.SOFTMAX or"),
        ("k above the values", "1 <= k <= values and", "1 <= k <= values + 1 and"),
        ("no card", "1 <= length <= wire.MAX_CARD, ", "0 <= length <= wire.MAX_CARD, "),
        (
            "bytes behind the card",
            "len(frame) == end_of(layout) + rest + wire.TAG_BYTES",
            "len(frame) >= end_of(layout) + rest + wire.TAG_BYTES",
        ),
        ("features from d on", "require(j < self.d or not bit, ", "require(True, "),
        ("features from the top bit", ">> (j & 7) & 1", ">> (7 - (j & 7)) & 1"),
        (
            "k above the features asked for",
            'require(self.k <= self.values <= wire.MAX_VALUES + 1, "k out of bounds")',
            "self.k = min(self.k, self.values)",
        ),
    ),
    *of(
        "inference",
        (
            "a label under laplace noise",
            "if card.shape != WINDOW or card.window",
            "if card.shape == WINDOW and card.window",
        ),
        ("a label of a wider window", "card.window != 1 or", ""),
        ("a label of other classes", " or card.symbols != request.classes", ""),
        (
            "a vector that costs as much as all its entries",
            "return card.epsilon",
            "return request.k * card.epsilon",
        ),
        ("a label as a number", "sample_categories if label else sample", "sample"),
    ),
    *of(
        "collect",
        (
            "categories as numbers",
            "sample_categories if request.model == CATEGORIES else sample",
            "sample",
        ),
        (
            "numbers as categories",
            "sample_categories if request.model == CATEGORIES else sample",
            "sample_categories",
        ),
    ),
    *of(
        "coordinates",
        ("draws from the first bytes of Q", "at = COORDINATES_AT", "at = 0"),
        ("draws from the answer key", "at = COORDINATES_AT", "at = 8"),
        ("draws from hashes alone", "at = COORDINATES_AT", "at = 32"),
        ("blocks counted from 1", "counter = 0\n", "counter = 1\n"),
        ("big-endian counters", 'counter.to_bytes(4, "little")', 'counter.to_bytes(4, "big")'),
        ("counters of one byte", 'counter.to_bytes(4, "little")', 'counter.to_bytes(1, "little")'),
        ("remainders", "            j &= mask", "            j %= last + 1"),
        ("one byte a draw", "if mask > 255:", "if mask > 65535:"),
        ("two bytes of 256", "if mask > 255:", "if mask >= 255:"),
        ("most significant byte first", "j |= block[at] << 8", "j = j << 8 | block[at]"),
        (
            "masks of d for all draws",
            "        while mask >> 1 >= last:\n            mask >>= 1\n",
            "",
        ),
        ("a last value that is never drawn", "while j > last:", "while j >= last > 0:"),
        ("no exchange", "order[j] = order[j] & 32768 | order[i] & 32767", "pass"),
    ),
    *of(
        "entropy",
        ("a repetition of 8", "_REPETITIONS = const(9)", "_REPETITIONS = const(8)"),
        ("a repetition of 10", "_REPETITIONS = const(9)", "_REPETITIONS = const(10)"),
        ("a proportion of 70", "_PROPORTION = const(71)", "_PROPORTION = const(70)"),
        ("a proportion of 72", "_PROPORTION = const(71)", "_PROPORTION = const(72)"),
        ("windows of 511", "_WINDOW = const(512)", "_WINDOW = const(511)"),
        ("windows of 1024", "_WINDOW = const(512)", "_WINDOW = const(1024)"),
        (
            "a window's first byte does not count",
            "self._matches = 0\n            if value",
            "self._matches = -1\n            if value",
        ),
        (
            "a sample for all windows",
            "            if self._seen == 0:\n",
            "            if self._sample < 0:\n",
        ),
        (
            "runs that do not end",
            "self._run + 1 if value == self._last else 1",
            "self._run + (value == self._last)",
        ),
        (
            "a source that recovers",
            "        return not self.failed\n\n\n@",
            "        failed, self.failed = self.failed, False\n        return not failed\n\n\n@",
        ),
        ("a counter of 8 bits", "while value == 0 and j:", "while value == 0 and j > 15:"),
        (
            "a counter that counts after",
            "value = (counter[j] + 1) & 255\n            counter[j] = value",
            "value = (counter[j] + 1) & 255\n            counter[j] = value if j < 15 else (counter[j] + 1) & 254",
        ),
        ("seeds that replace the state", "self._state[i] ^= seed[i]", "self._state[i] = seed[i]"),
        (
            "a key that is not changed",
            "        self.generate(self._state)  # its",
            "        pass  # its",
        ),
        ("64 raw bytes a hash", "_RAW = const(128)", "_RAW = const(64)"),
        ("seeds of nine hashes' time", "_SEEDS = const(10)", "_SEEDS = const(8)"),
        ("a raw byte every two reports", "_PACE = const(4)", "_PACE = const(2)"),
        (
            "the other bytes left out",
            "            self._hash.update(self._also(32))\n",
            "            pass\n",
        ),
        (
            "seeds of one hash",
            'self._seed = b"" if self._seed else seed',
            'self._seed = b"" if self._seed else seed[:16]',
        ),
        ("no new seed", "            self._drbg.reseed(seed)\n", "            pass\n"),
        (
            "a pool that outlives its seed",
            "            self.discard()\n            self._drbg",
            "            self._drbg",
        ),
        ("no slices", "_SLICE = const(16)", "_SLICE = const(1)"),
        ("slices of 32", "_SLICE = const(16)", "_SLICE = const(32)"),
        ("pieces of 96 bytes", "_FRESH = const(192)", "_FRESH = const(96)"),
        (
            "a key for several reports",
            "        if self._requested:\n            self._new_key()\n        self._reports",
            "        self._reports",
        ),
        (
            "thresholds from the last byte",
            "self.byte() - (threshold >> 22)",
            "self.byte() - (threshold & 255)",
        ),
    ),
    *of(
        "hash_drbg",
        ("a constant with another label", 'b"\\x00" + v', 'b"\\x01" + v'),
        ("a reseed with another label", 'b"\\x01" + self._v', 'b"\\x00" + self._v'),
        (
            "a reseed without V",
            'b"\\x01" + self._v.to_bytes(55, "big") + bytes(seed)',
            'b"\\x01" + bytes(seed)',
        ),
        ("blocks of one V", "            self._data = (self._data + 1) % _SEED_RANGE\n", ""),
        ("an update with another label", 'b"\\x03"', 'b"\\x02"'),
        ("an update without C", " + self._c + ", " + "),
        ("an update without the count", " + self._requests)", ")"),
        ("requests counted from 0", "self._requests = 1", "self._requests = 0"),
        ("requests not counted", "        self._requests += 1\n", ""),
        ("a derivation of 448 bits", "(i, 0, 0, 1, 184)", "(i, 0, 0, 1, 192)"),
    ),
    *of(
        "sampler",
        (
            "window starts rounded down",
            "                    if u < 0:\n                        start += 1\n",
            "",
        ),
        ("windows beside their start", "            u += start\n", "            u += start + 1\n"),
        (
            "windows that wrap",
            "        elif u >= start:\n            u += window\n",
            "        elif u > start:\n            u += window\n",
        ),
        (
            "inside where it is outside",
            "                if u < 0:\n                    inside = 1",
            "                if u > 0:\n                    inside = 1",
        ),
        (
            "uniform that takes what is too large",
            "            while u >= count and at <= end:",
            "            while u > count and at <= end:",
        ),
        (
            "an equal byte decides",
            "            rest = (rest & 0x3FFFFF) << 8\n            if u:",
            "            rest = (rest & 0x3FFFFF) << 8\n            if True:",
        ),
        ("a grid rounded down", "                if u < 0:\n                    y += 1\n", ""),
        ("noise of the other sign", "if pool[at] & 1 == 0:", "if pool[at] & 1:"),
        ("a sign from the top bit", "if pool[at] & 1 == 0:", "if pool[at] < 128:"),
        (
            "noise that is not clamped above",
            "        elif y > highest:\n            y = highest\n",
            "",
        ),
        (
            "noise that is not clamped below",
            "        if y < 0:\n            y = 0\n        elif",
            "        if",
        ),
        ("noise of whole steps alone", "(offset + t * whole) // job[6]", "t * whole // job[6]"),
        (
            "Bernoulli of exp(-1) from k = 1",
            "                    kept = 1\n                    k = 2",
            "                    kept = 1\n                    k = 1",
        ),
        (
            "a mixture's second card without its place",
            "                    out[i] += card.first.symbols\n",
            "",
        ),
        (
            "a mixture's cards exchanged",
            "if stream.below(card.threshold):",
            "if not stream.below(card.threshold):",
        ),
        ("categories as values", "    card.job[9] = 1\n", "    card.job[9] = 0\n"),
    ),
    *of(
        "table",
        ("the nearest knot", "f -= c << 15\n", "f = 0\n"),
        ("symbols from the top", "out[i] = columns - left", "out[i] = left"),
    ),
    *of(
        "client",
        ("no policy", _ALLOWED, ""),
        ("no largest cost", "cost > client.largest or ", ""),
        ("the largest cost is too dear", "cost > client.largest or", "cost >= client.largest or"),
        ("costs of 32 bits", "cost > client.largest or", "cost & 0xFFFFFFFF > client.largest or"),
        ("no shapes", " or (client.shapes and not client.shapes >> card.shape & 1)", ""),
        ("no shapes allowed by 0", "client.shapes and not client.shapes", "not client.shapes"),
        (
            "shapes counted from 0",
            "client.shapes >> card.shape & 1",
            "client.shapes >> card.shape - 1 & 1",
        ),
        ("no slot", _SLOT, ""),
        ("no certificates", _CERTIFIED, ""),
        (
            "a certificate of the card before",
            "        self._certified = None\n        card = decode(data)",
            "        card = decode(data)",
        ),
        ("no health", _ENTROPY, ""),
        ("no budget", _BUDGET, "        left = cost\n"),
        ("the last micro-epsilon is kept", "        if cost > left:", "        if cost >= left:"),
        ("no pause", _PAUSE, ""),
        ("no tags", _TAG, ""),
        ("no old rounds", _OLD, ""),
        ("no bound on rounds", _TOO_FAR, ""),
        ("the client's bound for all", f"({_AHEAD})", "wire.CLIENT_AHEAD"),
        ("the fleet's bound for all", f"({_AHEAD})", "wire.FLEET_AHEAD"),
        (
            "bounds exchanged",
            _AHEAD,
            "wire.CLIENT_AHEAD if request.device == wire.FLEET else wire.FLEET_AHEAD",
        ),
        (
            "a bound on rounds one less",
            "        if number - last > (",
            "        if number - last >= (",
        ),
        (
            "any question again",
            "            if difference(self._question, 0, ledger.question, wire.KEY_BYTES):\n",
            "            if not len(ledger.report):\n",
        ),
        (
            "8 bytes of a question",
            "difference(self._question, 0, ledger.question, wire.KEY_BYTES)",
            "difference(memoryview(self._question), 24, ledger.question[24:], 8)",
        ),
        (
            "no question again",
            "difference(self._question, 0, ledger.question, wire.KEY_BYTES)",
            "True",
        ),
        (
            "an error of round 0",
            "self._device, self._number, code, detail)",
            "self._device, 0, code, detail)",
        ),
        ("errors without a detail", "            detail = error.detail\n", ""),
        (
            "the board speaks for its clients",
            "        self._device = device\n",
            "        self._device = 0\n",
        ),
        (
            "errors under the client's key",
            "        self._key = self._answer_key\n",
            "        self._key = client.key\n",
        ),
        ("a debit of another amount", _PAY, _PAY.replace("self._cost", "card.epsilon")),
        ("a debit of nothing", _PAY, "pass"),
        ("a report that is not stored", _PAY, _PAY.replace("report", 'b""')),
        ("a question that is not stored", _PAY, _PAY.replace("self._question", "bytes(32)")),
        ("no payment without a report", _PAY, "if n: " + _PAY),
        ("paid one by one", _AT_ONCE, "1"),
        ("more paid ahead than the client may", _AT_ONCE, "self._ahead"),
        (
            "boards of several pay ahead",
            "            if clients.count == 1:\n",
            "            if True:\n",
        ),
        ("the budget of the ledger alone", "min(client.budget, ledger.budget)", "ledger.budget"),
        ("the budget of the client alone", "min(client.budget, ledger.budget)", "client.budget"),
        ("a budget below 0", "max(0, left)", "left & 0xFFFFFFFF"),
        (
            "HELLO tells a budget below 0",
            "max(0, min(clients.budget, ledger.budget) - ledger.spent)",
            "min(clients.budget, ledger.budget) - ledger.spent & 0xFFFFFFFF",
        ),
        (
            "the last round that was paid ahead is read",
            "(self.board.in_place or ledger.reserved)",
            "False",
        ),
        (
            "records of another d",
            "        if self.round.d != records.d:\n",
            "        if self.round.d > records.d:\n",
        ),
        (
            "records beyond the file",
            " or client.start + client.records > records.count",
            " or client.start > records.count",
        ),
        ("no records", "if not held or ", "if "),
        (
            "d before whether there are any",
            "        if not held or client.start + client.records > records.count:\n"
            '            raise StorageError("client without records")\n        if self.round.d != records.d:\n'
            '            raise FrameError(wire.ERR_DATA, "records of another dimension", records.d)\n',
            "        if self.round.d != records.d:\n"
            '            raise FrameError(wire.ERR_DATA, "records of another dimension", records.d)\n'
            "        if not held or client.start + client.records > records.count:\n"
            '            raise StorageError("client without records")\n',
        ),
        ("no bound on records", "CLIENTS, self._bound)", "CLIENTS)"),
        ("symbols of 257 bytes", "if size > wire.MAX_PACKED:", "if size > wire.MAX_PACKED + 1:"),
        (
            "symbols of 255 bytes at most",
            "if size > wire.MAX_PACKED:",
            "if size >= wire.MAX_PACKED:",
        ),
        ("MODEL is answered", "if len(frame) and frame[0] == wire.MODEL:", "if False:"),
        (
            "the fleet's key is not looked at",
            "                frames.verify(self._fleet_key, frame)\n",
            "",
        ),
        ("an earlier epoch", "epoch > self._epoch:", "epoch:"),
        ("the same epoch", "epoch > self._epoch:", "epoch >= self._epoch:"),
        (
            "epochs below 2**31",
            "epoch > self._epoch:",
            "(epoch + 2**31) % 2**32 > (self._epoch + 2**31) % 2**32:",
        ),
        ("a key where there was none", "if self._fleet_key and epoch", "if epoch"),
        (
            "a fleet's key for another client",
            "        if device != clients.first:\n",
            "        if False:\n",
        ),
        ("a fleet's key under any tag", "        frames.verify(clients.key, frame)\n", ""),
        ("a hidden key is kept hidden", "frames.mask_fleet_key(clients.key, epoch, key)", "key"),
        (
            "a new key from the next start on",
            "            self._fleet_key = read_fleet(path)[0]\n",
            "",
        ),
        ("a new epoch from the next start on", "            self._epoch = epoch\n", ""),
        ("HELLO tells the epoch asked for", "budget, spent, self._epoch", "budget, spent, nonce"),
        (
            "HELLO tells how many records there are",
            "self.free(), self._bound,",
            "self.free(), clients.records,",
        ),
        ("HELLO tells that nothing was spent", "            spent = ledger.spent\n", ""),
        (
            "HELLO tells what is reserved as spent",
            "            spent = ledger.spent\n",
            "            spent = ledger._paid or ledger.spent\n",
        ),
        (
            "HELLO tells the ledger's budget",
            "budget = max(0, min(clients.budget, ledger.budget) - ledger.spent)",
            "budget = ledger.budget",
        ),
    ),
    *[  # the order of refusals: each two neighbours exchanged
        Wrong(order, "tern.client", first + between + second, second + between + first)
        for order, first, between, second in (
            ("fields before the tag", _TAG, _SPEAKS, _DECODE),
            ("the slot before the policy", _ALLOWED, "", _SLOT),
            ("certificates before the slot", _SLOT, "", _CERTIFIED),
            ("records before certificates", _CERTIFIED, "", _RECORDS),
            ("entropy before records", _RECORDS, "", _ENTROPY),
            ("the budget before entropy", _ENTROPY, "", _BUDGET),
            ("the pause before the budget", _BUDGET, "", _PAUSE),
        )
    ],
    *of(
        "client",
        ("the ledger before the fields", _DECODE, "        self._load(client.device)\n" + _DECODE),
        (
            "the bound on rounds after the card",
            _TOO_FAR + _ANSWERER + _CARD,
            _ANSWERER + _CARD + _TOO_FAR,
        ),
        (
            "the card before what is old",
            _LOAD,
            _LOAD + "        self._decode(self.round.card, self.round.k)\n",
        ),
        (
            "the policy before whether symbols fit",
            "            self._decode(request.card, request.k)\n",
            "            if request.k * decode(request.card).epsilon > client.largest:\n"
            '                raise FrameError(wire.ERR_POLICY, "too dear", client.largest)\n'
            "            self._decode(request.card, request.k)\n",
        ),
    ),
    *of(
        "storage",
        ("a pause of any length", "or pause > MAX_PAUSE ", ""),
        ("no reports at once", "not 1 <= ahead <= MAX_AHEAD", "not 0 <= ahead <= MAX_AHEAD"),
        ("1001 reports at once", "not 1 <= ahead <= MAX_AHEAD", "not 1 <= ahead <= MAX_AHEAD + 1"),
        ("999 reports at once", "not 1 <= ahead <= MAX_AHEAD", "not 1 <= ahead < MAX_AHEAD"),
        ("any magic of a fleet", "if magic != FLEET_MAGIC or", "if"),
        (
            "a new fleet's key alone",
            "FLEET_MAGIC, key, pause, slot, ahead, epoch, records, unit)",
            "FLEET_MAGIC, key, 0, 0, 1, epoch, 0, 0)",
        ),
        (
            "clients of any length",
            "if not self.count or self._size % CLIENT_BYTES:",
            "if not self.count:",
        ),
        ("a first id of 0", "if not self.first:", "if False:"),
        ("shape 0", "_SHAPES = const(0xFE)", "_SHAPES = const(0xFF)"),
        ("shape 8", "_SHAPES = const(0xFE)", "_SHAPES = const(0x1FE)"),
        ("no hierarchies", "_SHAPES = const(0xFE)", "_SHAPES = const(0xDE)"),
        ("no projections", "_SHAPES = const(0xFE)", "_SHAPES = const(0x7E)"),
        (
            "ids in any order",
            "if self.shapes & ~_SHAPES or (self.first and self.device != self.first + index):",
            "if self.shapes & ~_SHAPES:",
        ),
        ("all records count", "if self._most and self.records > self._most:", "if False:"),
        (
            "no more than the bound, and no fewer",
            "if self._most and self.records > self._most:",
            "if self._most:",
        ),
        ("any magic of records", "if magic != MAGIC or not", "if not"),
        (
            "records of any length",
            " or self._size != RECORDS_BYTES + 2 * self.count * (self.d + 1)",
            "",
        ),
        ("records cut short", "self._size != RECORDS_BYTES", "self._size < RECORDS_BYTES"),
        (
            "records that begin later",
            "self._read(RECORDS_BYTES + 2 * (self.d + 1) * index",
            "self._read(RECORDS_BYTES + 2 * (self.d + 1) * index + 2",
        ),
    ),
    *of(
        "gradient",
        ("the price of one value", "self._request.k * card.epsilon", "card.epsilon"),
        (
            "the price of all values",
            "self._request.k * card.epsilon",
            "self._request.values * card.epsilon",
        ),
    ),
    *of(
        "model",
        ("any address", "    frames.check_address(device, number)\n", ""),
        (
            "any model, exponent, classes and d",
            "    frames.check_question(model, 0, exponent, classes, d, 1, 0, 0, 0, 0)\n",
            "",
        ),
        (
            "bytes behind the parameters",
            "    frames.check_length(frame, wire.MODEL_FIELDS, 2 * classes * d)\n",
            "",
        ),
        ("any tag", "    frames.verify(key, frame)\n", ""),
        ("scores rounded down", " + (1 << d - 1) >> d", " >> d"),
        ("scores of the high bytes", "sums[0] + (sums[1] >> 8) + (1", "sums[0] + (1"),
        ("scores of the first class", "_AT + label * d, row", "_AT, row"),
        (
            "the probability of the other label",
            "(z >= 0) == (label > 0)",
            "(z >= 0) != (label > 0)",
        ),
        (
            "probabilities above a half",
            "return _ONE - p if (z >= 0) == (label > 0) else p",
            "return _ONE - p",
        ),
        ("the probability of the first class", "return self._out[label]", "return self._out[0]"),
        ("numbers that are not cut", "max(-_ONE, min(_ONE, z))", "z"),
        ("numbers that are cut above alone", "max(-_ONE, min(_ONE, z))", "min(_ONE, z)"),
        ("a score of 0 is of label 1", "_ONE if z > 0 else -_ONE", "_ONE if z >= 0 else -_ONE"),
        ("the last of equal classes", "if other > z:", "if other >= z:"),
        ("the last class is not looked at", "range(1, self.classes)", "range(1, self.classes - 1)"),
    ),
    *of(
        "many",
        ("the last client is not asked", "for i in range(count):", "for i in range(count - 1):"),
        ("errors left out", "            send(client.reply, n)\n", ""),
        (
            "rows without their tags",
            "        reports[end + 4 : end + n - 5] = reply[9:n]\n",
            "        reports[end + 4 : end + n - 5] = bytes(n - 9)\n",
        ),
        ("the round of another", "reports[1:5] = reply[5:9]", "reports[1:5] = reply[1:5]"),
        ("the size of a whole row", "n - _REPORT_BYTES)", "n)"),
    ),
    *of(
        "sums",
        (
            "a loss that is not certified",
            "return 2 * epsilon * self.c * self.t >= _MILLION * self.m * moved",
            "return True",
        ),
        ("the tally for nothing", "(self.radius**2 + self.tally**2)", "self.radius**2"),
        (
            "Laplace noise for a tally of nothing",
            "_MILLION * vectors * (self.radius + self.tally)",
            "_MILLION * vectors * self.radius",
        ),
        ("a device that is there or not", "vectors = 1 if self.unit else 2", "vectors = 1"),
        ("runs that are replaced", "vectors = 1 if self.unit else 2", "vectors = 2"),
        (
            "no norm after the rounding",
            "            if total > limit:\n",
            "            if False:\n",
        ),
        ("rounded up", "v = a + half >> down", "v = a + 2 * half - 1 >> down"),
        ("units that are never clipped", "clipped = size > card.reach", "clipped = False"),
        (
            "a tally of clipped units alone",
            "card.clipped if clipped else card.kept",
            "card.clipped if clipped else 0",
        ),
        (
            "runs of one record more",
            "number = place // unit if unit else 0",
            "number = place // (unit + 1) if unit else 0",
        ),
        (
            "devices as records",
            "number = place // unit if unit else 0",
            "number = place // (unit or 1)",
        ),
        ("totals of any size", "            if rows >= _UNHELD:\n", "            if False:\n"),
        (
            "a multiple of the board's unit",
            "self._sum.unit != self.unit",
            "self._sum.unit % max(1, self.unit)",
        ),
        (
            "no sum over the whole device",
            "if self._sum.unit and self._sum.unit",
            "if self._sum.unit",
        ),
        (
            "records of a board that protects itself",
            "self._sum.unit != self.unit",
            "self.unit and self._sum.unit != self.unit",
        ),
        (
            "rho for a ledger in epsilon",
            "            if measure != RHO:\n",
            "            if False:\n",
        ),
        (
            "pure cards at epsilon in a ledger in rho",
            "cost = cost // card.epsilon * rho(card.epsilon)",
            "pass",
        ),
        ("symbols rounded down", "half = 1 << card.coarse >> 1", "half = 0"),
        (
            "categories from 1",
            "min(self._asked[i], request.classes - 1)",
            "min(self._asked[i] - 1, request.classes - 1)",
        ),
        (
            "negative categories",
            "max(0, min(self._asked[i], request.classes - 1))",
            "min(self._asked[i], request.classes - 1)",
        ),
        ("one feature's categories", "            at += request.classes\n", ""),
    ),
    *of(
        "noise",
        ("a negative zero", "if z or negative == 0:", "if True:"),
        (
            "exp(-a / n) for exp(-a b / (n m))",
            "or (m > 1 and int(uniform(pool, job, m)) >= b)",
            "or False",
        ),
        ("no factorials", "or (k > 1 and int(uniform(pool, job, k)) > 0)", "or False"),
        ("Laplace noise for Gaussian", "if double_c:", "if False:"),
        ("the last factor left out", "done = int(decays(pool, job, e, double_c, g, wide))", "pass"),
        (
            "a second factor less",
            "while i and done:\n                        done = int(decays(pool, job, g, wide, 1, 1))",
            "while False:\n                        done = int(decays(pool, job, g, wide, 1, 1))",
        ),
        ("positive noise", "if negative:\n", "if False:\n"),
        ("numbers of one byte", "if mask > 255:", "if False:"),
        ("uniform up to n", "while u >= n and at <= end:", "while u > n and at <= end:"),
    ),
    *of(
        "projection",
        ("256 bytes of bits", "_MOST_BITS = const(7)", "_MOST_BITS = const(8)"),
        ("64 directions at most", "_MOST_BITS = const(7)", "_MOST_BITS = const(6)"),
        ("one direction", "1 <= n <= _MOST_BITS", "0 <= n <= _MOST_BITS"),
        ("no likely direction", "1 <= self.k <= 1 << n", "0 <= self.k <= 1 << n"),
        ("as many likely directions as symbols", "1 <= self.k <= 1 << n", "1 <= self.k <= 2 << n"),
        ("fewer likely directions than N", "1 <= self.k <= 1 << n", "1 <= self.k < 1 << n"),
        (
            "likely ones that are not likelier",
            "1 <= self.b <= self.a <= _MOST_TOTAL",
            "1 <= self.b <= _MOST_TOTAL",
        ),
        ("weights that must differ", "1 <= self.b <= self.a", "1 <= self.b < self.a"),
        ("an impossible direction", "1 <= self.b <= self.a", "0 <= self.b <= self.a"),
        ("no radius", "1 <= self.radius <= _MOST_RADIUS", "0 <= self.radius <= _MOST_RADIUS"),
        ("any radius", "1 <= self.radius <= _MOST_RADIUS", "1 <= self.radius"),
        ("a smaller radius", "self.radius <= _MOST_RADIUS", "self.radius < _MOST_RADIUS"),
        ("any weights", "self.total > _MOST_TOTAL", "False"),
        ("weights below 2**20", "self.total > _MOST_TOTAL", "self.total >= _MOST_TOTAL"),
        (
            "any length",
            "len(data) != _BODY_AT + calcsize(BODY)",
            "len(data) < _BODY_AT + calcsize(BODY)",
        ),
        (
            "a certificate of the whole",
            "self.a << EXP_BITS <= exp_lower(epsilon) * self.b",
            "self.a << EXP_BITS <= exp_lower(epsilon) * self.total",
        ),
        (
            "no certificate",
            "return self.a << EXP_BITS <= exp_lower(epsilon) * self.b",
            "return True",
        ),
        (
            "a certificate in 64 bits",
            "exp_lower(epsilon) * self.b\n",
            "exp_lower(epsilon) * self.b % 2**64\n",
        ),
        ("lengths of the highest bits", "((a ^ sign) - sign + 4) >> 3", "((a ^ sign) - sign) >> 3"),
        ("lengths without a sign", "a = ((a ^ sign) - sign + 4) >> 3", "a = (a + 4) >> 3"),
        (
            "a root rounded up",
            "root += bit * (1 + ((total - a * a) >> 31))",
            "root += bit * (1 + ((total - a * a + 2 * a) >> 31))",
        ),
        ("a root of 14 bits", "bit = 1 << 14\n", "bit = 1 << 13\n"),
        ("values from before behind the last", "        out[j] = nothing\n", "        pass\n"),
        ("a top of N alone", "14 + 2 * n", "14 + n"),
        ("another rotation", 'b"rotation"', 'b"rotations"'),
        ("the same rotation for all", "hashlib.sha256(question)", "hashlib.sha256()"),
        ("two symbols", "request.k > 1 or request.values", "request.values"),
        ("more values than N", "or request.values > card.body.size ", ""),
        (
            "fewer values than N",
            "request.values > card.body.size",
            "request.values >= card.body.size",
        ),
        ("of any model", " or model not in wire.SCALED", ""),
        ("of no values", "model not in wire.SCALED", "model not in wire.GRADIENTS"),
        ("of linear models", "model not in wire.SCALED", "model not in (1, 2, 3, 8)"),
        ("a gradient of another model", "            self._answerer = self._others[model]\n", ""),
        ("half of the signs for 128 values", "if size <= 64", "if size <= 128"),
        (
            "a price for each value",
            "return card.epsilon\n",
            "return card.epsilon * request.values\n",
        ),
        (
            "a sign that is wrong once too often",
            "radius + size - 1 - self",
            "radius + size - 2 - self",
        ),
        ("a sign that is right once too often", "radius + size - 1 - self", "radius + size - self"),
        (
            "a length of the sign's full range",
            "self._uniform(stream, 2 * radius)",
            "self._uniform(stream, radius + radius // 2)",
        ),
        (
            "weights drawn first",
            "        turned = self",
            "        self._uniform(stream, card.total)\n        turned = self",
        ),
        ("a number too many that is near", "rest = u - k * card.a", "rest = u - k * card.a - 1"),
        (
            "ranks of opposites that are the next ones",
            "rank = rest ^",
            "rest += near & 1\n        rank = rest ^",
        ),
        ("opposites that are not", "(far ^ (far ^ 1) & near)", "(far & ~near)"),
        ("others of one sign", "(far ^ (far ^ 1) & near)", "near"),
        ("others from the first rank", "k + (far >> 1)", "(far >> 1)"),
        ("a symbol of before", "        out[0] = 0\n", ""),
    ),
    *of(
        "rotation",
        ("two rotations", "while begin < n + n + n:", "while begin < n + n:"),
        ("the same signs twice", "at = begin + j\n", "at = j\n"),
        ("signs from the highest bit", "(at & 7)", "(7 - (at & 7))"),
        ("signs where the bit is 0", "sign = 0 - (signs[", "sign = -1 + (signs["),
        ("no last step of the transform", "while h < n:", "while h + h < n:"),
        ("differences the other way", "vector[k] = a - b", "vector[k] = b - a"),
        (
            "ranks of values with their signs",
            "vector[j] = ((vector[j] ^ sign) - sign << 1) - sign",
            "vector[j] = (vector[j] << 1) - sign",
        ),
        ("symbols without a sign", "(vector[j] & 1))", "0)"),
        ("the other sign", "(vector[j] & 1))", "(1 - (vector[j] & 1)))"),
        (
            "the sign decides between equal ones",
            "((vector[j] ^ size) >> 1) - 1 >> 31",
            "(vector[j] ^ size) - 1 >> 31",
        ),
        ("of equal ones the last first", "rest = wanted - n  #", "rest = n - 1 - wanted  #"),
        (
            "of equal ones the first alone",
            "rest += same\n",
            "rest = rest if same and rest > 0 else rest + same\n",
        ),
        ("ranks from the smallest", "more = n - wanted - 1\n", "more = wanted\n"),
        ("ranks from 1", "more = n - wanted - 1\n", "more = n - wanted\n"),
        ("sizes of multiples of 8", "while bit > 1:", "while bit > 8:"),
    ),
]


@pytest.mark.slow
@pytest.mark.sampled(15)
@pytest.mark.parametrize("mutant", WRONG, ids=lambda mutant: f"{mutant.module[5:]}: {mutant.what}")
def test_a_wrong_implementation_fails_a_vector(mutant):
    assert caught(mutant, *CHECKS.get(mutant.module, ("test_rounds.py",)))


def test_every_text_to_replace_is_once_in_its_module():
    assert not misplaced(WRONG)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("module", sorted({mutant.module for mutant in WRONG}))
def test_the_right_implementation_passes_all_vectors(module):
    assert (
        caught(Wrong("nothing", module, "", ""), *CHECKS.get(module, ("test_rounds.py",))) is None
    )
