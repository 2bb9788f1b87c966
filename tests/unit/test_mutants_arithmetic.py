"""Wrong implementations of cards, arithmetic, draws and ledgers: each fails a vector."""

import pytest
from mutants import Wrong, caught, misplaced, of

# The files of tests/device whose vectors find them.
CHECKS = {
    "tern.counter": ("test_ledger.py",),
    "tern.ledger": ("test_ledger.py",),
    "tern.sampler": ("test_sampler.py",),
    "tern.table": ("test_sampler.py",),
}
OTHERS = ("test_card.py", "test_fixed.py", "test_arithmetic.py")

_RATIO = "least, most in card.extremes:"
_LAPLACE = "epsilon * card.t >= 2_000_000 * (card.s << card.grid_bits)"
_COUNTS = "card.extremes.append((min(counts), max(counts)))"
_LO = "-_MAX_SCALE <= lowest <= -one and one <= highest <= _MAX_SCALE"
_SCALE = "1 <= t <= _MAX_SCALE and 1 <= s <= _MAX_SCALE"
_SPAN = "highest - lowest <= _MAX_SPAN"
_KEEPS = "if most << EXP_BITS > bound * least:"
_BOTH = "certify(card.first, epsilon) and certify(card.second, epsilon)"

WRONG = [
    *of(
        "card",
        (
            "a table certified by its first and last knots",
            _COUNTS,
            "card.extremes.append((min(counts[0], counts[-1]) if min(counts) > 0 else 0, max(counts[0], counts[-1])))",
        ),
        (
            "a table certified by its first knot against the others",
            _COUNTS,
            "card.extremes.append((min(counts), counts[0]))",
        ),
        (
            "a table whose last symbol is not certified",
            _RATIO,
            "least, most in card.extremes[:-1]:",
        ),
        (
            "a table whose first symbol is not certified",
            _RATIO,
            "least, most in card.extremes[1:]:",
        ),
        (
            "a ratio of tables in 64 bits",
            _KEEPS,
            "if most << EXP_BITS > bound * least & (1 << 64) - 1:",
        ),
        ("a count of 0 is allowed", "card.extremes[j][0] > 0", "card.extremes[j][0] >= 0"),
        ("p = 6", "MAX_KNOT_BITS = const(5)", "MAX_KNOT_BITS = const(6)"),
        ("17 levels", "MAX_LEVELS = const(16)", "MAX_LEVELS = const(17)"),
        ("one level", "2 <= m <= MAX_LEVELS", "1 <= m <= MAX_LEVELS"),
        ("levels that may be equal", "levels[j - 1] < levels[j]", "levels[j - 1] <= levels[j]"),
        ("257 levels of a window", "2 <= n <= MAX_SYMBOLS", "2 <= n <= MAX_SYMBOLS + 1"),
        (
            "a mixture of 257 symbols",
            "card.symbols <= MAX_SYMBOLS",
            "card.symbols <= MAX_SYMBOLS + 1",
        ),
        (
            "a mixture of 255 symbols at most",
            "card.symbols <= MAX_SYMBOLS",
            "card.symbols < MAX_SYMBOLS",
        ),
        ("a card of 2,049 bytes", "len(data) <= MAX_CARD", "len(data) <= MAX_CARD + 1"),
        ("a card of 2,047 bytes at most", "len(data) <= MAX_CARD", "len(data) < MAX_CARD"),
        ("a window as wide as its levels", "1 <= w < n", "1 <= w <= n"),
        (
            "a window whose outside is not certified",
            " and outside << EXP_BITS <= bound * inside",
            "",
        ),
        (
            "a window whose inside is not certified",
            "inside << EXP_BITS <= bound * outside and ",
            "",
        ),
        (
            "a window without its width",
            "(T - card.threshold) * card.window",
            "(T - card.threshold)",
        ),
        ("epsilon 20 is too much", "epsilon <= MAX_EPSILON", "epsilon < MAX_EPSILON"),
        ("epsilon 0", "1 <= epsilon <= MAX_EPSILON", "0 <= epsilon <= MAX_EPSILON"),
        (
            "laplace's certificate in 32 bits, unsigned",
            _LAPLACE,
            "epsilon * card.t & 0xFFFFFFFF >= (2_000_000 * (card.s << card.grid_bits)) & 0xFFFFFFFF",
        ),
        (
            "laplace's certificate with 32 bits on its left",
            _LAPLACE,
            "(epsilon * card.t & 0xFFFFFFFF) >= 2_000_000 * (card.s << card.grid_bits)",
        ),
        (
            "laplace's certificate with 32 bits on its right",
            _LAPLACE,
            "epsilon * card.t >= (2_000_000 * (card.s << card.grid_bits) & 0xFFFFFFFF)",
        ),
        (
            "laplace's certificate with 32 bits for 2**q s alone",
            _LAPLACE,
            "epsilon * card.t >= 2_000_000 * (card.s << card.grid_bits & 0xFFFFFFFF)",
        ),
        (
            "laplace's certificate in 32 bits, signed",
            _LAPLACE,
            "(epsilon * card.t + 2**31) % 2**32 >= (2_000_000 * (card.s << card.grid_bits) + 2**31) % 2**32",
        ),
        (
            "laplace certified for a change of 1",
            _LAPLACE,
            "epsilon * card.t >= 1_000_000 * (card.s << card.grid_bits)",
        ),
        ("laplace's t unchecked", _SCALE, "1 <= t and 1 <= s <= _MAX_SCALE"),
        ("laplace's s unchecked", _SCALE, "1 <= t <= _MAX_SCALE and 1 <= s"),
        ("laplace's lo unchecked", _LO, "one <= highest <= _MAX_SCALE"),
        ("laplace's hi unchecked", _LO, "-_MAX_SCALE <= lowest <= -one"),
        (
            "laplace's span in 32 bits, with lo unchecked from below",
            f'{_LO}, "outputs out of bounds")\n    _require({_SPAN}',
            'lowest <= -one and one <= highest <= _MAX_SCALE, "")\n'
            "    _require((highest - lowest + 2**31) % 2**32 - 2**31 <= _MAX_SPAN",
        ),
        (
            "laplace's span in 32 bits, with hi unchecked from above",
            f'{_LO}, "outputs out of bounds")\n    _require({_SPAN}',
            '-_MAX_SCALE <= lowest <= -one and one <= highest, "")\n'
            "    _require((highest - lowest + 2**31) % 2**32 - 2**31 <= _MAX_SPAN",
        ),
        ("laplace with 65,537 outputs", _SPAN, "highest - lowest <= _MAX_SPAN + 1"),
        ("a mixture whose first card alone is certified", _BOTH, "certify(card.first, epsilon)"),
        ("a mixture whose second card alone is certified", _BOTH, "certify(card.second, epsilon)"),
        (
            "a mixture whose inner claims count",
            _BOTH,
            "certify(card.first) and certify(card.second)",
        ),
        (
            "a mixture of laplace cards",
            "card.shape == LAPLACE and not nested",
            "card.shape == LAPLACE",
        ),
        ("a hash of other bytes", ".digest()[:8]", ".digest()[-8:]"),
    ),
    *of(
        "fixed",
        (
            "exp_lower too high by 2**-30",
            "return total >> _GUARD_BITS",
            "return (total >> 20) + (total >> 50)",
        ),
        (
            "exp_lower too low by 2**-30",
            "return total >> _GUARD_BITS",
            "return (total >> 20) - (total >> 50)",
        ),
        ("exp_lower one too high", "return total >> _GUARD_BITS", "return (total >> 20) + 1"),
        ("exp_lower cut to 64 bits", "return total >> _GUARD_BITS", "return (total >> 20) % 2**64"),
        (
            "exp_lower at most 2**64 - 1",
            "return total >> _GUARD_BITS",
            "return min(total >> 20, 2**64 - 1)",
        ),
        ("exp_lower with terms of 64 bits", "// (n * _MICRO)", "// (n * _MICRO) % 2**64"),
        ("exp_lower without guard bits", "_GUARD_BITS = const(20)", "_GUARD_BITS = const(0)"),
        ("exp_lower of few terms", "while term:", "while term and n < 40:"),
        ("a range of values up to 1 alone", "if value > ONE:", "if value >= 2 * ONE:"),
    ),
    *of(
        "lhp",
        (
            "upper ends at the bounds themselves",
            "self.bounds[i - 1] - 1 if i else ONE",
            "self.bounds[i - 1] if i else ONE",
        ),
        (
            "upper ends two below the bounds",
            "self.bounds[i - 1] - 1 if i else ONE",
            "self.bounds[i - 1] - 2 if i else ONE",
        ),
        (
            "lower ends one above the bounds",
            "self.bounds[i] if i < m - 1",
            "self.bounds[i] + 1 if i < m - 1",
        ),
        ("lower ends of ranges alone", "while i < m + m:", "while i < m:"),
        ("products of 64 bits", "found[i] << 60 | ", "found[i] << 60 & 2**64 - 1 | "),
        (
            "certificates of 64 bits",
            _KEEPS,
            "if (most << EXP_BITS) % 2**64 > bound * least % 2**64:",
        ),
        (
            "certificates of 96 bits",
            _KEEPS,
            "if (most << EXP_BITS) % 2**96 > bound * least % 2**96:",
        ),
        (
            "certificates of 128 bits",
            _KEEPS,
            "if (most << EXP_BITS) % 2**128 > bound * least % 2**128:",
        ),
        ("one symbol of two", "for _ in range(2):", "for _ in range(1):"),
        (
            "the last report not certified",
            "for reported in range(m):",
            "for reported in range(m - 1):",
        ),
        ("P instead of P (m - 1)", "times = m - 1\n", "times = 1\n"),
        ("17 ranges", "_MAX_RANGES = const(16)", "_MAX_RANGES = const(17)"),
        ("15 ranges at most", "_MAX_RANGES = const(16)", "_MAX_RANGES = const(15)"),
        ("bounds that may be equal", "bounds[i - 1] <= bounds[i]", "bounds[i - 1] < bounds[i]"),
        ("a bound at -1", "bounds[-1] <= -ONE", "bounds[-1] < -ONE"),
        ("value cards of any levels", " or value.levels != (-1, 1)", ""),
        ("level cards of any window", " or level.window != 1", ""),
    ),
    *of(
        "gradient",
        ("predictions rounded down", "z = high + (1 << shift - 1) >> shift", "z = high >> shift"),
        (
            "predictions whose ties go down",
            "z = high + (1 << shift - 1) >> shift",
            "z = (high << 1) + (1 << shift) - 1 >> shift + 1",
        ),
        ("products rounded down", "((part * x + half) >> shift)", "(part * x >> shift)"),
        (
            "products rounded towards 0",
            "((part * x + half) >> shift)",
            "int((part * x + half) / 2**shift)",
        ),
        ("a mean rounded down", "((v << up) + half) // n", "(v << up) // n"),
        ("a mean rounded towards 0", "((v << up) + half) // n", "int(((v << up) + half) / n)"),
        (
            "a gradient that is not clipped below",
            "            v = -16384\n",
            "            v = -16385\n",
        ),
        (
            "a gradient clipped record by record",
            "totals[j] = totals[j] + (whole * x << fine)",
            "totals[j] = totals[j] + (max(-1, min(1, whole)) * x << fine)",
        ),
        (
            "labels of 0 count as +1",
            "margin = z if label > 0 else -z",
            "margin = z if label >= 0 else -z",
        ),
        (
            "an SVM whose label of 0 counts as +1",
            "if label > 0:\n                residual = -_ONE",
            "if label >= 0:\n                residual = -_ONE",
        ),
        (
            "an SVM whose kink has a gradient",
            "-_ONE if z < _ONE else 0",
            "-_ONE if z <= _ONE else 0",
        ),
        (
            "an SVM whose margin is rounded",
            "z = high >> shift  #",
            "z = high + (1 << shift - 1) >> shift  #",
        ),
        ("an SVM that forgets the last bits below -1", "(z == -_ONE and rest)", "False"),
        ("an SVM whose kink at -1 has a gradient", "(z == -_ONE and rest)", "z == -_ONE"),
        (
            "a linear residual of twice the error",
            "min(limit, z - label)",
            "min(limit, 2 * (z - label))",
        ),
        ("a linear residual with the other sign", "min(limit, z - label)", "min(limit, label - z)"),
        ("a linear residual without bounds", "max(-limit, min(limit, z - label))", "z - label"),
        (
            "a residual's bound of 1025",
            "_MAX_RESIDUAL = const(2047)",
            "_MAX_RESIDUAL = const(1025)",
        ),
        (
            "a sigmoid without lines between its knots",
            "here - (step * (t & 2047) + 1024 >> 11)",
            "here",
        ),
        (
            "a sigmoid rounded down between its knots",
            "(step * (t & 2047) + 1024 >> 11)",
            "(step * (t & 2047) >> 11)",
        ),
        ("a sigmoid that ends at 9", "_TAIL = const(10 * 16384)", "_TAIL = const(9 * 16384)"),
        ("a range of 12 all in the products", "MAX_FINE = const(10)", "MAX_FINE = const(12)"),
        ("a range all in the mean", "MAX_FINE = const(10)", "MAX_FINE = const(0)"),
        (
            "a batch that begins with the same record each round",
            "(round_number - 1) % count * n % count",
            "0",
        ),
        (
            "a batch that begins a record later",
            "(round_number - 1) % count * n % count",
            "round_number % count * n % count",
        ),
        (
            "a batch that moves on by one",
            "(round_number - 1) % count * n % count",
            "(round_number - 1) % count",
        ),
        (
            "a batch of 33",
            "min(batch or count, count, MAX_BATCH)",
            "min(batch or count, count, MAX_BATCH + 1)",
        ),
        (
            "a batch of more records than there are",
            "min(batch or count, count, MAX_BATCH)",
            "min(batch or count, MAX_BATCH)",
        ),
    ),
    *of(
        "local",
        (
            "steps rounded down",
            "g = g + (1 << (0 - shift - 1)) >> (0 - shift)",
            "g = g >> (0 - shift)",
        ),
        ("steps up the gradient", "w = fine[j] - g", "w = fine[j] + g"),
        ("weights that are not held", "if w > 8388352:", "if w > 1 << 40:"),
        (
            "weights down to -32768",
            "elif w < -8388352:\n            w = -8388352",
            "elif w < -8388608:\n            w = -8388608",
        ),
        ("mantissas rounded down", "(w + 128) >> 8", "w >> 8"),
        ("shares rounded down", "if rest << 1 >= tau:", "if False:"),
        ("shares whose ties go to 0", "if rest << 1 >= tau:", "if rest << 1 > tau:"),
        (
            "shares in the direction of the gradient",
            "        if moved < 0:\n            q = 0 - q",
            "        if moved > 0:\n            q = 0 - q",
        ),
        ("a learning rate of half", "shift = -6 - exponent - rate", "shift = -7 - exponent - rate"),
        ("one epoch", "for _ in range(epochs):", "for _ in range(1):"),
        ("last batches left out", "while i < count:\n", "while i + size <= count:\n"),
        (
            "the gradient at the round's parameters",
            "gradient.add(model, self._params,",
            "gradient.add(model, params,",
        ),
        ("batches of 33", "batch_size(request.batch, count)", "min(request.batch or count, count)"),
        (
            "classes whose first rows alone move",
            "step(self._fine, self._mean, self._params, shift, n)",
            "step(self._fine, self._mean, self._params, shift, gradient.d)",
        ),
        (
            "classes whose first rows alone are reported",
            "shares(self._fine, self._start, tau, out, self.gradient.values)",
            "shares(self._fine, self._start, tau, out, self.gradient.d)",
        ),
    ),
    *of(
        "inference",
        (
            "probabilities rounded to nearest",
            "p = (z[i] << 14) // total",
            "p = ((z[i] << 14) + total // 2) // total",
        ),
        ("probabilities off the grid", "out[i] = p - (p & low)", "out[i] = p"),
        (
            "probabilities rounded to the nearest grid point",
            "out[i] = p - (p & low)",
            "out[i] = (p + (low >> 1)) & ~low",
        ),
        (
            "exponentials that end at 11",
            "_BEYOND = const(12 * 16384)",
            "_BEYOND = const(11 * 16384)",
        ),
        ("exponentials without lines", "part -= step * (t & 255) + 128 >> 8", "part -= 0"),
        (
            "exponentials rounded down",
            "return whole * part + 8192 >> 14",
            "return whole * part >> 14",
        ),
        (
            "lines rounded down",
            "part -= step * (t & 255) + 128 >> 8",
            "part -= step * (t & 255) >> 8",
        ),
        ("predictions of classes rounded down", "(1 << shift - 1) >> shift\n", "0 >> shift\n"),
        (
            "the record after",
            "(request.round - 1) % client.records",
            "request.round % client.records",
        ),
        ("always the first record", "(request.round - 1) % client.records", "0"),
        ("the last of equal labels", "if p[i] > p[label]", "if p[i] >= p[label]"),
        ("the least likely label", "if p[i] > p[label]", "if p[i] < p[label]"),
        (
            "a label that is never the last",
            "for i in range(1, request.classes)",
            "for i in range(1, request.classes - 1)",
        ),
        (
            "labels on a coarse grid",
            "probabilities(self._row, p)",
            "probabilities(self._row, p, 8)",
        ),
        ("a probability for a label", "p[0] = label", "pass"),
    ),
    *of(
        "softmax",
        (
            "residuals with the other sign",
            "probabilities[i] - (_ONE if row[d] == i else 0)",
            "(_ONE if row[d] == i else 0) - probabilities[i]",
        ),
        ("labels that count from 1", "row[d] == i else 0", "row[d] == i + 1 else 0"),
        (
            "no residual for the other classes",
            "(_ONE if row[d] == i else 0)\n",
            "(_ONE if row[d] == i else probabilities[i])\n",
        ),
        ("products that are never fine", "self._rows[i], d, self._fine)", "self._rows[i], d, 0)"),
        ("records that do not count", "self.count += 1", "self.count = 1"),
        ("one row for all classes", "totals[i : i + d] for i in", "totals[:d] for i in"),
    ),
    *of(
        "collect",
        ("values without a range", "saturate(value << request.range)", "saturate(value)"),
        (
            "values that are not clipped",
            "saturate(value << request.range)",
            "(value << request.range) % 2**15",
        ),
        (
            "categories without an upper end",
            "max(0, min(value, card.symbols - 1))",
            "max(0, value)",
        ),
        (
            "categories up to M",
            "max(0, min(value, card.symbols - 1))",
            "max(0, min(value, card.symbols))",
        ),
        (
            "negative categories",
            "max(0, min(value, card.symbols - 1))",
            "min(value, card.symbols - 1)",
        ),
        (
            "categories that are never hashed",
            "CATEGORIES and request.range",
            "CATEGORIES and False",
        ),
        (
            "the hash of another round",
            "hash_of(client.device, request.round)",
            "hash_of(client.device, 1)",
        ),
        ("the hash of the fleet", "hash_of(client.device,", "hash_of(2**32 - 1,"),
        ("hashes without b", "+ b) % PRIME % card", ") % PRIME % card"),
        ("hashes of negative categories", "max(0, min(value, PRIME - 1))", "min(value, PRIME - 1)"),
        ("8191 is hashed, too", "max(0, min(value, PRIME - 1))", "max(0, min(value, PRIME))"),
        ("another prime", "PRIME = const(8191)", "PRIME = const(8209)"),
        (
            "the record after",
            "(request.round - 1) % client.records",
            "request.round % client.records",
        ),
        ("all the features, asked for or not", "if request.asked[j]:", "if True:"),
    ),
    *of(
        "ledger",
        (
            "the check is not looked at",
            'or pack("<I", crc32(view[:end])) != view[end : end + _CHECK]',
            "",
        ),
        (
            "a file cut within its check is read",
            "size < end + _CHECK\n",
            "size < end + _CHECK - 1\n",
        ),
        ("any magic will do", "if magic != MAGIC:", "if False:"),
        (
            "more may be spent than the budget",
            "not spent <= budget <= MAX_BUDGET",
            "budget > MAX_BUDGET",
        ),
        ("any budget", "not spent <= budget <= MAX_BUDGET", "spent > budget"),
        ("round 2**30", "or last > _MAX_ROUND", "or last > _MAX_ROUND + 1"),
        ("state 3", "or state > RESERVED\n", "or state > RESERVED + 1\n"),
        ("a reserved ledger with a question", "or (state == RESERVED and asked)", ""),
        ("measure 2", "or measure > RHO\n", "or measure > RHO + 1\n"),
        (
            "any ledger counts epsilon",
            "        self.measure = measure\n        self._fit",
            "        self._fit",
        ),
        (
            "a counter is not looked at",
            "            attach_counter(self, board)",
            "            pass",
        ),
        ("any length of a report", "_MIN_REPORT <= n <= _MAX_REPORT if", "True if"),
        ("a report in every state", "state == ANSWERED else n == 0)", "True else True)"),
        ("spent while idle", "(spent or asked if", "(asked if"),
        ("a question while idle", "(spent or asked if", "(spent if"),
        ("idle at round 0 only", "(spent or asked if", "(spent or asked or last if"),
        ("answered for nothing", "not (spent and last)", "not last"),
        ("answered without a round", "not (spent and last)", "not spent"),
        ("a free report", "not 0 < cost <= left", "not 0 <= cost <= left"),
        ("one micro-epsilon too much", "not 0 < cost <= left", "not 0 < cost <= left + 1"),
        ("the last micro-epsilon is kept", "not 0 < cost <= left", "not 0 < cost < left"),
        (
            "a payment for round 2**30",
            "round_number <= _MAX_ROUND\n",
            "round_number <= _MAX_ROUND + 1\n",
        ),
        (
            "the last round is not answered",
            "round_number <= _MAX_ROUND\n",
            "round_number < _MAX_ROUND\n",
        ),
        (
            "reports of any length",
            "not (_MIN_REPORT <= len(report) <= _MAX_REPORT or not report)",
            "False",
        ),
        ("what came to nothing is refused", "<= _MAX_REPORT or not report)", "<= _MAX_REPORT)"),
        (
            "what came to nothing is called answered",
            "            self.state = RESERVED\n        self._set(q",
            "        self._set(q",
        ),
        (
            "what came to nothing keeps its question",
            "            question = _NO_QUESTION\n            self.state",
            "            self.state",
        ),
        (
            "the longest report is refused",
            "<= _MAX_REPORT or not report)",
            "< _MAX_REPORT or not report)",
        ),
        ("covered whatever the round", "round_number <= self._until and", ""),
        ("covered whatever the cost", "and cost <= self._paid - spent", "and self._paid"),
        (
            "the round after those reserved",
            "round_number <= self._until",
            "round_number <= self._until + 1",
        ),
        (
            "the last round reserved is paid again",
            "round_number <= self._until",
            "round_number < self._until",
        ),
        (
            "covered to the last micro-epsilon but one",
            "cost <= self._paid - spent",
            "cost < self._paid - spent",
        ),
        ("more is reserved than the budget pays for", "min(ahead, left // cost, ", "min(ahead, "),
        ("rounds above 2**30 - 1 are reserved", ", _MAX_ROUND - round_number + 1)", ")"),
        (
            "the last round is not reserved",
            "_MAX_ROUND - round_number + 1)",
            "_MAX_ROUND - round_number)",
        ),
        ("one is reserved", "if ahead > 1:", "if ahead > 0:"),
        ("two are not reserved", "if ahead > 1:", "if ahead > 2:"),
        ("one report is paid of those reserved", "spent + ahead * cost\n", "spent + cost\n"),
        ("a round too many is over", "round_number + ahead - 1\n", "round_number + ahead\n"),
        ("a round too few is over", "round_number + ahead - 1\n", "round_number + ahead - 2\n"),
        (
            "reserved with the question",
            '_set(_NO_QUESTION, b"")\n                self',
            '_set(question, b"")\n                self',
        ),
        (
            "reserved, but called answered",
            "self.state = RESERVED\n                self",
            "self.state = ANSWERED\n                self",
        ),
        (
            "reserved with the report",
            'b"")\n                self._write',
            "report)\n                self._write",
        ),
        (
            "all that is reserved counts as spent",
            "self.spent = spent + cost\n",
            "self.spent += cost\n",
        ),
        ("nothing is spent", "self.spent = spent + cost\n", "self.spent = spent\n"),
        (
            "another report of those paid ahead is kept in the file",
            "        if not covered:\n            self._write(path)",
            "        self._write(path)",
        ),
        (
            "nothing is written",
            "        if not covered:\n            self._write(path)",
            "        pass",
        ),
        (
            "the question is not kept",
            "_QUESTION, question, self.state",
            "_QUESTION, _NO_QUESTION, self.state",
        ),
        (
            "the report is not kept",
            "_HEADER, report if MICROPYTHON else bytes(report))",
            "_HEADER, bytes(len(report)))",
        ),
        (
            "a short report leaves the length of a longer one",
            "self.measure, len(report))",
            "self.measure, max(len(report), 20))",
        ),
        ("the check leaves out the report", "crc32(self._checked)", "crc32(self._checked[:54])"),
    ),
    *of(
        "counter",
        ("a payment burns one fuse", "        mark(fuses, begun, 0)\n        pack", "        pack"),
        (
            "a payment burns no second fuse",
            "        mark(fuses, begun, 1)\n        limit",
            "        limit",
        ),
        ("a payment keeps its step", "STEP, begun)", "STEP, step)"),
        ("a new ledger takes any step", "step == begun + 1 and", "step > begun and"),
        ("a ledger that paid takes a new step", " and not ledger.state", ""),
        ("a step given up is taken", "step == begun > done", "begun >= step > done"),
        ("an interrupted write is lost", "step == begun > done", "False"),
        ("the counter is not compared", "elif step != done:", "elif False:"),
        ("older ledgers are refused alone", "elif step != done:", "elif step < done:"),
        ("the last step is begun", "if begun == total:", "if begun > total:"),
        ("fuses beyond are not looked at", "if any(", "if False and any("),
        ("the last step done is the last begun", "if fuses.is_burnt(2 * begun - 1):", "if True:"),
    ),
    *of(
        "sampler",
        (
            "a threshold that is read on",
            "            rest = (rest & 0x3FFFFF) << 8\n",
            "            rest = (rest & 0x3FFFFF) << 8\n            if u == 0 and rest == 0:\n                at += 1\n",
        ),
        ("a remainder", "u = pool[at] & mask", "u = pool[at] % count"),
        ("two bytes for 256", "if mask > 255:", "if bound > 255:"),
        ("most significant byte first", "u |= pool[at] << 8", "u = u << 8 | pool[at]"),
        (
            "a grid read where the fraction is 0",
            "        rest = (a & 32767) << 1\n        while rest:\n            u = pool[at] - (rest >> 8)\n            at += 1\n"
            "            rest = (rest & 255) << 8\n            if u:\n                if u < 0:\n                    y",
            "        rest = (a & 32767) << 1\n        at += rest == 0\n        while rest:\n            u = pool[at] - (rest >> 8)\n            at += 1\n"
            "            rest = (rest & 255) << 8\n            if u:\n                if u < 0:\n                    y",
        ),
        ("noise with a negative zero", "elif magnitude:", "else:"),
        (
            "laplace noise coordinate by coordinate",
            "        if card.shape <= LAPLACE:\n            _run(card, stream, xs, out, 0, n)\n",
            "        if card.shape <= LAPLACE:\n            for i in range(n):\n                _run(card, stream, xs, out, i, i + 1)\n",
        ),
    ),
    *of(
        "table",
        (
            "rows that are read on",
            "                if k > at:\n",
            "                if u == 0:\n                    k += 1\n                if k > at:\n",
        ),
        ("all bytes are read", "at = position + 1", "at = position + 6"),
        (
            "a knot is drawn first",
            "f -= c << 15\n",
            "f -= c << 15\n        if f:\n            c += pool[position] < f >> 7\n            position += 1\n        f = 0\n",
        ),
        ("thresholds of 30 bits", "rest &= 32767\n", "rest = 0\n"),
        ("an equal threshold is above", "if u > 127:", "if u > 126:"),
    ),
]


@pytest.mark.sampled(40)
@pytest.mark.slow
@pytest.mark.parametrize("mutant", WRONG, ids=lambda mutant: f"{mutant.module[5:]}: {mutant.what}")
def test_a_wrong_implementation_fails_a_vector(mutant):
    assert caught(mutant, *CHECKS.get(mutant.module, OTHERS))


def test_every_text_to_replace_is_once_in_its_module():
    assert not misplaced(WRONG)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("module", sorted({mutant.module for mutant in WRONG}))
def test_the_right_implementation_passes_all_vectors(module):
    assert caught(Wrong("nothing", module, "", ""), *CHECKS.get(module, OTHERS)) is None
