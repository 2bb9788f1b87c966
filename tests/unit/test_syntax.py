"""What MicroPython lacks of Python is named in a program, with its line and what to write instead."""

import pytest

from ternhost.errors import UsageError
from terntools.boards import mpy, program

BEGINNING = "from tern import update\n\n"
# Each is Python, and no MicroPython. Below: the line of the construct in it, and a word of its name.
UNKNOWN = {
    "match": ("x = 1\nmatch x:\n    case 1:\n        pass\n", 2, "match"),
    "match in a function": (
        "def f(x):\n    match x:\n        case _:\n            pass\n",
        2,
        "match",
    ),
    "except*": ("try:\n    pass\nexcept* OSError:\n    pass\n", 1, "except*"),
    "slash": ("def f(a, /, b):\n    return a\n", 1, "/"),
    "decorator": ("a = [print]\n\n@a[0]\ndef f():\n    pass\n", 3, "decorator"),
    "with": ("def f(a, b):\n    with (a as x, b as y):\n        pass\n", 2, "with"),
    "list": ("def f(a):\n    return [*a, 1]\n", 2, "*"),
    "set": ("def f(a):\n    return {*a, 1}\n", 2, "*"),
    "tuple": ("def f(a):\n    return (1, *a)\n", 2, "*"),
    "index": ("def f(a, b):\n    return a[*b]\n", 2, "*"),
    "annotation": ("def f(*args: *int):\n    pass\n", 1, "*"),
    "dictionary": ("def f(a):\n    return {**a, 1: 2}\n", 2, "**"),
    "async": ("async def f(a):\n    return [x async for x in a]\n", 2, "async for"),
    "ascii": ("x = 1\ny = f'{x!a}'\n", 2, "!a"),
    "lambda": ("y = f'{(lambda: 1)()}'\n", 1, "lambda"),
    "name": ("y = '\\N{DEGREE SIGN}'\n", 1, "N{"),
    "something else": ("x = 1\nreturn x\n", 2, "return"),
}
KNOWN = [
    "a, *b = 1, 2, 3\n",
    "def f(a):\n    if (n := a):\n        return f'{n:>3} {n!r}'\n",
    "def f(*a, k=1, **b):\n    return f(*a, **b)\n",
    "async def f(a):\n    async with a as b:\n        async for c in b:\n            await c\n",
]


@pytest.fixture
def files_with(tmp_path):
    """`files_with(text)`: the files of an update with a program of this text."""

    def files_with(text):
        path = tmp_path / "app.py"
        path.write_text(BEGINNING + text)
        return program.program_files(program.EMULATED, program.read(path))

    return files_with


@pytest.mark.parametrize(("text", "line", "word"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_the_compiler_lacks_is_named_with_its_line(files_with, text, line, word):
    with pytest.raises(UsageError) as caught:
        files_with(text)
    line += BEGINNING.count("\n")
    assert f"app.py, line {line}: " in caught.value.message
    assert word in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", KNOWN)
def test_what_the_compiler_knows_is_taken(files_with, text):
    assert files_with(text)["main.py"].decode().endswith(text)


def test_a_module_beside_the_program_is_named(tmp_path):
    (tmp_path / "app.py").write_text(BEGINNING + "import helper\n")
    (tmp_path / "helper.py").write_text(UNKNOWN["match"][0])
    with pytest.raises(UsageError, match=r"helper\.py, line 2: "):
        program.program_files(program.EMULATED, program.read(tmp_path / "app.py"))


def test_a_compiler_that_is_missing_is_not_the_program_s_fault(files_with, monkeypatch):
    monkeypatch.setattr(mpy, "_compiler", lambda: "/no/such/compiler")
    with pytest.raises(UsageError, match="does not run"):
        files_with(KNOWN[0] + "# not compiled before\n")
