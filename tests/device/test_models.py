"""Rounds that ask for more than a gradient: inference results and local training, from frame to frame."""

import math
import struct
import sys
from array import array

import scratch
import small_board
from small_board import EPSILON, ask, error_of, key_of, provision, spent, symbols_of
from spec.cards import T, hierarchy, laplace, two_levels, window

from tern import host_frames, storage, wire
from tern.card import CardError, certify, decode
from tern.client import Client
from tern.coordinates import choose
from tern.inference import Classifier
from tern.local import LocalTrainer
from tern.sampler import sample, sample_categories
from tern.streams import Replay

CLASSES = 3
FEATURES = 4
# epsilon 2 for a change of 2 in L1 norm: scale 2 * 2**8 / 2 grid steps
NOISE = laplace(EPSILON, 8, 256, 1, -4000, 4000)
LEAKING_NOISE = laplace(EPSILON, 8, 255, 1, -4000, 4000)
PARAMETERS = array("h", [3000 * ((7 * i) % 5 - 2) for i in range(CLASSES * FEATURES)])


def round_of(
    number,
    model,
    card,
    parameters,
    k,
    local=(0, 0, 0),
    batch=0,
    device=7,
    exponent=-12,
    range_=0,
    classes=None,
):
    out = bytearray(wire.MAX_FRAME)
    if model in (wire.VALUES, wire.CATEGORIES):
        exponent = 0
    if classes is None:
        classes = CLASSES if model in (wire.SOFTMAX, wire.SOFTMAX_GRADIENT) else 1
    n = host_frames.encode_round(
        out,
        key_of(device),
        device,
        number,
        model,
        parameters,
        card,
        k,
        exponent,
        range_,
        classes,
        batch,
        local,
    )
    return memoryview(bytearray(memoryview(out)[:n]))


def inference_round(number, card=NOISE, device=7, parameters=PARAMETERS):
    return round_of(number, wire.SOFTMAX, card, parameters, CLASSES, device=device)


def rows_of(folder, n, d=FEATURES):
    with open(folder + "/" + storage.RECORDS, "rb") as file:
        file.read(storage.RECORDS_BYTES)
        return [array("h", file.read(2 * (d + 1))) for _ in range(n)]


class Replayed:
    """A board whose entropy is the same bytes every time."""

    def __init__(self, board):
        self._board = board
        self.directory = board.directory
        self.in_place = board.in_place

    def text(self):
        return self._board.text()

    def generator(self):
        stream = Replay(stream_bytes())
        stream.state = 1
        stream.end_report = lambda: None
        return stream


def stream_bytes():
    return bytes((i * 89 + i * i % 251 + 7) & 255 for i in range(4000))


def test_an_inference_result_is_the_classifiers_and_costs_the_cards_epsilon_once():
    folder = scratch.folder()
    board = provision(folder, records=3)
    rows = rows_of(folder, 3)
    card = decode(NOISE)
    for number in (1, 2, 3, 4, 9):
        client = Client(Replayed(board))
        answer = ask(client, inference_round(number))
        expected = array("H", bytes(2 * CLASSES))
        classifier = Classifier(PARAMETERS, -12, CLASSES)
        classifier.noised(card, Replay(stream_bytes()), rows[(number - 1) % 3][:FEATURES], expected)
        assert symbols_of(answer, CLASSES, card.symbols) == list(expected), number
        assert len(answer) == 9 + 5 + 8  # 3 symbols below 8001 are 39 bits
    assert spent(folder) == 5 * EPSILON


def test_an_inference_result_asked_again_is_the_same_and_free():
    folder = scratch.folder()
    board = provision(folder, budget=EPSILON)
    client = Client(board)
    first = ask(client, inference_round(5))
    assert first[0] == wire.REPORT
    assert ask(client, inference_round(5)) == first
    assert ask(Client(board), inference_round(5)) == first
    other = array("h", PARAMETERS)
    other[0] += 1
    assert error_of(ask(client, inference_round(5, parameters=other))) == (wire.ERR_CHANGED_ROUND, 5)
    assert error_of(ask(client, inference_round(6))) == (wire.ERR_BUDGET, 0)
    assert spent(folder) == EPSILON


