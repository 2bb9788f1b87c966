"""Kinds of tables that users have: the bytes of a file, and what a person reads in it.

Each kind is small and differs from the others in one respect, such as its separator or its quotes.
"""

from dataclasses import dataclass

Cell = float | str | None  # a number, a text, or nothing


@dataclass(frozen=True)
class Kind:
    """A table as bytes, and its content.

    names: of the columns; None if the file does not name them. rows: the cells, with numbers as
    floats and None for an empty cell.
    """

    name: str
    data: bytes
    names: tuple[str, ...] | None
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def columns(self) -> list[tuple[Cell, ...]]:
        return list(zip(*self.rows, strict=True))


def _kind(name, text, names, rows, encoding="utf-8"):
    """Make a kind from a text. names: separated by blanks; "" if the file names no columns."""
    data = text
    if isinstance(text, str):
        data = text.encode(encoding)
    return Kind(name, data, tuple(names.split()) or None, tuple(map(tuple, rows)))


# Most kinds are this table, written in different ways: a time, a temperature and an activity.
_NAMES = "t temperature activity"
_ROWS = [(1.0, 20.5, "rest"), (2.0, -3.25, "walk"), (3.0, 1.75, "rest"), (4.0, 1000.5, "run")]


def _written(separator, decimal=".", end="\n", header=True, last_end=True, after=""):
    """The table as text. after: what each line has after its last cell."""
    lines = []
    if header:
        lines.append(separator.join(_NAMES.split()) + after)
    for t, temperature, activity in _ROWS:
        cells = [f"{t:g}", f"{temperature:g}".replace(".", decimal), activity]
        lines.append(separator.join(cells) + after)
    return end.join(lines) + (end if last_end else "")


_COMMAS = _written(",")
_UMLAUTS = "t;wärme;tätigkeit\n1;20,5;hören\n2;-3,25;gähnen\n"
_UMLAUT_NAMES = "t wärme tätigkeit"
_UMLAUT_ROWS = [(1.0, 20.5, "hören"), (2.0, -3.25, "gähnen")]
_NUMBERS = [(1.0, 0.25, -0.5, 1.0), (1.0, -0.75, 0.125, -1.0), (1.0, 0.5, 0.5, 1.0)]
_AIR = (
    "Date;Time;CO(GT);PT08;NMHC;T;;\n"
    "10/03/2004;18.00.00;2,6;1360;150;13,6;;\n"
    "10/03/2004;19.00.00;2;1292;-200;13,3;;\n"
    "10/03/2004;20.00.00;-200;1402;88;11,9;;\n"
)
_AIR_ROWS = [
    ("10/03/2004", "18.00.00", 2.6, 1360.0, 150.0, 13.6),
    ("10/03/2004", "19.00.00", 2.0, 1292.0, -200.0, 13.3),
    ("10/03/2004", "20.00.00", -200.0, 1402.0, 88.0, 11.9),
]
_WISDM = (
    "33,Jogging,49105962326000,-0.69,12.68,0.50;\n"
    "33,Jogging,49106062271000,5.01,11.26,0.95;\n"
    "17,Walking,49106112167000,4.90,10.88,-0.08;\n"
)
_WISDM_ROWS = [
    (33.0, "Jogging", 49105962326000.0, -0.69, 12.68, 0.5),
    (33.0, "Jogging", 49106062271000.0, 5.01, 11.26, 0.95),
    (17.0, "Walking", 49106112167000.0, 4.9, 10.88, -0.08),
]
_BIG = [(1234.5, 1.0), (12.25, 2.0), (1234567.75, 3.0)]

