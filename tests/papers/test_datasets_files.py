"""Readers of the papers' files, on small files in their exact published formats; bundled and
synthetic sets.
"""

import bz2
import gzip
import struct

import numpy as np
import pytest

from ternhost import datasets
from ternhost.datasets.base import CLASSIFICATION, MULTICLASS, REGRESSION
from ternhost.datasets.shipped import bundled, synthetic
from ternhost.errors import UsageError
from ternpapers.datasets import images, ipums, motions, vehicle, wisdm

ONE = 16384
WITH_FILES = [name for name, source in datasets.SOURCES.items() if source.has_file]
OF_SEVERAL_FILES = ("basic-motions", "mnist", "fashion-mnist")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of data files, empty."""
    monkeypatch.setenv("TERN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(motions, "_bundled", lambda: None)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize("name", WITH_FILES)
def test_a_missing_file_says_where_to_get_it(name, tmp_path):
    with pytest.raises(UsageError, match=f"{name} is a file of its publishers") as caught:
        datasets.load(f"{name}:{tmp_path / 'nowhere'}")
    place = f"{name}:FILE"
    if name in OF_SEVERAL_FILES:
        place = f"{name}:FOLDER"
    for word in ("https://", "TERN_DATA", place):
        assert word in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("wisdm", b"", id="an empty file"),
        pytest.param("vehicle", b"\x00\xff\xfe\x80" * 50, id="no text"),
        pytest.param("ipums", b"\x1f\x8b\x08", id="a damaged gzip file"),
        pytest.param("basic-motions", b"hello\n", id="another text"),
        pytest.param("wisdm", b"33,Jogging,4910,-0.69,12.68,0.5;\n", id="not one whole window"),
        pytest.param("wisdm-records", b"37,Jogging,1,0,0,0;", id="no user of the study"),
        pytest.param("ipums", b"SEX,MARST\n1,2\n", id="no numeric variable"),
        pytest.param("ipums", b"AGE,SEX\n999,1\n", id="no record with all values stated"),
        pytest.param("vehicle", b"4 100:0.5\n", id="an unknown class"),
        pytest.param("vehicle", b"", id="no record"),
        pytest.param("vehicle", b"1 1:nan 100:0.5\n", id="no number"),
        pytest.param("vehicle", b"1 101:0.5\n", id="an unknown feature"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(name, content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        datasets.load(f"{name}:{path}")


# WISDM

WISDM_LINES = """\
33,Jogging,49105962326000,-0.6946377,12.680544,0.50395286;
33,Jogging,49106062271000,5.012288,11.264028,0.95342433;