def test_no_other_card_protects_an_inference_result():
    folder = scratch.folder()
    client = Client(provision(folder, largest=EPSILON))
    for card in (small_board.THREE, small_board.WINDOW, small_board.TWO):
        assert error_of(ask(client, inference_round(1, card))) == (wire.ERR_CARD, 0)
    assert error_of(ask(client, inference_round(1, LEAKING_NOISE))) == (wire.ERR_NOT_CERTIFIED, EPSILON)
    short = array("h", PARAMETERS[: CLASSES * 3])
    assert error_of(ask(client, inference_round(1, parameters=short))) == (wire.ERR_DATA, FEATURES)
    assert spent(folder) == 0
    # the same card for k coordinates of a gradient costs k times as much: more than this client allows
    gradient = round_of(1, wire.LOGISTIC, NOISE, array("h", (0, 0, 0, 0)), 2)
    assert error_of(ask(client, gradient)) == (wire.ERR_POLICY, EPSILON)
    assert ask(client, inference_round(1))[0] == wire.REPORT
    assert spent(folder) == EPSILON


def test_many_classes_fit_a_frame():
    folder = scratch.folder()
    client = Client(provision(folder, d=8))
    parameters = array("h", (0 for _ in range(1024)))
    answer = ask(client, round_of(1, wire.SOFTMAX, NOISE, parameters, 128, classes=128))
    symbols_of(answer, 128, 8001)
    assert spent(folder) == EPSILON


def local_values(rows, model, parameters, local, batch, exponent=-12):
    trainer = LocalTrainer(FEATURES)

    def read(i, row):
        row[:] = rows[i]

    epochs, rate, tau = local
    trainer.train(model, parameters, exponent, read, len(rows), epochs, batch, rate)
    shares = array("h", bytes(2 * FEATURES))
    trainer.report(tau, shares)
    return shares


def test_local_training_reports_the_moves_of_the_trainer():
    folder = scratch.folder()
    board = provision(folder, clients=2, records=5)
    rows = rows_of(folder, 10)
    card = decode(small_board.THREE)
    parameters = array("h", (100, -200, 300, 0))
    number = 0
    for model in (wire.LINEAR, wire.LOGISTIC, wire.SVM):
        for k, batch, local in ((4, 0, (2, 3, 200_000)), (2, 2, (3, 2, 700_000)), (1, 32, (1, 0, 1 << 23))):
            number += 1
            for device, own in ((7, rows[:5]), (8, rows[5:])):
                client = Client(Replayed(board))
                frame = round_of(
                    number, wire.LOCAL + model, small_board.THREE, parameters, k, local, batch, device
                )
                shares = local_values(own, model, parameters, local, min(batch or 5, 5))
                chosen = array("H", bytes(2 * k))
                choose(host_frames.question_of(key_of(device), device, frame), FEATURES, k, chosen)
                inputs = array("h", [shares[i] for i in chosen])
                expected = array("H", bytes(2 * k))
                sample(card, Replay(stream_bytes()), inputs, expected, k)
                assert symbols_of(ask(client, frame), k, 3, device) == list(expected), (number, device)
    assert spent(folder) == spent(folder, 8) == 3 * 7 * EPSILON


def test_tau_and_epochs_belong_to_the_question():
    folder = scratch.folder()
    client = Client(provision(folder))
    parameters = array("h", (1, 2, 3, 4))

    def asked(local, card=small_board.THREE):
        return round_of(1, wire.LOCAL + wire.SVM, card, parameters, 1, local)

    first = ask(client, asked((2, 1, 1000)))
    assert ask(client, asked((2, 1, 1000))) == first
    for local in ((3, 1, 1000), (2, 0, 1000), (2, 1, 1001)):
        assert error_of(ask(client, asked(local))) == (wire.ERR_CHANGED_ROUND, 1)
    assert spent(folder) == EPSILON


