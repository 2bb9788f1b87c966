"""The model on the device: which one it uses, what it keeps of it whatever happens, and what it predicts."""

import gc
import os
from array import array

import flash_chip
import scratch
import vectors
from checks import raises, taken_by
from small_board import put_fleet
from streams import Words

from tern import frames, host_frames, model, storage, wire
from tern.compat import MICROPYTHON
from tern.frames import FrameError
from tern.ledger import LedgerError
from tern.model import Model

NEEDS = {"test_power_cut_at_every_write_of_the_model": "endurance", "test_wear": "endurance"}
ONE = 16384
KEY = bytes(range(32))
OTHER = bytes(32)
_out = bytearray(wire.MAX_FRAME)


def some(words, n, low=-32768, high=32767):
    return array("h", [words.between(low, high) for _ in range(n)])


class Asked:
    """The fields of a frames.Round that a model takes."""

    def __init__(self, number, parameters, kind=wire.LOGISTIC, exponent=-13, classes=1):
        self.round = number
        self.model = kind
        self.exponent = exponent
        self.classes = classes
        self.d = len(parameters) // classes
        self.parameters = array("h", parameters)


def frame_of(number, parameters, kind=wire.LOGISTIC, exponent=-13, classes=1, key=KEY, device=wire.FLEET):
    n = host_frames.encode_model(_out, key, device, number, kind, parameters, exponent, classes)
    return memoryview(bytearray(memoryview(_out)[:n]))


def opened(folder, every=8):
    own = Model(every)
    own.open(folder)
    return own


class Writes:
    """Counts what a model writes."""

    def __enter__(self):
        self.count = 0
        self.known = model.replace
        model.replace = self.replace
        return self

    def replace(self, path, data):
        self.count += 1
        self.known(path, data)

    def __exit__(self, *_):
        model.replace = self.known


# Which model is used


def test_before_there_is_a_model_nothing_is_predicted():
    own = opened(scratch.folder())
    row = array("h", (1, 2, 3))
    assert not own.ready and own.round == 0
    for function in (own.score, own.predict, own.probability):
        raises(RuntimeError, function, row)
    own.take_round(Asked(1, (5, 5, 5)))
    assert own.ready and own.score(row) == 0 and own.predict(array("h", (9000, 0, 0))) == ONE


def test_rounds_count_until_a_model_comes():
    own = opened(scratch.folder())
    own.take_round(Asked(4, (100, 0)))
    assert (own.round, own.kind, own.classes, own.d, own.exponent) == (4, wire.LOGISTIC, 1, 2, -13)
    row = array("h", (ONE, 0))
    assert own.score(row) == 200  # 100 * 2**-13 in 2**-14 units
    own.take_round(Asked(4, (700, 0)))
    own.take_round(Asked(3, (700, 0)))
    assert own.score(row) == 200
    own.take_round(Asked(5, (300, 0)))
    assert own.score(row) == 600
    own.take_model(frame_of(2, (40, 1)), KEY)  # a MODEL of an earlier round than the question, too
    assert own.score(row) == 80 and own.round == 2
    own.take_round(Asked(9, (300, 0)))
    assert own.score(row) == 80 and own.round == 2


