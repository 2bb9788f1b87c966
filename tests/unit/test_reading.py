"""The reader of tables: every kind of file that people have, and what it says about wrong ones."""

import os
import random
import re
import time
from decimal import Decimal

import numpy as np
import pytest
from harness.table_kinds import KINDS

from tern.fixed import ONE
from ternhost.datasets import frames, own
from ternhost.datasets.tables import reading
from ternhost.errors import UsageError
from terntools.boards import firmware, program


@pytest.fixture
def read(tmp_path):
    """`read(content)`: the table in a file with this content, a text or bytes."""

    def read_content(content, **options):
        path = tmp_path / "table.csv"
        if isinstance(content, str):
            content = content.encode()
        path.write_bytes(content)
        return reading.read(path, **options)

    return read_content


@pytest.fixture
def refusal(read):
    """`refusal(content, column)`: the error for a file or, if it can be read, for a column of it."""

    def refusal_of(content, column=None, missing=()):
        try:
            table = read(content)
            table.numbers(column or table.columns[0], missing)
        except UsageError as error:
            return error
        pytest.fail("the table was read")

    return refusal_of


def values_in(table, column, expected):
    """The values in a column, as numbers where the expected ones are numbers."""
    values = []
    for text, value in zip(table.texts(column), expected, strict=True):
        if isinstance(value, float):
            values.append(float(table.style.plain(text)))
        else:
            values.append(text or None)
    return tuple(values)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_table_of_each_kind_is_read_as_a_person_reads_it(read, kind):
    table = read(kind.data)
    assert table.has_header == (kind.names is not None)
    if kind.names is not None:
        assert table.columns == kind.names
    columns = [
        values_in(table, name, expected)
        for name, expected in zip(table.columns, kind.columns, strict=True)
    ]
    assert columns == kind.columns


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_columns_of_numbers_are_read_as_numbers(read, kind):
    table = read(kind.data)
    for name, expected in zip(table.columns, kind.columns, strict=True):
        if all(isinstance(value, float) for value in expected):
            assert tuple(table.numbers(name)) == expected


# Lines


def test_each_row_knows_its_line(read):
    table = read('# of March\n\na,note\n1,"two\nlines"\n\n# a break\n2,one\n')
    assert list(table.lines) == [4, 8]
    assert table.where(1, "note") == "table.csv, line 8, column note"


def test_a_row_after_a_blank_line_is_a_break(read):
    table = read("a,b\n1,2\n3,4\n\n5,6\n\n\n7,8\n\n")
    assert list(table.breaks) == [2, 3]


# Titles and names


def test_a_title_before_names_may_have_several_cells(read):
    assert read("Kitchen, 3 Nov\na,b,y\n1,2,3\n4,5,6\n").columns == ("a", "b", "y")


@pytest.mark.parametrize("header", ["a,b,y", "index,one,a,b,y", "Kitchen, 3 November"])
def test_a_first_line_that_names_other_columns_is_refused(refusal, header):
    error = refusal(f"{header}\n" + "1,0.5,-0.5,1\n" * 3)
    assert "table.csv, line 1 " in error.message


def test_a_line_with_too_few_cells_is_refused(refusal):
    assert "table.csv, line 3 " in refusal("a,b\n1,2\n3\n4,5\n").message


def test_a_line_with_too_many_cells_is_refused(refusal):
    error = refusal("a;b\n" + "1,5;2\n" * 400 + "1;5;2\n")
    assert "table.csv, line 402 " in error.message
    assert "semicolons" in error.hint


def test_two_columns_of_one_name_are_refused(refusal):
    message = refusal("# one a too many\na,b,a\n1,2,3\n").message
    assert "table.csv, line 2 names several columns 'a'" in message


def test_a_first_row_whose_other_cells_are_missing_is_no_title(read):
    assert read("walk,,\nrun,1,2\nwalk,3,4\n").texts("x0") == ["walk", "run", "walk"]


def test_one_column_with_decimal_commas_is_not_taken_for_two(refusal):
    """It could be two columns of whole numbers below a title, too."""
    assert "table.csv, line 1 " in refusal("x\n" + "1,5\n2,25\n" * 30).message


def test_a_word_in_the_first_line_of_numbers_is_a_wrong_cell_and_no_name(refusal):
    assert "line 1, column x1: 'x'" in refusal("1,x\n1,0\n1,1\n", "x1").message