def test_work_that_might_not_fit_the_slot_is_refused_for_nothing_whatever_the_records():
    # 240 ms and 196/256 a record of four features, one more for each batch; nothing depends on how many it holds.
    cases = ((500, 16, 20), (500, 1, 170), (630, 1, 255), (241, 1, 1), (240, 1, 0), (0, 16, 255))
    for slot, bound, epochs in cases:
        for records in (1, 200):
            folder = scratch.folder()
            board = provision(folder, records=records)
            with open(folder + "/" + storage.FLEET, "wb") as file:
                row = (storage.FLEET_MAGIC, bytes(32), 0, slot, 1, 1, bound)
                file.write(struct.pack(storage.FLEET_FIELDS, *row))
            client = Client(board)

            def asked(epochs, client=client):
                parameters = array("h", (1, 2, 3, 4))
                return ask(
                    client,
                    round_of(1, wire.LOCAL + wire.SVM, small_board.THREE, parameters, 1, (epochs, 1, 9)),
                )

            if epochs < 255:
                assert error_of(asked(epochs + 1)) == (wire.ERR_SLOT, 0)
                assert spent(folder) == 0
            if epochs:
                assert asked(epochs)[0] == wire.REPORT
                assert spent(folder) == EPSILON


def test_one_client_answers_every_model_in_turn():
    folder = scratch.folder()
    client = Client(provision(folder, records=4))
    parameters = array("h", (1, 2, 3, 4))
    for number in range(1, 13, 3):
        assert ask(client, round_of(number, wire.LINEAR, small_board.THREE, parameters, 2))[0] == wire.REPORT
        assert ask(client, inference_round(number + 1))[0] == wire.REPORT
        frame = round_of(number + 2, wire.LOCAL + wire.LINEAR, small_board.THREE, parameters, 1, (1, 1, 9999))
        assert ask(client, frame)[0] == wire.REPORT
    assert spent(folder) == 4 * (2 + 1 + 1) * EPSILON


def test_a_board_without_the_module_says_so_and_pays_nothing():
    folder = scratch.folder()
    client = Client(provision(folder))
    frames = {
        "inference": (wire.SOFTMAX, inference_round(1)),
        "local": (6, round_of(1, 6, small_board.THREE, array("h", (1, 2, 3, 4)), 1, (1, 1, 1))),
        "collect": (8, round_of(1, 8, small_board.THREE, array("h", (1, 2, 3, 4)), 1)),
    }

    for module, (model, frame) in frames.items():
        name = "tern." + module
        kept = sys.modules.pop(name, None)
        sys.modules[name] = object()  # nothing can be imported from it
        try:
            assert error_of(ask(client, frame)) == (wire.ERR_MODEL, model), module
        finally:
            del sys.modules[name]
            if kept:
                sys.modules[name] = kept
        assert spent(folder) == 0
    assert ask(client, frames["local"][1])[0] == wire.REPORT


GRR = window(EPSILON, 4, 1, 700_000_000)  # e**2 in 1 against 3


def test_collection_reports_the_features_asked_for():
    folder = scratch.folder()
    board = provision(folder, records=3)
    rows = rows_of(folder, 3)
    card = decode(small_board.THREE)
    parameters = array("h", (1, 0, -7, 1))
    for number, k in ((1, 3), (2, 1), (3, 2), (4, 3)):
        client = Client(Replayed(board))
        row = rows[(number - 1) % 3]
        asked = [row[0], row[2], row[3]]
        chosen = array("H", bytes(2 * k))
        frame = round_of(number, wire.VALUES, small_board.THREE, parameters, k)
        choose(host_frames.question_of(key_of(7), 7, frame), 3, k, chosen)
        expected = array("H", bytes(2 * k))
        sample(card, Replay(stream_bytes()), array("h", [asked[i] for i in chosen]), expected, k)
        assert symbols_of(ask(client, frame), k, 3) == list(expected), number
    assert spent(folder) == 9 * EPSILON


def test_collection_of_categories():
    folder = scratch.folder()
    board = provision(folder)
    with open(folder + "/" + storage.RECORDS, "r+b") as file:
        file.seek(storage.RECORDS_BYTES)
        file.write(struct.pack("<5h", 2, -3, 77, 0, 0))
    card = decode(GRR)
    client = Client(Replayed(board))
    frame = round_of(1, wire.CATEGORIES, GRR, array("h", (1, 1, 1, 0)), 3)
    expected = array("H", bytes(6))
    sample_categories(card, Replay(stream_bytes()), array("h", (2, 0, 3)), expected, 3)  # cut to 0..3
    assert symbols_of(ask(client, frame), 3, 4) == list(expected)
    assert spent(folder) == 3 * EPSILON
    for bad in (small_board.WINDOW, small_board.THREE, NOISE):
        assert error_of(ask(client, round_of(2, wire.CATEGORIES, bad, array("h", (1, 1, 1, 0)), 1))) == (
            wire.ERR_CARD,
            0,
        )
    assert spent(folder) == 3 * EPSILON


