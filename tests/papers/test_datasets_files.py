"""Readers of the papers' files, on small files in their exact published formats; bundled and
synthetic sets.
"""

import bz2
import gzip
import struct

import numpy as np
import pytest
from simulating import begin, finished

from tern import wire
from ternhost import datasets
from ternhost.count.questions import round_body
from ternhost.datasets import base, bundled, synthetic
from ternhost.datasets.base import CLASSIFICATION, MULTICLASS, REGRESSION
from ternhost.errors import UsageError
from ternhost.learn import collect
from ternpapers.datasets import images, ipums, motions, vehicle, wisdm

ONE = 16384


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of data files, empty."""
    monkeypatch.setenv("TERN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(motions, "_bundled", lambda: None)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize(
    "name", [name for name, source in datasets.SOURCES.items() if source.has_file]
)
def test_a_missing_file_says_where_to_get_it(name, tmp_path):
    for text in (name, f"{name}:{tmp_path / 'nowhere'}"):
        with pytest.raises(UsageError, match=f"{name} is a file of its publishers") as caught:
            datasets.load(text)
        assert all(word in caught.value.hint for word in ("https://", "TERN_DATA", f"{name}:FILE"))
    assert "does not exist" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["wisdm", "wisdm-records", "ipums", "vehicle", "vehicle-6", "basic-motions"]
)
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe\x80" * 50, b"hello\n", b"\x1f\x8b\x08"])
def test_a_file_of_another_kind_is_refused_with_the_source_of_the_right_one(
    name, content, tmp_path
):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=str(path)) as caught:
        datasets.load(f"{name}:{path}")
    assert "https://" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "wisdm",
            "33,Jogging,49105962326000,-0.69,12.68,0.5;\n1600,A,252207666810782,-0.36,8.79,1.05;\n",
            "1 of 2 records are malformed",
        ),
        ("wisdm", "33,Jogging,49105962326000,-0.69,12.68,0.5;\n", "not one window"),
        ("ipums", "SEX,MARST\n1,2\n", "no records with a numeric variable"),
        ("ipums", "AGE,SEX\n", "no records"),
        ("ipums", "AGE,SEX\nold,1\n", "AGE has values that are not numbers"),
        ("ipums", "AGE,SEX\n999,1\n", "no record has all"),
        (
            "ipums",
            "AGE,DIST\n" + "".join(f"9,{i}\n" for i in range(100)),
            "DIST has 100 different values",
        ),
        *(
            ("vehicle", line, "file")
            for line in (
                "4 1:0.5\n",
                "1 1:1.5\n",
                "1 101:0.5\n",
                "1 0:0.5\n",
                "1 a:0.5\n",
                "x 1:1\n",
                "1 1:nan\n",
            )
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_problem(name, content, problem, tmp_path):
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(UsageError, match=problem) as caught:
        datasets.load(f"{name}:{path}")
    assert {"vehicle": "combined_scale"}.get(name, "") in (caught.value.hint or "")


def test_n_categories_become_n_minus_1_attributes():
    assert datasets.expand([0, 1, 2, 1], 3).tolist() == [
        [ONE, -ONE],
        [-ONE, ONE],
        [-ONE, -ONE],
        [-ONE, ONE],
    ]
    assert datasets.expand([0, 1], 2).tolist() == [[ONE], [-ONE]]
    assert datasets.expand([0, 0], 1).shape == (2, 0)


def test_values_are_scaled_from_their_domain_to_minus_1_to_1():
    assert datasets.normalised([0, 50, 100, 120], 0, 100).tolist() == [-ONE, 0, ONE, ONE]
    assert datasets.normalised([7, 7], 7, 7).tolist() == [0, 0]


def test_classes_are_divided_into_some_and_the_rest():
    iris = bundled.multiclass("iris")
    assert (iris.task, iris.classes) == (MULTICLASS, ("setosa", "versicolor", "virginica"))
    two = iris.against_rest("setosa", "virginica")
    assert two.task == CLASSIFICATION
    assert ((two.labels > 0) == (iris.labels != 1)).all()
    for wrong in ((), ("rose",), iris.classes):
        with pytest.raises(UsageError, match="cannot be divided") as caught:
            iris.against_rest(*wrong)
        assert "versicolor" in caught.value.hint


WISDM_LINES = """\
33,Jogging,49105962326000,-0.6946377,12.680544,0.50395286;
33,Jogging,49106062271000,5.012288,11.264028,0.95342433;
33,Jogging,49106112167000,4.903325,10.882658,-0.08172209;