KINDS = [
    _kind("commas", _COMMAS, _NAMES, _ROWS),
    _kind("semicolons", _written(";"), _NAMES, _ROWS),
    _kind("tabs", _written("\t"), _NAMES, _ROWS),
    _kind("bars", _written("|"), _NAMES, _ROWS),
    _kind("blanks", _written(" "), _NAMES, _ROWS),
    _kind(
        "aligned_blanks",
        "  t  temperature activity\n  1     20.5      rest\n 10     -3.25     walk  \n",
        _NAMES,
        [(1.0, 20.5, "rest"), (10.0, -3.25, "walk")],
    ),
    _kind("commas_and_blanks", _written(", "), _NAMES, _ROWS),
    _kind("decimal_commas_semicolons", _written(";", ","), _NAMES, _ROWS),
    _kind("decimal_commas_tabs", _written("\t", ","), _NAMES, _ROWS),
    _kind("decimal_commas_blanks", _written(" ", ","), _NAMES, _ROWS),
    _kind(
        "decimal_commas_quoted",
        't,temperature,activity\n1,"20,5",rest\n2,"-3,25",walk\n',
        _NAMES,
        _ROWS[:2],
    ),
    _kind(
        "quotes",
        '"t","temperature","activity"\n"1","20.5","rest"\n"2","-3.25","walk"\n',
        _NAMES,
        _ROWS[:2],
    ),
    _kind(
        "separators_in_quotes",
        't,note,y\n1,"cold, wet; grey",1\n2,"warm, dry; blue",-1\n3,fog,1\n',
        "t note y",
        [(1.0, "cold, wet; grey", 1.0), (2.0, "warm, dry; blue", -1.0), (3.0, "fog", 1.0)],
    ),
    _kind(
        "newlines_in_quotes",
        't,note,y\n1,"cold\nwet",1\n2,"warm\n\ndry",-1\n3,fog,1\n',
        "t note y",
        [(1.0, "cold\nwet", 1.0), (2.0, "warm\n\ndry", -1.0), (3.0, "fog", 1.0)],
    ),
    _kind(
        "quotes_in_quotes",
        't,note,y\n1,"a ""good"" day",1\n2,"a 5"" pipe",-1\n',
        "t note y",
        [(1.0, 'a "good" day', 1.0), (2.0, 'a 5" pipe', -1.0)],
    ),
    _kind("utf8_mark", "\ufeff" + _UMLAUTS, _UMLAUT_NAMES, _UMLAUT_ROWS),
    _kind("utf8", _UMLAUTS, _UMLAUT_NAMES, _UMLAUT_ROWS),
    _kind("utf16", _UMLAUTS, _UMLAUT_NAMES, _UMLAUT_ROWS, "utf-16"),
    _kind("utf16_big", b"\xfe\xff" + _UMLAUTS.encode("utf-16-be"), _UMLAUT_NAMES, _UMLAUT_ROWS),
    _kind("utf16_no_mark", _UMLAUTS.encode("utf-16-le"), _UMLAUT_NAMES, _UMLAUT_ROWS),
    _kind("cp1252", _UMLAUTS, _UMLAUT_NAMES, _UMLAUT_ROWS, "cp1252"),
    _kind(
        "cp1252_euro",
        "t,price\n1,5 €\n2,6 €\n",
        "t price",
        [(1.0, "5 €"), (2.0, "6 €")],
        "cp1252",
    ),
    _kind(
        "decimal_commas_with_units",
        "price;share;y\n63,50 €;29,5 %;a\n7,25 €;-3,5 %;b\n1.020,00 €;0,5%;a\n",
        "price share y",
        [("63,50 €", "29,5 %", "a"), ("7,25 €", "-3,5 %", "b"), ("1.020,00 €", "0,5%", "a")],
    ),
    _kind("windows_ends", _written(",", end="\r\n"), _NAMES, _ROWS),
    _kind("old_mac_ends", _written(",", end="\r"), _NAMES, _ROWS),
    _kind("no_last_end", _written(",", last_end=False), _NAMES, _ROWS),
    _kind("title", "My recording of 3 November\n" + _COMMAS, _NAMES, _ROWS),
    _kind(
        "title_of_spreadsheet",
        "My recording;;\nof 3 November;;\n;;\n" + _written(";", ","),
        _NAMES,
        _ROWS,
    ),
    _kind("title_with_comma", "Kitchen, 3 November\n\n" + _COMMAS, _NAMES, _ROWS),
    _kind("separator_line", "sep=;\n" + _written(";", ","), _NAMES, _ROWS),
    _kind("no_header", _written(",", header=False), "", _ROWS),
    _kind(
        "no_header_numbers",
        "1,0.25,-0.5,1\n1,-0.75,0.125,-1\n1,0.5,0.5,1\n",
        "",
        _NUMBERS,
    ),
    _kind(
        "no_header_decimal_commas",
        "1;0,25;-0,5;1\n1;-0,75;0,125;-1\n1;0,5;0,5;1\n",
        "",
        _NUMBERS,
    ),
    _kind(
        "no_header_texts",
        "p,x,s\ne,x,y\np,b,s\ne,x,s\n",
        "",
        [("p", "x", "s"), ("e", "x", "y"), ("p", "b", "s"), ("e", "x", "s")],
    ),
    _kind(
        "header_of_texts",
        "class,cap,surface\np,x,s\ne,x,y\np,b,s\n",
        "class cap surface",
        [("p", "x", "s"), ("e", "x", "y"), ("p", "b", "s")],
    ),
    _kind("title_without_header", "My recording 3 Nov\n" + _written(",", header=False), "", _ROWS),
    _kind("trailing_commas", _written(",", after=","), _NAMES, _ROWS),
    _kind(
        "trailing_commas_in_rows",
        _NAMES.replace(" ", ",") + "\n" + _written(",", header=False, after=","),
        _NAMES,
        _ROWS,
    ),
    _kind("trailing_semicolons_wisdm", _WISDM, "", _WISDM_ROWS),
    _kind(
        "two_records_in_a_line_wisdm",
        _WISDM.replace(";\n17", ";17"),
        "",
        _WISDM_ROWS,
    ),
    _kind("air_quality", _AIR, "Date Time CO(GT) PT08 NMHC T", _AIR_ROWS),
    _kind(
        "air_quality_empty_lines", _AIR + ";;;;;;;\n" * 3, "Date Time CO(GT) PT08 NMHC T", _AIR_ROWS
    ),
    _kind(
        "thousands_english", 'price,y\n"1,234.5",1\n12.25,2\n"1,234,567.75",3\n', "price y", _BIG
    ),
    _kind("thousands_german", "price;y\n1.234,5;1\n12,25;2\n1.234.567,75;3\n", "price y", _BIG),
    _kind("thousands_blanks", "price;y\n1 234,5;1\n12,25;2\n1 234 567,75;3\n", "price y", _BIG),
    _kind(
        "thousands_narrow_blanks",
        "price;y\n1\u202f234,5;1\n12,25;2\n1\u202f234\u202f567,75;3\n",
        "price y",
        _BIG,
    ),
    _kind(
        "comments",
        "# a board's own, 3 Nov\n" + _COMMAS.replace("\n2", "\n# a break\n2"),
        _NAMES,
        _ROWS,
    ),
    _kind(
        "errors_of_a_spreadsheet",
        "a,b,y\n1.5,2,p\n#N/A,3,q\n#DIV/0!,4,p\n2.5,#N/A,q\n",
        "a b y",
        [(1.5, 2.0, "p"), ("#N/A", 3.0, "q"), ("#DIV/0!", 4.0, "p"), (2.5, "#N/A", "q")],
    ),
    _kind(
        "names_with_a_hash",
        "id,b,y\n#1,2,p\nx,3,q\n#3,4,p\ny,5,q\n",
        "id b y",
        [("#1", 2.0, "p"), ("x", 3.0, "q"), ("#3", 4.0, "p"), ("y", 5.0, "q")],
    ),
    _kind("header_in_comment", "# " + _COMMAS, _NAMES, _ROWS),
    _kind("header_in_comment_without_blank", "#" + _COMMAS, _NAMES, _ROWS),
    _kind("blank_lines", "\n\n" + _COMMAS.replace("\n2", "\n\n  \n2") + "\n\n", _NAMES, _ROWS),
    _kind(
        "missing_numbers",
        "a,b,y\n1.5,?,1\nNA,2,-1\n,3,1\n-200,nan,1\n",
        "a b y",
        [(1.5, "?", 1.0), ("NA", 2.0, -1.0), (None, 3.0, 1.0), (-200.0, "nan", 1.0)],
    ),
    _kind(
        "dates",
        "t;x\n2026-11-03 10:00:00;1\n2026-11-03 10:00:01;2\n",
        "t x",
        [("2026-11-03 10:00:00", 1.0), ("2026-11-03 10:00:01", 2.0)],
    ),
    _kind(
        "index_without_name",
        ",a,y\n0,1.5,1\n1,2.5,-1\n",
        "x0 a y",
        [(0.0, 1.5, 1.0), (1.0, 2.5, -1.0)],
    ),
    _kind("one_column", "x\n1.5\n2.5\n-3\n", "x", [(1.5,), (2.5,), (-3.0,)]),
    _kind(
        "exponents",
        "a,y\n1e-3,1\n-2.5E+4,2\n.5,3\n5.,4\n",
        "a y",
        [(0.001, 1.0), (-25000.0, 2.0), (0.5, 3.0), (5.0, 4.0)],
    ),
]