def hierarchy_card(epsilon, bounds=(5000, -3000), inside=600_000_000, low=300_000_000):
    """Three ranges, all with the same cards."""
    levels, values = (
        window(1, 3, 1, inside),
        two_levels(1, T - low, low),
    )  # what inner cards claim means nothing
    return hierarchy(epsilon, bounds, [levels] * 3, [values] * 3)


def test_a_hierarchy_is_one_card_with_the_loss_of_level_and_sign():
    # most: inside its own range, at the end that the sign likes; least: in another range, at the other end
    inside, low = 600_000_000, 300_000_000
    rest = (1 << 30) - inside
    ratio = 2 * inside * ((1 << 30) - low) / (rest * low)
    least = int(math.log(ratio) * 1e6)
    assert not certify(decode(hierarchy_card(least - 1000)))
    assert certify(decode(hierarchy_card(least + 1000)))
    folder = scratch.folder()
    client = Client(provision(folder))
    parameters = array("h", (1, 2, 3, 4))
    bad = round_of(1, wire.LINEAR, hierarchy_card(least - 1000), parameters, 1)
    assert error_of(ask(client, bad)) == (wire.ERR_NOT_CERTIFIED, least - 1000)
    for number, k in ((1, 1), (2, 4)):
        answer = ask(client, round_of(number, wire.LINEAR, hierarchy_card(least + 1000), parameters, k))
        assert max(symbols_of(answer, k, 6)) < 6
    assert spent(folder) == 5 * (least + 1000)


def test_hierarchies_that_are_no_cards():
    good = hierarchy_card(9_000_000)
    decode(good)
    for bad in (
        good[:-1],
        good + b"\0",
        good[:5] + b"\1" + good[6:],
        good[:5] + b"\x11" + good[6:],
        hierarchy_card(9_000_000, (-3000, 5000)),
        hierarchy_card(9_000_000, (16385, 0)),
        hierarchy_card(9_000_000, (0, -16384)),
        good[:10] + good[49:66] + good[23:],
        good[:54] + b"\1" + good[55:],
        good[:56] + b"\2" + good[57:],
        good[:56] + b"\0" + good[57:],
    ):
        try:
            decode(bad)
        except CardError:
            continue
        raise AssertionError("decoded")


def test_a_hierarchy_draws_level_and_sign():
    card = decode(hierarchy_card(9_000_000))
    xs = array("h", (16384, 0, -16384, 4999, 5000))
    out = array("H", bytes(10))
    sample(card, Replay(stream_bytes()), xs, out, 5)
    expected = []
    stream = Replay(stream_bytes())
    for x in xs:
        expected.append(card.hierarchy.draw(stream, x))
    assert list(out) == expected
    assert len(set(out)) > 2