MANY_ROWS = "blue,no\nred,yes\n" * 5


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        ("?,na,walk", "0.1,0.2,rest\n0.3,0.1,run\n"),  # values are missing
        ("inf,-inf,walk", "0.1,0.2,rest\n0.3,0.1,run\n"),
        ("red,maybe", MANY_ROWS),  # red comes again
        ("0.5,0.5,²", "0.1,0.2,³\n"),
        ("١,walk", "٢,walk\n"),
    ],
)
def test_a_first_record_is_not_taken_for_names(read, first, rows):
    table = read(f"{first}\n{rows}")
    assert not table.has_header
    assert table.cells[-1][0] == first.split(",")[-1]


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        ("colour,answer", MANY_ROWS),  # records would hardly bring two new words
        ("day,what", "mon,walk\ntue,rest\n"),  # a usual name
        ("when,what", "2024-01-01,walk\n2024-01-02,rest\n"),  # words above digits
        ("RI,Na,Mg", "1.5,13.6,4.5\n1.5,13.9,3.6\n"),  # NA is sodium here
        ("time,note", "1,walk\n2,rest\ntime,note\n" + "3,walk\n" * 20),  # two tables in one file
    ],
)
def test_names_of_columns_are_recognised(read, first, rows):
    assert list(read(f"{first}\n{rows}").columns) == first.split(",")


OPEN = [
    "red,yes\nblue,no\ngreen,maybe\n",
    "ann\nbob\ncarl\n",
    "error,rest\n20.5,rest\n21,walk\n",  # rest is a word of the records
]


@pytest.mark.parametrize("content", OPEN)
def test_a_first_row_that_may_be_a_record_or_names_is_refused(refusal, content):
    assert "line 1" in str(refusal(content))


@pytest.mark.parametrize("content", OPEN)
def test_a_comment_mark_makes_the_first_row_the_names(read, content):
    table = read(f"#{content}")
    assert list(table.columns) == content.split("\n")[0].split(",")
    assert len(table) == 2


@pytest.mark.parametrize("content", OPEN)
def test_a_comment_with_names_makes_the_first_row_a_record(read, content):
    names = ["a", "b"][: content.split("\n")[0].count(",") + 1]
    table = read(f"# {','.join(names)}\n{content}")
    assert list(table.columns) == names
    assert len(table) == 3


def test_names_that_are_known_are_recognised(read):
    table = read("colour,answer\nblue,no\ngreen,yes\n", names=["answer", "colour"])
    assert (table.columns, len(table)) == (("colour", "answer"), 2)


def test_the_caller_can_say_that_the_first_row_names_nothing(read):
    table = read("a,b\n1,2\n", header=False)
    assert table.texts("x0") == ["a", "1"]


def test_a_name_of_several_lines_is_one_line(read):
    assert read('"power\n(W)",\u200by\n1,2\n3,4\n').columns == ("power (W)", "y")


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n", "a,b\n", ";;;\n;;;\n"])
def test_a_file_without_rows_is_refused(refusal, content):
    assert "table.csv holds no records" in refusal(content).message


RECORDS = [(1, 0.25, -0.5, 1), (1, -0.75, 0.125, -1), (1, 0.5, 0.0625, 1)] * 20


@pytest.mark.parametrize(
    ("separator", "decimal", "start", "end"),
    [
        (";", ".", "", ""),
        (";", ",", "c;a;b;y\n", ""),
        ("\t", ".", "", ""),
        (",", ".", "", ","),
        (",", ".", "", ";"),
        (",", ".", "A recording of 3 November\n", ""),
    ],
)
def test_records_are_the_same_from_files_of_several_forms(read, separator, decimal, start, end):
    lines = []
    for record in RECORDS:
        cells = [f"{value:g}".replace(".", decimal) for value in record]
        lines.append(separator.join(cells) + end)
    table = read(start + "\n".join(lines) + "\n")
    records = own.of_table(table, None, own.EVERYTHING).records()
    assert (records == np.array(RECORDS) * ONE).all()


# Bytes and quotes


def test_a_broken_byte_is_refused_with_its_line(refusal):
    content = "t,ä\n1,ö\n2,ü\n".encode()
    error = refusal(content.replace("ü".encode(), b"\xfc"))
    assert "table.csv, line 3:" in error.message


def test_a_file_that_is_no_text_is_refused_with_its_line(refusal):
    assert "table.csv, line 2:" in refusal(b"a,b\n1,\x00\n2,3\n").message


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"PK\x03\x04", "spreadsheet"),
        (b"\x1f\x8b\x08", "compressed"),
        (b"\xd0\xcf\x11\xe0", "spreadsheet"),
        (b"%PDF\n\x90", "PDF"),
    ],
)
def test_a_file_of_another_program_is_refused_with_its_kind(refusal, start, kind):
    noise = random.Random(1).randbytes(3000)
    assert kind in refusal(start + noise).hint


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('[\n {"a": 1, "y": 2},\n {"a": 3, "y": 4}\n]\n', "JSON"),
        ('{"a": 1, "y": 2}\n{"a": 3, "y": 4}\n', "JSON"),
        ("<!DOCTYPE html>\n<html><body>not found</body></html>\n", "HTML"),
        ('<?xml version="1.0"?>\n<rows/>\n', "XML"),
    ],
)
def test_a_text_that_is_no_table_is_refused_with_its_kind(refusal, content, kind):
    assert kind in refusal(content).hint