33,Jogging,49106222305000,-0.61291564,18.496431,3.0237172;33,Walking,49106332290000,-1.1849703,12.1,7.2;
11,Walking,1867172313000,4.4,4.4,;
17,Upstairs,57869902574000,3.36,10.57,-6.129145,;
20,Standing,2.3E-05,1,2,3;
6,Downstairs,1e5
"""


def test_wisdm_reads_the_complete_records(folder):
    """WISDM is a public data set of accelerometer samples, whose file has broken lines.

    The five good ones of WISDM_LINES are read; lines without z, with a fractional time or cut
    short are left out.
    """
    filling = WISDM_LINES.splitlines()[0] * 100  # more than 99 in 100 are complete
    (folder / "WISDM_ar_v1.1_raw.txt").write_text(WISDM_LINES + filling)
    _, codes, acceleration = wisdm.read(folder / "WISDM_ar_v1.1_raw.txt")
    # Not the lines without z, with a fractional time, or cut short.
    activities = [wisdm.ACTIVITIES[code] for code in codes[:5]]
    assert activities == ["Jogging", "Jogging", "Jogging", "Walking", "Upstairs"]
    assert len(codes) == 5 + 100
    assert acceleration[4].tolist() == [3.36, 10.57, -6.129145]


def test_wisdm_windows_have_the_features_of_their_samples(tmp_path):
    """WISDM holds accelerometer samples of activities.

    Windows of 200 samples become records of 41 features, scaled to -1..1; those of the first are
    recomputed from its samples.
    """
    lines = []
    for activity, samples in (("Walking", 450), ("Jogging", 200), ("Sitting", 199)):
        for i in range(samples):
            lines.append(f"1,{activity},{1000 + i},{10 * np.sin(i / 3):.6f},9.81,0.5;")
    path = tmp_path / "raw.txt"
    path.write_text("\n".join(lines) + "\n")
    data = wisdm.wisdm(path)
    activities = [data.classes[label] for label in data.labels]  # whole windows of 200 samples
    assert activities == ["Walking", "Walking", "Jogging"]
    assert data.dimension == len(data.feature_names) == 41

    walk = dict(zip(data.feature_names, data.features[0] / ONE, strict=True))
    x = np.array([float(line.split(",")[3]) for line in lines[:200]])
    spread = np.abs(x - x.mean()).mean()
    assert (walk["constant"], walk["mean_y"]) == (1, pytest.approx(9.81 / 20, abs=1e-4))
    assert walk["deviation_x"] == pytest.approx(2 * x.std() / 10 - 1, abs=1e-4)
    assert walk["difference_x"] == pytest.approx(2 * spread / 10 - 1, abs=1e-4)
    share_of_first_bin = np.mean(x < x.min() + np.ptp(x) / 10)  # of ten bins
    assert walk["bin0_x"] == pytest.approx(2 * share_of_first_bin - 1, abs=1e-4)


SAMPLES = "33,Jogging,1,-0.5,20.5,0.5;\n1,Walking,2,5,-10,0;\n36,Sitting,3,0,0,-20;"


def test_wisdm_records_are_samples_with_their_user_and_activity(folder):
    """As a table for collections, WISDM has a row for each sample: user, activity and three
    accelerations, where 20 m/s2 is scaled to 1 (the integer ONE).
    """
    (folder / "WISDM_ar_v1.1_raw.txt").write_text(SAMPLES)
    table = wisdm.table()
    assert table.categorical_names == ("user", "activity")
    users, activities = table.categories
    rows = [(users[user], activities[activity]) for user, activity in table.codes]
    assert rows == [("33", "Jogging"), ("1", "Walking"), ("36", "Sitting")]
    assert table.numeric[1:].tolist() == [[ONE // 4, -ONE // 2, 0], [0, 0, -ONE]]  # 20 is 1
    assert 3 + len(users) - 1 + len(activities) - 1 == 43  # columns, as in the paper


# BasicMotions

TS_HEADER = """\
@problemName BasicMotions
@dimensions 6
@seriesLength 45
@classLabel true Standing Running Walking Badminton
@data
"""


def write_ts(path, labels, rng):
    """Write a record for each label; return their values (records x channels x 45)."""
    values = rng.normal(0, 3, (len(labels), 6, 45))
    lines = []
    for record, label in zip(values, labels, strict=True):
        channels = [",".join(f"{value:.6f}" for value in channel) for channel in record]
        lines.append(":".join([*channels, label]))
    path.write_text(TS_HEADER + "\n".join(lines) + "\n")
    return values


@pytest.fixture
def basic_motions(folder):
    """The values of the training file, in the folder of data files with a test file."""
    rng, files = np.random.default_rng(3), folder / "BasicMotions"
    files.mkdir()
    labels = ["Standing", "Running", "Walking", "Badminton", "Running"] * 4
    train = write_ts(files / "BasicMotions_TRAIN.ts", labels, rng)
    write_ts(files / "BasicMotions_TEST.ts", labels[:3], rng)
    return train


def test_basic_motions_are_read_in_windows_of_20_samples(basic_motions):
    data = motions.motions()
    assert (len(data.labels), data.dimension) == (2 * 23, 21)  # two windows in 45 samples
    assert [data.classes[label] for label in data.labels[:4:2]] == ["Standing", "Running"]
    assert (data.held_out[::2] == data.held_out[1::2]).all(), "both windows of a record"
    assert 0 < data.held_out.sum() < 23


def test_windows_of_basic_motions_have_the_features_of_their_samples(basic_motions):
    """BasicMotions holds acceleration and rotation in six channels.

    The features of the second window (samples 20 to 39 of the first record), scaled to -1..1, are
    recomputed from its samples.
    """
    data = motions.motions()
    window = dict(zip(data.feature_names, data.features[1] / ONE, strict=True))
    samples = basic_motions[0, :, 20:40]
    x, yaw = samples[0], samples[5]
    spread = np.abs(x - x.mean()).mean()
    rotation = np.linalg.norm(samples[3:], axis=0).mean()
    assert window["mean_x"] == pytest.approx(x.mean() / 30, abs=1e-4)
    assert window["deviation_yaw"] == pytest.approx(2 * yaw.std() / 17.5 - 1, abs=1e-4)
    assert window["difference_x"] == pytest.approx(2 * spread / 15 - 1, abs=1e-4)
    assert window["rotation"] == pytest.approx(2 * rotation / (35 * 3**0.5) - 1, abs=1e-4)


# IPUMS

IPUMS_CSV = """\
"COUNTRY","YEAR","SAMPLE","SERIAL","HHWT","PERNUM","PERWT","AGE","SEX","MARST","HRSWORK1","INCTOT"
76,2000,76200001,1000,10.5,1,10.5,34,1,2,40,12000
76,2000,76200001,1000,10.5,2,10.5,31,2,2,999,0
76,2000,76200001,2000,9.8,1,9.8,100,2,4,0,3000
76,2000,76200001,3000,9.8,1,9.8,50,1,1,44,9999999
76,2000,76200001,4000,9.8,1,9.8,25,2,1,70,6000
"""


def test_ipums_is_read_as_a_table(folder):
    """IPUMS is a census sample in a CSV file.

    Of five rows, those without a known income or hours are left out; numbers are scaled to -1..1
    (ONE stands for 1), categories are coded.
    """
    (folder / "ipums.csv.gz").write_bytes(gzip.compress(IPUMS_CSV.encode()))
    table = ipums.ipums()
    assert table.numeric_names == ("AGE", "HRSWORK1", "INCTOT")
    assert table.categorical_names == ("SEX", "MARST")
    assert table.categories == (("1", "2"), ("1", "2", "4"))
    assert table.codes.tolist() == [[0, 1], [1, 2], [1, 0]]  # without records of 999 or 9999999
    ages = [round((2 * age / 100 - 1) * ONE) for age in (34, 100, 25)]
    assert table.numeric[:, 0].tolist() == ages
    assert table.numeric[:, 2].tolist() == [ONE, -ONE // 2, 0]  # 0 to the largest, 12000


def test_ipums_predicts_income(folder):
    (folder / "ipums.csv").write_text(IPUMS_CSV)
    data = datasets.load("ipums")
    assert data.feature_names == ("constant", "AGE", "HRSWORK1", "SEX=1", "MARST=1", "MARST=2")
    assert (data.task, data.labels.tolist()) == (CLASSIFICATION, [ONE, -ONE, -ONE])
    regression = datasets.load("ipums-regression")
    assert (regression.task, regression.labels.tolist()) == (REGRESSION, [ONE, -ONE // 2, 0])


# Vehicles

VEHICLE_LINES = b"3 1:-0.981481 50:0.5 100:1\n1 1:1 3:-0.25\n2 99:-1 100:-0.125\n"


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".bz2", bz2.compress)])
def test_vehicle_is_read_packed_or_not(folder, ending, pack):
    (folder / f"combined_scale{ending}").write_bytes(pack(VEHICLE_LINES))
    data = vehicle.vehicle()
    assert (data.dimension, data.task, data.classes) == (101, MULTICLASS, ("1", "2", "3"))
    assert data.labels.tolist() == [2, 0, 1]
    expected = [ONE, round(-0.981481 * ONE), 0, ONE // 2, ONE]
    assert data.features[0, [0, 1, 2, 50, 100]].tolist() == expected


@pytest.mark.parametrize("pack", [bytes, bz2.compress])
def test_the_files_of_vehicle_may_be_appended_to_each_other(tmp_path, pack):
    joined = tmp_path / "vehicle"
    joined.write_bytes(pack(VEHICLE_LINES) + pack(b"1 2:0.5\n"))
    if pack is bz2.compress:
        joined = joined.rename(tmp_path / "vehicle.bz2")
    assert vehicle.vehicle(joined).labels.tolist() == [2, 0, 1, 0]


def test_a_model_of_two_classes_tells_the_third_class_of_vehicle_from_the_others(folder):
    (folder / "combined_scale").write_bytes(VEHICLE_LINES)
    data = datasets.load("vehicle")
    assert (data.task, data.labels.tolist()) == (CLASSIFICATION, [ONE, -ONE, -ONE])


def test_vehicle_6_has_the_last_six_features(folder):
    (folder / "combined_scale").write_bytes(VEHICLE_LINES)
    data = datasets.load("vehicle-6")
    last_six = tuple(f"sensor{number}" for number in range(95, 101))
    assert data.feature_names == ("constant", *last_six)
    assert data.features[:, -1].tolist() == [ONE, 0, -ONE // 8]


def test_vehicle_6_is_no_file_of_six_features_alone(tmp_path):
    """They would be taken for the first six of 100, and the last six for zeros."""
    path = tmp_path / "six"
    path.write_text("1 1:0.5 2:0.1 3:0.2 4:-0.5 5:1 6:-1\n")
    with pytest.raises(UsageError):
        datasets.load(f"vehicle-6:{path}")


def test_an_arff_file_of_vehicle_is_refused_with_the_format_that_is_read(tmp_path):
    path = tmp_path / "vehicle.arff"
    path.write_text("@RELATION vehicle\n@ATTRIBUTE Y {1,2,3}\n@DATA\n{0 1,1 0.5}\n")
    with pytest.raises(UsageError) as caught:
        vehicle.vehicle(path)
    assert "libsvm" in caught.value.hint


# Images


def idx(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(folder, name="mnist", pack=bytes, ending=""):
    """Write twelve pictures with their labels; return both."""
    pictures = np.random.default_rng(8).integers(0, 256, (12, 28, 28))
    labels = np.arange(12) % 10
    (folder / name).mkdir()
    for kind, array in (("images-idx3", pictures), ("labels-idx1", labels)):
        (folder / name / f"train-{kind}-ubyte{ending}").write_bytes(pack(idx(array)))
    return pictures, labels


@pytest.mark.parametrize(
    ("name", "pack", "ending"), [("mnist", bytes, ""), ("fashion-mnist", gzip.compress, ".gz")]
)
def test_idx_images_are_scaled_down_to_49_pixels(folder, name, pack, ending):
    """MNIST pictures of 28 x 28 pixels, in IDX files packed or not, become 7 x 7 means, scaled to
    -1..1: with a constant, 50 features.
    """
    pictures, labels = write_idx(folder, name, pack, ending)
    data = images.load(name)
    assert (data.dimension, len(data.classes), data.task) == (50, 10, MULTICLASS)
    assert data.labels.tolist() == labels.tolist()
    mean = pictures[3, 4:8, 24:28].mean()  # row 1, column 6
    pixel = data.features[3, data.feature_names.index("pixel16")]
    assert pixel == round((2 * mean / 255 - 1) * ONE)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("images-idx3", lambda data: data[:-1]),
        ("images-idx3", lambda data: idx(np.zeros((12, 27, 27)))),
        ("labels-idx1", lambda data: idx(np.full(12, 10))),
    ],
    ids=["cut off", "pictures of another size", "a label above 9"],
)
def test_an_idx_file_that_cannot_be_used_is_refused_by_its_name(folder, kind, damage):
    write_idx(folder)
    path = folder / "mnist" / f"train-{kind}-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match=str(path)):
        images.load("mnist")


# Bundled and synthetic sets


def test_classes_are_divided_into_some_and_the_rest():
    """Of three kinds of iris, two can be told apart from the rest, as a problem of two classes.

    No classes, unknown ones or all of them leave nothing to tell apart.
    """
    iris = bundled.multiclass("iris")
    two = iris.against_rest("setosa", "virginica")
    assert two.task == CLASSIFICATION
    assert ((two.labels > 0) == (iris.labels != iris.classes.index("versicolor"))).all()
    for wrong in ((), ("rose",), iris.classes):
        with pytest.raises(UsageError, match="cannot be divided"):
            iris.against_rest(*wrong)


@pytest.mark.parametrize(
    ("name", "records", "dimension", "task"),
    [
        ("breast-cancer", 569, 31, CLASSIFICATION),
        ("diabetes", 442, 11, REGRESSION),
        ("digits", 1797, 65, CLASSIFICATION),
        ("synthetic-logistic", 101_000, 16, CLASSIFICATION),
    ],
)
def test_bundled_and_synthetic_sets_have_their_shapes(name, records, dimension, task):
    """Every data set has features and labels from -1 to 1 (ONE stands for 1), a constant first
    feature, and a tenth of records held out for tests.
    """
    data = datasets.load(name)
    assert data.features.shape == (records, dimension)
    assert data.task == task == datasets.task_of(name)
    assert (data.features[:, 0] == ONE).all()
    assert np.abs(data.features.astype(int)).max() <= ONE
    assert np.abs(data.labels.astype(int)).max() <= ONE
    if task == CLASSIFICATION:
        assert set(np.unique(data.labels)) == {-ONE, ONE}
    assert 0.08 < data.held_out.mean() < 0.12  # a tenth


@pytest.mark.parametrize("mean", [0, 1])
def test_gaussian_attributes_follow_the_truncated_law(mean):
    """The synthetic table of the papers has 16 columns of Gaussian numbers of deviation 1/4, cut
    to -1..1, and is the same for the same seed.
    """
    from scipy.stats import truncnorm

    table = synthetic.attributes(20_000, mean=mean, seed=3)
    law = truncnorm((-1 - mean) / 0.25, (1 - mean) / 0.25, mean, 0.25)
    values = table.numeric / ONE  # 16 columns, so 320,000 draws
    assert values.mean() == pytest.approx(law.mean(), abs=5 * law.std() / 320_000**0.5)
    assert values.std() == pytest.approx(law.std(), rel=0.01)
    assert (synthetic.attributes(20_000, mean=mean, seed=3).numeric == table.numeric).all()


@pytest.mark.parametrize(
    ("shape", "options", "x", "expected"),
    [
        ("uniform", {}, 0.5, 0.75),
        # P(X <= x) = (1 - (x + 2)**-9) / (1 - 3**-9)
        ("power", {}, -0.9, (1 - 1.1**-9) / (1 - 3**-9)),
        # P(X <= x) = (1 - exp(-x / 0.3)) / (1 - exp(-1 / 0.3))
        ("exponential", {"mean": 0.3}, 0.5, np.expm1(-0.5 / 0.3) / np.expm1(-1 / 0.3)),
    ],
)
def test_other_attributes_follow_their_laws(shape, options, x, expected):
    values = synthetic.attributes(40_000, 4, shape=shape, seed=1, **options).numeric / ONE
    assert (values <= x).mean() == pytest.approx(expected, abs=0.005)  # of 160,000 draws
