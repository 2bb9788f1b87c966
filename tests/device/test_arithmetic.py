"""The vectors of arithmetic.json: the values that a client computes, and the records that it uses."""

from array import array

from vectors import ROUND_FIELDS, cases

from tern import collect, inference, local, softmax, wire
from tern.card import decode
from tern.frames import Round
from tern.gradient import Gradient, batch_size, turn


class Records:
    """The records of one client, after a record of another client."""

    start = 1

    def __init__(self, rows, device):
        self.rows = rows
        self.records = len(rows)
        self.device = device

    def read(self, i, row):
        source = self.rows[i - self.start]
        for j in range(len(row)):
            row[j] = source[j]


def request_of(case):
    """A Round with the fields of the case."""
    request = Round()
    for name in ROUND_FIELDS:
        if name in case:
            setattr(request, name, case[name])
    request.parameters = array("h", case.get("parameters", ()))
    request.asked = bytes(case.get("asked", ()))
    return request


def check(case, values):
    values = list(values)[: len(case["values"])]
    assert values == case["values"], (case["comment"], values)


def answered(case, module):
    """The values that the Answerer of `module` computes."""
    client = Records(case["records"], case.get("device", 7))
    card = decode(bytes.fromhex(case["card"])) if "card" in case else None
    return module.Answerer(request_of(case)).values(client, client, card)


def mean_gradient(case):
    rows = case["records"]
    d = case["d"]
    gradient = Gradient(d, many=True)
    gradient.reset(case["range"])
    n = batch_size(case["batch"], len(rows))
    index = turn(case["round"], n, len(rows))
    for i in range(n):
        row = array("h", rows[(index + i) % len(rows)])
        gradient.add(case["model"], array("h", case["parameters"]), case["exponent"], row)
    out = array("h", bytes(2 * d))
    gradient.finish(out)
    return out


def test_vectors_of_gradients():
    for case in cases("arithmetic.json", "gradients"):
        is_softmax = case["model"] == wire.SOFTMAX_GRADIENT
        check(case, answered(case, softmax) if is_softmax else mean_gradient(case))


def test_vectors_of_other_values():
    for group, module in (("local", local), ("inference", inference), ("collection", collect)):
        for case in cases("arithmetic.json", group):
            check(case, answered(case, module))


def test_vectors_of_choice():
    for case in cases("arithmetic.json", "choice"):
        c = case["count"]
        n = batch_size(case["batch"], c)
        first = turn(case["round"], n, c)
        assert [(first + i) % c for i in range(n)] == case["records"], case["comment"]