def test_a_quote_that_is_not_closed_is_refused_with_its_line(refusal):
    rows = "1,fine\n" * 1000
    assert "table.csv, line 1002:" in refusal(f'a,note\n{rows}2,"open\n{rows}', "a").message


def test_a_text_after_a_quote_is_refused_with_its_line(refusal):
    assert "table.csv, line 3:" in refusal('a,note\n1,fine\n2,"good"day\n').message


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"none\.csv"):
        reading.read(tmp_path / "none.csv")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(UsageError, match=re.escape(str(tmp_path))):
        reading.read(tmp_path)


# Numbers


@pytest.mark.parametrize(
    "cell",
    [
        "²",
        "1_000",
        "nan",
        "inf",
        "-Infinity",
        "0x1F",
        "9" * 5000,
        "1e999",
        "٣",
        "12,3,4",
        "1.2.3",
        "--1",
        "1e",
        "e5",
        ".",
        "1 2",
        "5 %",
        "",
        "word",
    ],
)
@pytest.mark.parametrize("rows_before", [0, 1000])
def test_a_cell_that_is_no_number_is_refused_with_its_line_and_column(refusal, cell, rows_before):
    content = "a;y\n" + "1;0.5\n" * (2 + rows_before) + f"{cell};1\n1;0.5\n"
    error = refusal(content, "a")
    assert f"table.csv, line {4 + rows_before}, column a:" in error.message
    assert len(error.message) < 200


def test_a_number_with_the_other_decimal_mark_is_refused_with_what_it_would_be(refusal):
    error = refusal("a;y\n1,5;1\n2,25;2\n0.75;3\n", "a")
    assert "line 4, column a: '0.75'" in error.message
    assert "decimal points" in error.hint
    assert "decimal commas" in error.hint


def test_a_missing_value_is_refused_with_the_line_of_the_schema_that_says_it(refusal):
    assert 'missing = ["?"]' in refusal("a,y\n1,1\n?,2\n", "a").hint


def test_missing_values_become_nan(read):
    numbers = read("a,y\n1,1\n?,2\n,3\n-200,4\n").numbers("a", ["?", "", "-200"])
    assert np.array_equal(numbers, [1, np.nan, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize("written", ["-200", "-200,0", "-0200,00", "-200,"])
def test_a_missing_number_may_be_written_in_several_ways(read, written):
    table = read(f"a;y\n1,5;1\n{written};2\n-2000,0;3\n-200,01;4\n200;5\n")
    assert table.missing("a", ["-200"]).tolist() == [False, True, False, False, False]


def test_a_column_that_is_not_there_is_refused_with_those_that_are(read):
    with pytest.raises(UsageError, match="'c'") as caught:
        read("a,b\n1,2\n").numbers("c")
    assert "a, b" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "number"),
    [
        ("a;y\n1,234;1\n2,345;2\n", 1.234),  # semicolons, since commas are decimal marks
        ('a,y\n"1,234",1\n"2,345",2\n', 1234),  # quotes, though there are decimal points
        ("a;y\n1,234;0.5\n2,345;1.5\n", 1234),  # decimal points elsewhere
        ("a;y\n1.234;1\n987;2\n1.250;2\n88;1\n", 1234),  # no mark below 1000
        ("a\ty\n1,234\t1\n987\t2\n1,250\t2\n88\t1\n", 1234),
        ("a;y\n1.234;1\n2;2\n1.25;2\n88;1\n", 1.234),
        ("a;y\n1.234;0,5\n2.345;1,5\n", 1234),  # decimal commas elsewhere
        ("a;y\n1.234;1\n2.345;2\n", 1.234),
        ("a;y\n" + "1,234;1\n" * 3000 + "0,5;1\n", 1.234),  # which is told at the end only
        ('a,y\n"1,234",1\n' + '"2,345",1\n' * 3000 + '"2,345.5",1\n', 1234),
        ("a;y\n1'234;1\n2'345.5;2\n", 1234),
    ],
)
def test_a_mark_before_three_digits_is_read_as_the_other_cells_suggest(read, content, number):
    assert read(content).numbers("a")[0] == number


def test_a_text_of_a_number_keeps_all_its_digits(read):
    digits = "0,1234567890123456789012345678901234567890"
    table = read(f"a;y\n{digits};1\n0,5;2\n")
    assert Decimal(table.style.plain(table.texts("a")[0])) == Decimal(digits.replace(",", "."))


