"""Programs of boards make records by the schema of the data, as the host makes them of a table."""

from pathlib import Path

import pytest
import rig
from test_commands import start as start  # a fixture

from ternhost import errors
from ternhost.datasets import own
from ternhost.datasets.schemas.schema import Schema
from terntools.boards import software, starting
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image

PROGRAM = Path(__file__).with_name("columns_program.py")
WEATHER = ("rain", "sun", "snow", "sun")
SCHEMA = """
label = "late"
missing = ["?"]
rows_with_missing = "leave out"

[columns.temperature]
low = -5
high = 12.5
unit = "°C"

[columns.weather]
categories = ["rain", "sun", "snow"]

[columns.late]
categories = ["no", "yes"]
"""


@pytest.fixture
def schema(tmp_path):
    """The file of the schema."""
    path = tmp_path / "my.toml"
    path.write_text(SCHEMA, encoding="utf-8")
    return path


def records_of_table(schema):
    """The records that the host makes of a table with the values that the program measures."""
    lines = ["temperature,weather,late"]
    for hour in range(48):
        temperature = "?" if hour % 16 == 5 else str(hour / 4 - 3)
        weather = WEATHER[hour % 4]
        lines.append(f"{temperature},{weather},{'yes' if weather == 'snow' else 'no'}")
    table = schema.with_suffix(".csv")
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return own.load(table).records()


@pytest.fixture(scope="module")
def pico(tmp_path_factory):
    """The port of a Pico with MicroPython and tern's own program."""
    flash = tmp_path_factory.mktemp("pico") / "flash.bin"
    flash_image.fill("pico", flash, software.library_files)
    with catalogue.boot("pico", flash) as machine:
        yield machine.url


@pytest.mark.slow
def test_a_board_records_what_the_host_reads_from_a_table(pico, schema, tmp_path):
    """`tern board up` puts a program and its schema on a Pico. The program records the values of
    two sensors; a table holds the same values, and becomes the same records on the host.
    """
    up = ["board", "up", pico, "--store", "store.sqlite", "--device", "7", "--data", "own"]
    words = [*up, "--main", str(PROGRAM), "--schema", str(schema), "--yes", "--json"]
    result = rig.tern(*words, cwd=tmp_path).json
    assert "/columns.json" in result["deployed"]
    assert result["hello"].startswith("4 features")
    assert rig.tern(*words, cwd=tmp_path).json["changed"] is False, "nothing is left to do"

    rig.tern("board", "records", pico, "--output", "collected.csv", cwd=tmp_path, code=errors.OK)

    collected = own.load(tmp_path / "collected.csv").records()
    expected = records_of_table(schema)
    assert len(collected) == 45, "a record without a temperature is left out"
    assert collected.tolist() == expected.tolist()


@pytest.mark.slow
def test_a_board_with_another_schema_gets_the_new_one(pico, schema):
    """Only the file of the schema is written, and the program makes records by it."""
    words = ["board", "deploy", pico, "--main", str(PROGRAM), "--schema", str(schema), "--json"]
    rig.tern(*words, code=errors.OK)
    schema.write_text(SCHEMA.replace("high = 12.5", "high = 20"), encoding="utf-8")

    result = rig.tern(*words).json

    assert result["written"] == ["/columns.json"]
    assert starting.wait_for_hello(pico).text.startswith("4 features")
    with Repl(pico, visits=True) as repl:
        assert repl.files.read("/columns.json") == Schema.read(schema).for_board()


MANY_COLUMNS = "".join(f"[columns.x{number}]\nlow = 0\nhigh = 1\n" for number in range(128))
WRONG = {
    "is missing": None,
    "is no TOML": "[columns",
    "has no bounds": SCHEMA.replace("low = -5\n", ""),
    "has too many features": SCHEMA + MANY_COLUMNS,
}
UP_OF_A0 = ["board", "up", "a0", "--store", "s", "--device", "7", "--data", "own"]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "words",
    [
        ["board", "deploy", "a0", "--main", str(PROGRAM)],
        [*UP_OF_A0, "--main", str(PROGRAM)],
        ["fleet", "emulate", "1", "--program", str(PROGRAM)],
    ],
    ids=["deploy", "up", "emulate"],
)
def test_a_wrong_schema_is_refused_before_a_board_is_touched(schema, tmp_path, words, wrong):
    if WRONG[wrong] is None:
        schema.unlink()
    else:
        schema.write_text(WRONG[wrong], encoding="utf-8")
    ended = rig.tern(*words, "--schema", str(schema), cwd=tmp_path, code=errors.USAGE)
    assert schema.name in ended.err
    assert list(tmp_path.iterdir()) in ([], [schema]), "nothing is written here either"


@pytest.mark.parametrize(
    "words",
    [
        ["board", "deploy", "a0"],
        UP_OF_A0,
        ["fleet", "emulate", "1"],
    ],
    ids=["deploy", "up", "emulate"],
)
def test_a_schema_needs_a_program(schema, tmp_path, words):
    """tern's own program makes no records."""
    ended = rig.tern(*words, "--schema", str(schema), cwd=tmp_path, code=errors.USAGE)
    assert "--schema" in ended.err


def test_a_model_is_trained_on_emulated_boards_by_the_schema_alone(schema, start, tmp_path):
    """The host has the schema and no records; the boards' program has the same schema."""
    words = ("--program", PROGRAM, "--schema", schema, "--dir", "my-fleet", "--json")
    fleet = start("fleet", "emulate", 2, *words).result()
    assert f"tern train --fleet port:{','.join(fleet['ports'])}" in fleet["command"]
    assert f"--data {schema}" in fleet["command"]
    boards = ("--fleet", "port:" + ",".join(fleet["ports"]), "--store", fleet["store"])
    run = ("--data", str(schema), "--epsilon", "8", "--reports", "8", "--no-report", "--json")
    result = rig.tern("train", "fedsgd", *boards, *run, cwd=tmp_path).json
    assert result["reports"] == 8
    assert len(result["weights"]) == 4