def mean_gradient(rows, residuals_of, d, rows_of_parameters, range_):
    """The values of arithmetic.md, in Python's own integers: rows_of_parameters x d, row by row."""
    fine = min(range_, 10)
    totals = [0] * (rows_of_parameters * d)
    for row in rows:
        for i, r in enumerate(residuals_of(row)):
            for j in range(d):
                totals[i * d + j] += r * row[j] + (1 << 13 - fine) >> 14 - fine
    n = len(rows)
    values = []
    for total in totals:
        values.append(max(-16384, min(16384, ((total << range_ - fine) + (n >> 1)) // n)))
    return values


def drawn(question, values, card, k):
    chosen = array("H", bytes(2 * k))
    choose(question, len(values), k, chosen)
    out = array("H", bytes(2 * k))
    sample(decode(card), Replay(stream_bytes()), array("h", [values[i] for i in chosen]), out, k)
    return list(out)


def test_gradients_are_scaled_by_the_range():
    folder = scratch.folder()
    board = provision(folder, records=5)
    rows = rows_of(folder, 5)
    parameters = array("h", (30, -20, 10, 25))

    def residuals(row):
        z = sum(m * x for m, x in zip(parameters, row)) + (1 << 11) >> 12
        return [z - row[4]]

    number = 0
    for range_ in range(wire.MAX_RANGE + 1):
        for batch, k in ((0, 4), (2, 3)):
            number += 1
            client = Client(Replayed(board))
            args = (number, wire.LINEAR, small_board.THREE, parameters, k)
            frame = round_of(*args, batch=batch, range_=range_)
            n = batch or 5
            turn = [rows[((number - 1) * n + i) % 5] for i in range(n)]

            def held(row, range_=range_):
                most = (2047 >> min(range_, 10)) * 16384
                return [max(-most, min(most, residuals(row)[0]))]

            values = mean_gradient(turn, held, FEATURES, 1, range_)
            question = host_frames.question_of(key_of(7), 7, frame)
            expected = drawn(question, values, small_board.THREE, k)
            assert symbols_of(ask(client, frame), k, 3) == expected, (range_, batch)


def test_softmax_regression_reports_the_gradient_of_every_class():
    folder = scratch.folder()
    board = provision(folder, records=6)
    rows = rows_of(folder, 6)
    with open(folder + "/" + storage.RECORDS, "r+b") as file:
        for i, row in enumerate(rows):
            row[FEATURES] = i % CLASSES
            file.seek(storage.RECORDS_BYTES + 2 * (FEATURES + 1) * i)
            file.write(row)
    classifier = Classifier(PARAMETERS, -12, CLASSES)

    def residuals(row):
        p = array("h", (0 for _ in range(CLASSES)))
        classifier.probabilities(row, p)
        return [p[i] - (16384 if row[FEATURES] == i else 0) for i in range(CLASSES)]

    for number, (k, batch, range_) in enumerate(((12, 0, 0), (1, 1, 3), (5, 4, 11), (11, 2, 12)), 1):
        client = Client(Replayed(board))
        args = (number, wire.SOFTMAX_GRADIENT, small_board.THREE, PARAMETERS, k)
        frame = round_of(*args, batch=batch, range_=range_)
        n = batch or 6
        turn = [rows[((number - 1) * n + i) % 6] for i in range(n)]
        values = mean_gradient(turn, residuals, FEATURES, CLASSES, range_)
        question = host_frames.question_of(key_of(7), 7, frame)
        expected = drawn(question, values, small_board.THREE, k)
        assert symbols_of(ask(client, frame), k, 3) == expected, (k, batch, range_)
    assert spent(folder) == 29 * EPSILON


def test_values_collected_are_scaled_by_the_range():
    folder = scratch.folder()
    board = provision(folder)
    row = rows_of(folder, 1)[0]
    for number, range_ in ((1, 0), (2, 1), (3, 12)):
        client = Client(Replayed(board))
        frame = round_of(number, wire.VALUES, small_board.THREE, array("h", (1, 1, 0, 1)), 3, range_=range_)
        values = [max(-16384, min(16384, row[j] << range_)) for j in (0, 1, 3)]
        question = host_frames.question_of(key_of(7), 7, frame)
        assert symbols_of(ask(client, frame), 3, 3) == drawn(question, values, small_board.THREE, 3)


def test_a_thousand_parameters_of_which_all_are_reported():
    folder = scratch.folder()
    client = Client(provision(folder, d=128, largest=1_000_000_000))
    cheap = two_levels(1000, T // 2 + 99999, T // 2 - 99999)
    for number, k in ((1, 1), (2, 1024)):
        parameters = array("h", (0 for _ in range(1024)))
        frame = round_of(number, wire.SOFTMAX_GRADIENT, cheap, parameters, k, classes=8)
        answer = ask(client, frame)
        assert answer[0] == wire.REPORT and len(answer) == 17 + (k + 7) // 8
    assert spent(folder) == 1025 * 1000
    # 300 symbols of 1,000 would be 374 bytes
    many = laplace(1000, 0, 10000, 1, -500, 499)
    frame = round_of(3, wire.SOFTMAX_GRADIENT, many, parameters, 300, classes=8)
    assert error_of(ask(client, frame)) == (wire.ERR_CARD, 0)