def test_questions_hold_the_parameters_of_their_kind_of_model():
    parameters = (1, 2, 3, 4, 5, 6)
    for asked, kind in ((1, 1), (2, 2), (3, 3), (5, 1), (6, 2), (7, 3), (4, 4), (10, 4)):
        own = opened(scratch.folder())
        classes = 2 if kind == wire.SOFTMAX else 1
        own.take_round(Asked(1, parameters, asked, -16, classes))
        assert (own.kind, own.classes, own.d) == (kind, classes, 6 // classes)
    for asked in (wire.VALUES, wire.CATEGORIES):
        own = opened(scratch.folder())
        own.take_round(Asked(1, parameters, asked, 0))
        assert not own.ready


def test_an_older_model_is_refused():
    folder = scratch.folder()
    own = opened(folder)
    row = array("h", (ONE,))
    own.take_model(frame_of(7, (1,)), KEY)
    own.take_model(frame_of(6, (2,)), KEY)
    assert own.score(row) == 2
    own.take_model(frame_of(7, (3,)), KEY)  # made anew after the same round
    assert own.score(row) == 6
    again = opened(folder)
    again.take_model(frame_of(6, (2,)), KEY)
    assert again.score(row) == 6 and again.round == 7
    again.take_model(frame_of(8, (2,), device=5, key=OTHER), OTHER)  # for this client alone
    assert again.score(row) == 4
    raises(FrameError, again.take_model, frame_of(9, (9,), key=OTHER), KEY)
    assert again.score(row) == 4


def test_a_new_fleet_key_forgets_the_round_and_keeps_the_model():
    for restart in (False, True):
        folder = scratch.folder()
        put_fleet(folder, KEY, epoch=1000)
        own = opened(folder)
        own.take_model(frame_of(wire.MAX_ROUND, (1, 2)), KEY)
        put_fleet(folder, KEY, epoch=1001)
        with Writes() as writes:
            if restart:  # before it could be told
                own = opened(folder)
            else:
                own.forget_round()
            assert writes.count == 0
            assert own.ready and own.score(array("h", (ONE, 0))) == 2
            own.take_round(Asked(3, (9, 9)))
            assert own.score(array("h", (ONE, 0))) == 2
            own.take_model(frame_of(3, (1, 2)), KEY)
            assert own.round == 3 and writes.count == 1
        for _ in range(2):
            own = opened(folder)
            own.take_model(frame_of(2, (5, 5)), KEY)
            assert own.round == 3 and own.score(array("h", (ONE, 0))) == 2


def test_a_damaged_fleet_keeps_no_model_from_its_use():
    # The board has no clients then, but the program beside it goes on.
    folder = scratch.folder()
    with open(folder + "/" + storage.FLEET, "wb") as file:
        file.write(b"TFL2")
    own = opened(folder)
    assert not own.ready
    own.take_model(frame_of(7, (100,)), KEY)
    assert own.score(array("h", (ONE,))) == 200


# What is kept


def kept(own):
    row = array("h", (ONE, -5000, 77, 1) * 4)[: own.d]
    return (
        own.round,
        own.kind,
        own.classes,
        own.d,
        own.exponent,
        [own.score(row, i) for i in range(own.classes)],
    )


def test_a_model_survives_a_restart():
    words = Words(1)
    for kind, classes, d in ((1, 1, 1), (2, 1, 13), (3, 1, 8), (4, 2, 16), (4, 6, 13)):
        for epoch in (0, 1, 70_000_000, 2**32 - 1):
            folder = scratch.folder()
            if epoch:
                put_fleet(folder, KEY, epoch=epoch)
            own = opened(folder)
            own.take_model(frame_of(12, some(words, classes * d), kind, -20, classes), KEY)
            again = opened(folder)
            assert kept(again) == kept(own) and again.ready
            again.take_round(Asked(99, some(words, 3)))
            assert kept(again) == kept(own)
            scratch.remove(folder)


def test_few_writes():
    folder = scratch.folder()
    with Writes() as writes:
        own = opened(folder)
        for number in range(1, 101):
            own.take_round(Asked(number, (number, 1)))
            own.take_round(Asked(number, (number, 1)))
        assert 100 // 8 <= writes.count <= 100 // 8 + 1, writes.count
        writes.count = 0
        for number in range(101, 141):  # a sleeper, which starts anew for each round
            own = opened(folder)
            own.take_round(Asked(number, (number, 1)))
        # what was not written is forgotten: never more often than the rounds in which a multiple of 8 lies
        assert writes.count <= 40 // 8 + 1, writes.count
        writes.count = 0
        own.take_round(Asked(141, (1, 2, 3)))
        own.take_round(Asked(142, (1, 2, 3), wire.SVM))
        assert writes.count == 2 and opened(folder).d == 3
        writes.count = 0
        for number in range(150, 160):
            for _ in range(3):  # retained: it comes with each connection
                own.take_model(frame_of(number, (1, 2, 3)), KEY)
                own = opened(folder)
        assert writes.count == 10, writes.count
    assert os.listdir(folder) == ["model.bin"]


def test_a_damaged_file_is_as_if_there_were_none():
    folder = scratch.folder()
    path = folder + model.MODEL
    opened(folder).take_model(frame_of(7, (1, 2, 3)), KEY)
    with open(path, "rb") as file:
        good = file.read()
    bad = [good[:n] for n in range(len(good))] + [good + b"\0", good * 2, bytes(5000)]
    for at in range(len(good)):
        for bit in (1, 128):
            one = bytearray(good)
            one[at] ^= bit
            bad.append(one)
    for data in bad:
        with open(path, "wb") as file:
            file.write(data)
        own = opened(folder)
        assert not own.ready and own.round == 0 and own.d == 0
    own.take_model(frame_of(1, (4,)), KEY)
    assert opened(folder).ready
    os.remove(path)
    assert not opened(folder).ready


def test_where_nothing_can_be_written_the_model_is_used_all_the_same():
    folder = scratch.folder()
    own = opened(folder)
    scratch.remove(folder)
    raises(LedgerError, own.take_model, frame_of(7, (100,)), KEY)
    assert own.ready and own.score(array("h", (ONE,))) == 200


def test_hostile_models_change_nothing():
    folder = scratch.folder()
    own = opened(folder)
    own.take_model(frame_of(1, (1, 2, 3)), KEY)
    before = kept(own)
    good = bytes(frame_of(2, (4, 5, 6)))
    refused = 0
    with Writes() as writes:
        for n in range(len(good)):
            raises(FrameError, own.take_model, good[:n], KEY)
        for at in range(len(good)):
            one = bytearray(good)
            one[at] ^= 1 << at % 8
            raises(FrameError, own.take_model, memoryview(one), KEY)
        one = bytearray(frame_of(2, (4, 5, 6, 7), wire.SOFTMAX, -13, 2))
        one[9] = wire.SOFTMAX_GRADIENT  # a question, and no model
        frames.seal(KEY, one, len(one) - wire.TAG_BYTES)
        raises(FrameError, own.take_model, memoryview(one), KEY)
        for case in vectors.cases("frames.json", "frames"):
            if case["kind"] != "model" or case["result"] == "invalid":
                frame = bytes.fromhex(case["frame"])
                raises(FrameError, own.take_model, memoryview(frame), bytes.fromhex(case["key"]))
                refused += 1
        assert writes.count == 0
    assert refused
    assert kept(own) == before and kept(opened(folder)) == before


# Power and wear


def test_power_cut_at_every_write_of_the_model():
    cut_at_every_write()


def cut_at_every_write():
    """How many cuts there were; after each the model is the one before or the new one, whole, and takes the next."""
    if not MICROPYTHON:
        return 0
    image, start = bytearray(flash_chip.BYTES), bytearray(flash_chip.BYTES)
    cuts = 0
    # Within a block of the chip, and over several; with a new file, and over the old one.
    for n, in_place in ((13, False), (600, False), (13, True), (600, True)):
        flash = flash_chip.Flash(image)
        flash_chip.format(flash)
        kind, classes = (wire.SOFTMAX, 6) if n == 600 else (wire.LOGISTIC, 1)
        frames = [
            frame_of(i, array("h", [i * 100 + j % 9 for j in range(n)]), kind, -13, classes)
            for i in (1, 2, 3)
        ]
        opened("/flash").take_model(frames[0], KEY)
        flash_chip.unmount()

        def prepare(in_place=in_place):
            own = opened("/flash")
            own.in_place = in_place
            return own

        def take(own, frame=frames[1]):
            try:
                own.take_model(frame, KEY)
            except (LedgerError, OSError):
                pass

        seen = set()
        for cut, _, _ in flash_chip.cut_at_every_write(flash, start, prepare, take):
            own = opened("/flash")
            assert own.ready, cut
            row = array("h", (ONE,) * own.d)
            scores = [own.score(row, i) for i in range(classes)]
            fresh = opened(scratch_with(frames[own.round - 1]))
            assert scores == [fresh.score(row, i) for i in range(classes)]
            seen.add(own.round)
            own.take_model(frames[2], KEY)
            assert opened("/flash").round == 3
        assert seen == {1, 2} and cut > 3, (seen, cut)
        cuts += cut
    return cuts


_made = {}


def scratch_with(frame):
    """A folder with this model."""
    name = bytes(frame[-8:])
    if name not in _made:
        _made[name] = scratch.folder()
        opened(_made[name]).take_model(frame, KEY)
    return _made[name]


def test_wear():
    # A write erases at most 1.2 blocks where the file is one of its own; a small one lies in the folder itself.
    if not MICROPYTHON:
        return
    import vfs

    try:
        chip = flash_chip.Chip(bytearray(12 * 4096))
    except MemoryError:
        return
    vfs.VfsLfs2.mkfs(chip)
    vfs.mount(vfs.VfsLfs2(chip), "/chip")
    try:
        for n, classes, most in ((13, 1, 60), (78, 6, 130), (1020, 10, 130)):
            kind = wire.SOFTMAX if classes > 1 else wire.LOGISTIC
            own = Model()
            own.open("/chip")
            own.forget_round()
            chip.erased = 0
            for number in range(1, 101):
                own.take_model(frame_of(number, array("h", [number] * n), kind, -13, classes), KEY)
            print("%d parameters: %d erasures in 100 writes" % (n, chip.erased))
            assert chip.erased <= most, (n, chip.erased)
            os.remove("/chip" + model.MODEL)
    finally:
        vfs.umount("/chip")


# What is predicted


def test_prediction_vectors():
    folder = scratch.folder()
    own = opened(folder)
    for number, case in enumerate(vectors.cases("models.json", "predictions"), 1):
        gc.collect()  # a heap of a device
        parameters = array("h", case["parameters"])
        classes = case["classes"]
        own.take_model(frame_of(number, parameters, case["model"], case["exponent"], classes), KEY)
        for i, values in enumerate(case["rows"]):
            row = array("h", values)
            assert [own.score(row, j) for j in range(classes)] == case["scores"][i], case["comment"]
            assert own.predict(row) == case["predictions"][i], case["comment"]
            if "probabilities" in case:
                labels = range(classes) if classes > 1 else (1,)
                assert [own.probability(row, j) for j in labels] == case["probabilities"][i], case["comment"]


def test_what_a_model_cannot_predict_is_refused():
    own = opened(scratch.folder())
    row = array("h", (ONE, ONE, 0))
    for number, kind in ((1, wire.LINEAR), (2, wire.SVM)):
        own.take_model(frame_of(number, (4096, 100, 0), kind, -12), KEY)
        raises(ValueError, own.probability, row)
    own.take_model(frame_of(3, (4096, 0, 0), wire.LOGISTIC, -12), KEY)
    assert own.probability(row) == 11978 == ONE - own.probability(row, -1)  # 1 / (1 + 1 / e)
    raises(RuntimeError, own.score, array("h", (1, 2)))
    raises(RuntimeError, own.score, row, 1)
    own.take_model(frame_of(4, (1, 2, 0, 2, 1, 0, 2, 1, 0), wire.SOFTMAX, -12, 3), KEY)
    for label in (-1, 3):
        raises(RuntimeError, own.score, row, label)
        raises(RuntimeError, own.probability, row, label)


def test_predictions_allocate_nothing():
    words = Words(3)
    own = opened(scratch.folder())
    row = some(words, 14, -ONE, ONE)
    for number, (kind, classes) in enumerate(((1, 1), (2, 1), (3, 1), (4, 6)), 1):
        own.take_model(frame_of(number, some(words, classes * 13), kind, -13, classes), KEY)
        functions = (own.score, own.predict, own.probability)
        for function in functions[: 2 if kind in (wire.LINEAR, wire.SVM) else 3]:
            function(row)
            assert taken_by(lambda: function(row)) == 0, kind  # noqa: B023