33,Jogging,49106222305000,-0.61291564,18.496431,3.0237172;33,Walking,49106332290000,-1.1849703,12.108489,7.205164;
11,Walking,1867172313000,4.4,4.4,;
17,Sitting,0,0,0,0;
17,Upstairs,57869902574000,3.36,10.57,-6.129145,;
20,Standing,2.3E-05,1,2,3;
6,Downstairs,1e5
6,Downstairs,23445542281000,-0.72,9.62,0.14982383;
"""


def test_wisdm_reads_the_complete_records(folder):
    (folder / "WISDM_ar_v1.1_raw.txt").write_text(WISDM_LINES + WISDM_LINES.splitlines()[0] * 100)
    _, codes, acceleration = wisdm.read(folder / "WISDM_ar_v1.1_raw.txt")
    activities = [wisdm.ACTIVITIES[code] for code in codes[:8]]
    assert activities == ["Jogging"] * 4 + ["Walking", "Sitting", "Upstairs", "Downstairs"]
    assert len(codes) == 8 + 100  # not the lines without z, with a fractional time, or cut short
    assert acceleration[0].tolist() == [-0.6946377, 12.680544, 0.50395286]
    assert acceleration[6].tolist() == [3.36, 10.57, -6.129145]


def test_wisdm_windows_have_the_features_of_their_samples(tmp_path):
    rng, lines = np.random.default_rng(4), []
    bouts = ((1, "Walking", 450), (1, "Jogging", 200), (2, "Jogging", 399), (2, "Sitting", 199))
    for user, activity, samples in bouts:
        for i in range(samples):
            x, z = (10 * np.sin(i / 3), rng.normal()) if activity == "Walking" else (0.5, 0)
            lines.append(f"{user},{activity},{1000 + i},{x:.6f},9.81,{z:.6f};")
    path = tmp_path / "raw.txt"
    path.write_text("\n".join(lines) + "\n")
    data = wisdm.wisdm(path)
    assert [data.classes[label] for label in data.labels] == [
        "Walking",
        "Walking",
        "Jogging",
        "Jogging",
    ]
    assert data.dimension == 41 == len(data.feature_names)
    walk = dict(zip(data.feature_names, data.features[0] / ONE, strict=True))
    samples = np.array([float(line.split(",")[3]) for line in lines[:200]])
    assert (walk["constant"], walk["mean_y"]) == (1, pytest.approx(9.81 / 20, abs=1e-4))
    assert walk["deviation_x"] == pytest.approx(2 * samples.std() / 10 - 1, abs=1e-4)
    difference = np.abs(samples - samples.mean()).mean()
    assert walk["difference_x"] == pytest.approx(2 * difference / 10 - 1, abs=1e-4)
    shares = np.histogram(samples, bins=10)[0] / 200
    assert [walk[f"bin{b}_x"] for b in range(10)] == pytest.approx(2 * shares - 1, abs=1e-4)
    assert datasets.load(f"wisdm:{path}").labels.tolist() == [ONE, ONE, -ONE, -ONE]
    six = datasets.load(f"wisdm:{path}", classes=True)
    assert (len(six.classes), six.labels.tolist()) == (6, data.labels.tolist())


def test_wisdm_records_are_samples_with_their_user_and_activity(folder):
    samples = ("33,Jogging,1,-0.5,20.5,0.5;", "1,Walking,2,5,-10,0;", "36,Sitting,3,0,0,-20;")
    (folder / "WISDM_ar_v1.1_raw.txt").write_text("\n".join(samples))
    table, data = wisdm.table(), datasets.load("wisdm-records", classes=True)
    assert table.numeric.tolist() == [
        [round(-ONE / 40), ONE, round(ONE / 40)],
        [ONE // 4, -ONE // 2, 0],
        [0, 0, -ONE],
    ]
    assert (table.categorical_names, [*map(len, table.categories)]) == (
        ("user", "activity"),
        [36, 6],
    )
    assert [
        tuple(of[code] for of, code in zip(table.categories, codes, strict=True))
        for codes in table.codes
    ] == [
        ("33", "Jogging"),
        ("1", "Walking"),
        ("36", "Sitting"),
    ]
    assert data.feature_names[:5] == ("constant", "x", "y", "z", "user=1")
    assert data.dimension == 1 + 3 + 35
    users = data.features[:, 4:]  # none of the last one
    assert [row.argmax() + 1 if (row > 0).any() else None for row in users] == [33, 1, None]
    assert [data.classes[label] for label in data.labels] == ["Jogging", "Walking", "Sitting"]
    assert datasets.load("wisdm-records").labels.tolist() == [-ONE, ONE, -ONE]
    columns = 3 + sum(len(values) - 1 for values in table.categories)
    assert columns == 43  # of the paper
    (folder / "WISDM_ar_v1.1_raw.txt").write_text("37,Jogging,1,0,0,0;")
    with pytest.raises(UsageError, match="the users must be 1 to 36"):
        wisdm.table()


def test_categories_are_collected_as_such_and_not_as_columns(folder):
    (folder / "WISDM_ar_v1.1_raw.txt").write_text("33,Jogging,1,-0.5,20.5,0.5;")
    (folder / "ipums.csv").write_text(IPUMS_CSV)
    for name, numeric, categorical in (
        ("wisdm-records", ("x", "y", "z"), ("user", "activity")),
        ("ipums", ("AGE", "HRSWORK1", "INCTOT"), ("SEX", "MARST")),
        ("ipums-regression", ("AGE", "HRSWORK1", "INCTOT"), ("SEX", "MARST")),
    ):
        table, first = collect.load(name)
        assert (table.name, table.numeric_names, table.categorical_names) == (
            name,
            numeric,
            categorical,
        )
        assert first == 0


TS_HEADER = """\
#Four students and four activities.
@problemName BasicMotions
@timeStamps false
@missing false
@univariate false
@dimensions 6
@equalLength true
@seriesLength 45
@classLabel true Standing Running Walking Badminton
@data
"""


def ts_file(path, labels, rng, length=45, channels=6):
    values = rng.normal(0, 3, (len(labels), channels, length))
    lines = [
        ":".join([*(",".join(f"{v:.6f}" for v in channel) for channel in record), label])
        for record, label in zip(values, labels, strict=True)
    ]
    path.write_text(TS_HEADER + "\n".join(lines) + "\n")
    return values


def test_basic_motions_are_read_in_windows_with_their_features(folder, monkeypatch):
    rng, files = np.random.default_rng(3), folder / "BasicMotions"
    files.mkdir()
    labels = ["Standing", "Running", "Walking", "Badminton", "Running"] * 4
    train = ts_file(files / "BasicMotions_TRAIN.ts", labels, rng)
    ts_file(files / "BasicMotions_TEST.ts", labels[:3], rng)
    data = motions.motions()
    assert (len(data.labels), data.dimension) == (2 * 23, 21)  # two whole windows in 45 samples
    assert [data.classes[label] for label in data.labels[:4:2]] == ["Standing", "Running"]
    assert (data.labels[::2] == data.labels[1::2]).all()
    assert (data.held_out[::2] == data.held_out[1::2]).all()  # both windows of a record
    assert 0 < data.held_out.sum() < 23
    second = dict(zip(data.feature_names, data.features[1] / ONE, strict=True))
    x, yaw = train[0, 0, 20:40], train[0, 5, 20:40]
    assert second["mean_x"] == pytest.approx(x.mean() / 30, abs=1e-4)
    assert second["deviation_yaw"] == pytest.approx(2 * yaw.std() / 17.5 - 1, abs=1e-4)
    assert second["difference_x"] == pytest.approx(
        2 * np.abs(x - x.mean()).mean() / 15 - 1, abs=1e-4
    )
    turned = np.linalg.norm(train[0, 3:, 20:40], axis=0).mean()
    assert second["rotation"] == pytest.approx(2 * turned / (35 * 3**0.5) - 1, abs=1e-4)
    two = datasets.load(f"basic-motions:{files / 'BasicMotions_TEST.ts'}")
    assert two.labels.tolist() == [-ONE, -ONE, ONE, ONE, -ONE, -ONE]
    monkeypatch.setattr(motions, "_bundled", lambda: files)
    assert (datasets.load("basic-motions").features == data.features).all()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace(":Running", ":Swimming"), "classes"),
        (lambda text: text[: text.rindex(",")] + ",?:Running", "not a ts"),
        (lambda text: text.replace(":", ",", 1), "not a ts"),
        (lambda text: text.replace("@data", "@date"), "not a ts"),
    ],
)
def test_a_ts_file_that_cannot_be_used_is_refused(tmp_path, change, problem):
    path = tmp_path / "a.ts"
    ts_file(path, ["Running", "Walking"], np.random.default_rng(1))
    path.write_text(change(path.read_text()))
    with pytest.raises(UsageError, match=problem):
        motions.motions(path)


IPUMS_CSV = """\
"COUNTRY","YEAR","SAMPLE","SERIAL","HHWT","PERNUM","PERWT","AGE","SEX","MARST","HRSWORK1","INCTOT"
76,2000,76200001,1000,10.5,1,10.5,34,1,2,40,12000
76,2000,76200001,1000,10.5,2,10.5,31,2,2,999,0
76,2000,76200001,2000,9.8,1,9.8,100,2,4,0,3000
76,2000,76200001,3000,9.8,1,9.8,50,1,1,44,9999999
76,2000,76200001,4000,9.8,1,9.8,25,2,1,70,6000
"""


@pytest.mark.parametrize("name", ["ipums.csv", "ipums.csv.gz"])
def test_ipums_is_read_as_a_table(folder, name):
    raw = IPUMS_CSV.encode()
    (folder / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    table = ipums.ipums()
    assert table.numeric_names == ("AGE", "HRSWORK1", "INCTOT")
    assert table.categorical_names == ("SEX", "MARST")
    assert table.categories == (("1", "2"), ("1", "2", "4"))
    assert table.codes.tolist() == [[0, 1], [1, 2], [1, 0]]
    assert table.numeric[:, 0].tolist() == [
        round((2 * age / 100 - 1) * ONE) for age in (34, 100, 25)
    ]
    assert table.numeric[:, 2].tolist() == [ONE, -ONE // 2, 0]  # 0 to the largest, 12000


def test_ipums_predicts_income(folder):
    (folder / "ipums.csv").write_text(IPUMS_CSV)
    data = datasets.load("ipums")
    assert data.feature_names == ("constant", "AGE", "HRSWORK1", "SEX=1", "MARST=1", "MARST=2")
    assert data.task == CLASSIFICATION
    assert data.labels.tolist() == [ONE, -ONE, -ONE]
    assert data.features[:, 3:].tolist() == [
        [ONE, -ONE, ONE],
        [-ONE, -ONE, -ONE],
        [-ONE, ONE, -ONE],
    ]
    regression = datasets.load("ipums-regression")
    assert (regression.name, regression.feature_names) == ("ipums-regression", data.feature_names)
    assert datasets.task_of("ipums-regression:some/file") == REGRESSION
    assert (regression.task, regression.labels.tolist()) == (REGRESSION, [ONE, -ONE // 2, 0])
    for label in ("SEX", "WEIGHT"):
        with pytest.raises(UsageError, match="no numeric attribute") as caught:
            ipums.ipums().regression(label)
        assert "INCTOT" in caught.value.hint


VEHICLE_LINES = b"""\
3 1:-0.981481 2:-0.997268 50:0.5 100:1
1 1:1 3:-0.25
2 99:-1 100:-0.125
"""


@pytest.mark.parametrize(
    ("pack", "ending"), [(bytes, ""), (bz2.compress, ".bz2"), (gzip.compress, ".gz")]
)
def test_vehicle_is_read_packed_or_not(folder, pack, ending):
    (folder / f"combined_scale{ending}").write_bytes(pack(VEHICLE_LINES))
    data = vehicle.vehicle()
    assert (data.dimension, data.task, data.classes) == (101, MULTICLASS, ("1", "2", "3"))
    assert data.labels.tolist() == [2, 0, 1]
    assert data.features[0, [0, 1, 2, 3, 50, 100]].tolist() == [
        ONE,
        round(-0.981481 * ONE),
        round(-0.997268 * ONE),
        0,
        ONE // 2,
        ONE,
    ]
    assert data.features[2, [1, 99, 100]].tolist() == [0, -ONE, -ONE // 8]
    assert datasets.load("vehicle").labels.tolist() == [ONE, -ONE, -ONE]
    six = datasets.load("vehicle-6", classes=True)
    assert six.feature_names == ("constant", *(f"sensor{j}" for j in range(95, 101)))
    assert (six.features[:, 1:] == data.features[:, 95:]).all()
    assert (six.labels == data.labels).all()


def idx(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def idx_files(folder, name="mnist", packed=False):
    rng = np.random.default_rng(8)
    pictures = rng.integers(0, 256, (12, 28, 28))
    labels = np.arange(12) % 10
    (folder / name).mkdir()
    for which, array in (("images-idx3", pictures), ("labels-idx1", labels)):
        path = folder / name / f"train-{which}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    return pictures, labels


@pytest.mark.parametrize(("name", "packed"), [("mnist", False), ("fashion-mnist", True)])
def test_idx_images_are_scaled_down_to_49_pixels(folder, name, packed):
    pictures, labels = idx_files(folder, name, packed)
    data = images.load(name)
    assert (data.dimension, len(data.classes), data.task) == (50, 10, MULTICLASS)
    assert data.labels.tolist() == labels.tolist()
    mean = pictures[3, 4:8, 24:28].mean()  # row 1, column 6
    assert data.features[3, data.feature_names.index("pixel16")] == round(
        (2 * mean / 255 - 1) * ONE
    )
    assert datasets.load(name).task == CLASSIFICATION
    assert images.load(name, folder / name).labels.tolist() == labels.tolist()


def test_devices_train_the_ten_classes_of_images(folder):
    idx_files(folder)
    options = {
        "dataset": "mnist",
        "model": "softmax",
        "records": 2,
        "rounds": 2,
        "share": 1.0,
        "epsilon": "20",
    }
    algorithm = begin("fedavg", **options)
    (question, _), *_ = algorithm.cohorts(range(1, algorithm.clients + 1))
    assert (question.model, question.classes, len(question.parameters)) == (
        wire.LOCAL_SOFTMAX,
        10,
        500,
    )
    assert len(round_body(1, question)) < wire.MAX_FRAME - wire.TAG_BYTES
    assert algorithm.modules == ("local", "softmax")
    assert np.abs(finished(algorithm).weights).max() > 0


def test_idx_needs_a_folder(folder):
    idx_files(folder)
    with pytest.raises(UsageError, match="is two files") as caught:
        images.load("mnist", folder / "mnist" / "train-images-idx3-ubyte")
    assert "mnist:FOLDER" in caught.value.hint


@pytest.mark.parametrize(
    ("which", "damage", "problem"),
    [
        ("images-idx3", lambda data: data[:-1], "the header announces"),
        ("images-idx3", lambda data: data + b"x", "the header announces"),
        ("images-idx3", lambda data: data[:10], "cut short"),
        ("images-idx3", lambda data: b"", "not an idx file"),
        ("images-idx3", lambda data: b"\0\0\x0d" + data[3:], "not an idx file"),
        ("images-idx3", lambda data: gzip.compress(data)[:-9], "cannot be read"),
        ("images-idx3", lambda data: b"\0\0\x08\x01" + struct.pack(">I", 3) + b"abc", "not images"),
        ("images-idx3", lambda data: idx(np.zeros((12, 27, 27))), "not images"),
        ("labels-idx1", lambda data: idx(np.zeros(11)), "not 12 labels"),
        ("labels-idx1", lambda data: idx(np.full(12, 10)), "from 0 to 9"),
    ],
)
def test_an_idx_file_that_cannot_be_used_is_refused(folder, which, damage, problem):
    idx_files(folder)
    path = folder / "mnist" / f"train-{which}-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match=problem) as caught:
        images.load("mnist")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "records", "dimension", "task"),
    [
        ("breast-cancer", 569, 31, CLASSIFICATION),
        ("diabetes", 442, 11, REGRESSION),
        ("digits", 1797, 65, CLASSIFICATION),
        ("iris", 150, 5, CLASSIFICATION),
        ("wine", 178, 14, CLASSIFICATION),
        ("synthetic-linear", 100_000, 16, REGRESSION),
        ("synthetic-logistic", 101_000, 16, CLASSIFICATION),
    ],
)
def test_bundled_and_synthetic_sets_have_their_shapes(name, records, dimension, task):
    data = datasets.load(name)
    assert data.features.shape == (records, dimension)
    assert data.features.dtype == np.int16
    assert len(data.feature_names) == len(set(data.feature_names)) == dimension
    assert data.task == task == datasets.task_of(name)
    assert (data.features[:, 0] == ONE).all()
    assert np.abs(data.features.astype(int)).max() <= ONE
    assert np.abs(data.labels.astype(int)).max() <= ONE
    if task == CLASSIFICATION:
        assert set(np.unique(data.labels)) == {-ONE, ONE}
    assert 0.08 < data.held_out.mean() < 0.12


@pytest.mark.parametrize("mean", [0, 1 / 3, 2 / 3, 1])
def test_gaussian_attributes_follow_the_truncated_law(mean):
    from scipy.stats import truncnorm

    table = synthetic.attributes(20_000, mean=mean, seed=3)
    law = truncnorm((-1 - mean) / 0.25, (1 - mean) / 0.25, mean, 0.25)
    values = table.numeric / ONE
    assert values.shape == (20_000, 16)
    assert np.abs(values).max() <= 1
    assert values.mean() == pytest.approx(law.mean(), abs=5 * law.std() / 320_000**0.5)
    assert values.std() == pytest.approx(law.std(), rel=0.01)
    assert (synthetic.attributes(20_000, mean=mean, seed=3).numeric == table.numeric).all()


def test_uniform_and_power_attributes_follow_their_laws():
    uniform = synthetic.attributes(10_000, 4, shape="uniform").numeric / ONE
    assert np.quantile(uniform, [0.25, 0.5, 0.75]) == pytest.approx([-0.5, 0, 0.5], abs=0.02)
    power = synthetic.attributes(10_000, 4, shape="power").numeric / ONE
    # P(X <= x) = (1 - (x + 2)**-9) / (1 - 3**-9)
    assert (power <= -0.9).mean() == pytest.approx((1 - 1.1**-9) / (1 - 3**-9), abs=0.01)
    with pytest.raises(UsageError, match="beside the constant"):
        synthetic.linear(10, 1)
    with pytest.raises(UsageError, match="no distribution 'triangular'") as caught:
        synthetic.attributes(10, shape="triangular")
    assert "gaussian, exponential, uniform, power" in caught.value.hint


def test_exponential_and_narrow_attributes_follow_their_laws():
    table = synthetic.attributes(40_000, 4, shape="exponential", mean=0.3, seed=1).numeric / ONE
    assert 0 <= table.min() < 0.001 < 0.99 < table.max() <= 1
    # P(X <= x) = (1 - exp(-x / 0.3)) / (1 - exp(-1 / 0.3))
    for x in (0.1, 0.5, 0.9):
        assert (table <= x).mean() == pytest.approx(
            np.expm1(-x / 0.3) / np.expm1(-1 / 0.3), abs=0.005
        )
    narrow = synthetic.attributes(40_000, 4, mean=0.3, deviation=0.2, seed=1).numeric / ONE
    assert (narrow.mean(), narrow.std()) == (
        pytest.approx(0.3, abs=0.003),
        pytest.approx(0.2, abs=0.003),
    )
    for options, message in (
        (
            {"shape": "exponential"},
            "the mean of an exponential must be above 0 and at most 5, not 0",
        ),
        ({"deviation": 0.0}, "a deviation must be above 0 and at most 5, not 0"),
        ({"deviation": 0.2, "mean": 1.25}, "the mean of a Gaussian must be -1.2 to 1.2, not 1.25"),
    ):
        with pytest.raises(UsageError, match=message):
            synthetic.attributes(10, 4, **options)


@pytest.mark.parametrize("mean", [1.3, -1.3, float("nan")])
def test_a_gaussian_whose_values_nearly_all_lie_outside_the_domain_is_refused(mean):
    with pytest.raises(UsageError, match=f"must be -1.25 to 1.25, not {mean}"):
        synthetic.attributes(10, 4, mean=mean)


def test_the_data_folder_is_tern_data_or_lies_in_the_cache(monkeypatch, tmp_path):
    assert base.data_folder() == tmp_path / "data"
    monkeypatch.delenv("TERN_DATA")
    monkeypatch.setenv("TERN_CACHE", str(tmp_path / "cache"))
    assert base.data_folder() == tmp_path / "cache" / "data"