def test_rows_are_chosen_in_any_order(read):
    table = read("a,y\n1,p\n2,q\n3,r\n").rows([2, 0])
    assert table.texts("y") == ["r", "p"]
    assert list(table.lines) == [4, 2]


def test_a_million_numbers_are_read_within_seconds(read):
    line = ",".join(["12.5"] * 10) + "\n"
    table_text = ",".join(f"c{number}" for number in range(10)) + "\n" + line * 100_000
    start = time.process_time()
    table = read(table_text)
    total = sum(table.numbers(name).sum() for name in table.columns)
    assert total == 12.5 * 1e6
    assert time.process_time() - start < 5  # it takes 0.7 s


# Data frames


@pytest.fixture
def frame_of():
    """`frame_of(columns)`: a data frame of pandas, which comes with an extra."""
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame


def test_a_frame_is_a_table(frame_of):
    table = frames.table_of(frame_of({"a": [1, 2], "b": [0.1, None], "c": ["x ", True]}))
    assert table.columns == ("a", "b", "c")
    assert table.numbers("a").tolist() == [1, 2]
    assert table.texts("b") == ["0.1", ""]
    assert table.texts("c") == ["x", "True"]


def test_missing_values_of_each_type_are_empty_cells(frame_of):
    frame = frame_of({"a": [1, None], "b": ["x", None]}).convert_dtypes()
    table = frames.table_of(frame)
    assert [table.texts("a"), table.texts("b")] == [["1", ""], ["x", ""]]


def test_a_wrong_cell_of_a_frame_is_refused_with_its_row(frame_of):
    table = frames.table_of(frame_of({"a": [1.5, float("inf")]}), "my frame")
    with pytest.raises(UsageError, match="my frame, row 2, column a: 'inf'"):
        table.numbers("a")


def test_two_columns_of_a_frame_with_one_name_are_refused(frame_of):
    with pytest.raises(UsageError, match="'a'"):
        frames.table_of(frame_of([[1, 2]], columns=["a", "a"]))


# Damage


def _deleted_cell(data, chance):
    line = chance.choice(data.split(b"\n"))
    cells = re.split(rb"[,;\t|]", line)
    return data.replace(line, b",".join(cells[:-1]), 1)


def _changed_separators(data, chance):
    first, second = chance.sample([b",", b";", b"\t", b"|", b" ", b"."], 2)
    return data.replace(first, second, chance.choice([1, 2, -1]))


def _broken_encoding(data, chance):
    position = chance.randrange(len(data))
    return data[:position] + bytes([chance.randrange(128, 256)]) + data[position:]


def _opened_quote(data, chance):
    position = chance.randrange(len(data))
    return data[:position] + b'"' + data[position:]


def _cut(data, chance):
    start, end = sorted(chance.choices(range(len(data)), k=2))
    return data[:start] + data[end:]


def _flipped_bytes(data, chance):
    damaged = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def _wrong_number(data, chance):
    number = chance.choice(re.findall(rb"\d+", data) or [b" "])
    wrong = [b"\xc2\xb2", b"1_000", b"nan", b"inf", b"0x1F", b"9" * 5000, b"1e999", b"12,3,4", b"?"]
    return data.replace(number, chance.choice(wrong), chance.choice([1, -1]))


_DAMAGES = [
    _deleted_cell,
    _changed_separators,
    _broken_encoding,
    _opened_quote,
    _cut,
    _flipped_bytes,
    _wrong_number,
]


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_table_is_read_or_refused_with_the_file(read, seed):
    chance = random.Random(seed)
    data = chance.choice(KINDS).data
    for _ in range(chance.randrange(1, 3)):
        data = chance.choice(_DAMAGES)(data, chance) or b"\n"
    try:
        table = read(data)
    except UsageError as error:
        messages = [error.message]
    else:
        messages = faults_in_cells(table)
    for message in messages:
        names_line = re.match(r"\S*table\.csv, line [1-9]", message)
        assert names_line or "table.csv holds no records" in message


def faults_in_cells(table):
    """The messages about cells that are no numbers: the first one of each column that has some."""
    assert {len(cells) for cells in table.cells} == {len(table.lines)}
    messages = []
    for name in table.columns:
        try:
            numbers = table.numbers(name)
        except UsageError as error:
            messages.append(error.message)
        else:
            assert np.isfinite(numbers).all()
    return messages


def test_a_text_among_numbers_may_be_the_name_of_a_device(refusal):
    assert "--by" in refusal("owner,x\nowner0,1\nowner1,2\n", "owner").hint


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such devices")
@pytest.mark.parametrize("read_file", [reading.read, firmware.read_firmware, program.read_file])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_file_and_is_not_read_for_ever(read_file, device):
    with pytest.raises(UsageError, match="device"):
        read_file(device)
