"""Constants are folded into their uses, names become short, unused functions go; and boards have
their modules.
"""

import array
import ast
import asyncio
import builtins
import hashlib
import io
import json
import os
import select
import socket
import ssl
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from ternhost.errors import TernError
from terntools.boards import fold, modules, mpy, shorten

CONSTANTS = '''"""Constants."""
from tern.compat import const
ONE = const(1)
LEAST = const(-3)  # the least
TEXT = "a'b"
BYTES = b"\\x00"
_PRIVATE = const(4)
LIST = [1]
TWICE = 1
TWICE = 2


def double(ONE):
    return 2 * ONE


def text():
    return TEXT + str(_PRIVATE)
'''


@pytest.fixture
def constants(monkeypatch):
    module = ModuleType("some.constants")
    exec(compile(CONSTANTS, "constants.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "some.constants", module)


def folded(user, **more):
    return fold.fold({"some.constants": CONSTANTS, "some.user": user, **more})


def test_uses_become_values_and_lines_keep_their_numbers(constants):
    user = (
        "from some import constants\nfrom some.constants import (\n    LEAST,\n    double,\n)\n"
        "x = 2 - LEAST, 'é', constants.TEXT\n"
        "y = [constants.BYTES[0], constants.LIST, constants.TWICE]\n"
    )
    assert folded(user)["some.user"] == (
        "from some import constants\nfrom some.constants import double\n\n\n\n"
        "x = 2 - (-3), 'é', \"a'b\"\n"
        "y = [b'\\x00'[0], constants.LIST, constants.TWICE]\n"
    )


def test_an_unused_import_goes(constants):
    user = "from some import constants\nfrom some.constants import TEXT\nx = TEXT, constants.TEXT\n"
    without = folded(user)["some.user"]
    assert without == 'pass\npass\nx = "a\'b", "a\'b"\n'
    assert modules.imports(without) == set()
    kept = folded("def f():\n    from some import constants\n    return constants.double\n")[
        "some.user"
    ]
    assert modules.imports(kept) == {"some", "some.constants"}


def test_the_module_of_the_constants_keeps_the_names_that_are_more_than_a_constant(constants):
    source = folded("")["some.constants"]
    assert "TEXT" not in source
    kept = ["_aa = const(4)", "LIST = [1]", "TWICE = 1", "TWICE = 2"]
    named_as_a_parameter = ["ONE = const(1)", "return 2 * ONE"]
    for line in ("pass  # the least", 'return "a\'b" + str(_aa)', *kept, *named_as_a_parameter):
        assert line in source


def test_the_texts_of_the_library_s_errors_go():
    user = (
        "require(x, 'no')\nrequire(\n    (x),  # why\n    'no',\n)\n"
        "raise FrameError(3, 'no', 5)\nraise FrameError(3, 'no')\n"
        "raise LedgerError('no: %s' % error)\nraise StorageError('no')\nraise Lost('kept')\nf('kept')\n"
    )
    assert fold.fold({"user": user})["user"] == (
        "require(x)\nrequire(\n    (x)\n,\n)\nraise FrameError(3, '', 5)\nraise FrameError(3)\n"
        "raise LedgerError\nraise StorageError\nraise Lost('kept')\nf('kept')\n"
    )


def test_private_names_become_short_in_all_modules():
    a = "class A:\n    def _first(self, _):\n        self._second = self.__doc__ = 1; return other._foreign\n"
    b = "def f(a):\n    return a._first(), '_second', \"_first\", '_foreign', a._foreign, 'a _first'\n"
    short = {
        "a": "class A:\n    def aA(self, _):\n        self.aB = self.__doc__ = 1; return other._foreign\n",
        "b": "def f(a):\n    return a.aA(), 'aB', \"aA\", '_foreign', a._foreign, 'a _first'\n",
    }
    assert fold.fold({"a": a, "b": b}) == short
    assert fold.fold_program(b, {"a": a}) == short["b"]
    assert fold.fold_program("x._first = y._own\n", {"a": a}) == "x.aA = y._own\n"


def test_functions_and_methods_that_nothing_names_go():
    a = "def used():\n    return 1\n\n\n@viper\ndef first():\n    return second()\n\n\ndef second():\n    return 2\n"
    b = "from a import used\n\n\nclass A:\n    def __init__(self):\n        used()\n\n"
    b += "    def method(self):\n        pass\n"
    gone = "def used():\n    return 1\n\n\npass\n\n\n\n\npass\n\n"
    assert fold.prune({"a": a, "b": b}, ["b.A().method()"]) == {"a": gone, "b": b}
    assert fold.prune({"a": a, "b": b}, ["first", "A", "'method'"]) == {"a": a, "b": b}
    assert "method" not in fold.prune({"a": a, "b": b}, ["A"])["b"]


def test_parameters_take_names_that_every_board_has():
    a = "def f(é, self, by, n: ptr8 = 3):\n    self = n + x(é, by=by); key = [n for _ in é]; return é.n\n"
    short = "def f(args, self, by, end: ptr8 = 3):\n"
    short += "    self = end + x(args, by=by); key = [end for _ in args]; return args.n\n"
    assert shorten.parameters({"a": a}) == {"a": short}
    left = "@asm_thumb\ndef f(r0):\n    mov(r0, 1)\n\n\ndef g(first):\n    return lambda: first\n"
    assert shorten.parameters({"a": left}) == {"a": left}


def test_parameters_that_may_be_named_in_a_call_keep_their_names():
    a = "class A:\n    def __init__(self, first):\n        pass\n\n    def f(self, second):\n        pass\n"
    assert shorten.parameters({"a": a}, whole=["a"]) == {"a": a}
    assert shorten.parameters({"a": a}, ["A(first=1)\n", "x.f(second=2)\n"]) == {"a": a}
    assert shorten.parameters({"a": a}, ["A(**options)\n"]) == {"a": a}
    assert shorten.parameters({"a": a}, ["A(first=1)\n"])["a"] == a.replace("second", "args")
    application = mpy.sources_for(mpy.BOARDS["pico"], more=["app"])["tern.app"]
    names = {node.arg for node in ast.walk(ast.parse(application)) if isinstance(node, ast.arg)}
    assert {"board", "recorder", "model", "update", "timeout_ms", "watchdog"} <= names


def test_public_names_that_only_the_library_uses_become_short():
    a = "import os\nclass Box:\n    def total(self, count):\n        self.held = os.sync(); self.named = 1\n"
    b = "from tern.a import Box\ndef filled(x):\n    x.by(held=1); other.free = Box().total(2) + x.sync\n"
    library = {"tern.a": a, "tern.b": b}
    whole = tuple(library.items())
    short = shorten.short_names(whole)
    # held is a keyword's name, sync one of the system, and no module defines free.
    assert sorted(short) == ["Box", "filled", "named", "total"]
    box, filled, named, total = (short[name] for name in sorted(short))
    expected = {
        "tern.a": a.replace("Box", box).replace("total", total).replace("named", named),
        "tern.b": b.replace("Box", box).replace("total", total).replace("filled", filled),
    }
    assert shorten.public_names(library, whole) == expected
    assert shorten.public_names({"tern.b": b}, whole) == {"tern.b": expected["tern.b"]}
    some = shorten.public_names(library, whole, ["x = 'Box total'\n"], whole=["tern.b"])
    assert some == {"tern.a": a.replace("named", named), "tern.b": b}
    assert "named" in shorten.public_names(library, whole, [f"{named} = 1\n"])["tern.a"]
    assert "total" not in shorten.short_names((("tern.a", a), ("tern.b", "x = 'total'\n")))


def test_names_that_micropython_has_stay():
    """They are names of the same modules of CPython, or of MicroPython's stubs."""
    short = shorten.short_names(tuple(fold.fold(mpy.library("armv6m") | mpy.library()).items()))
    assert len(short) > 150
    shared = (
        array,
        asyncio,
        builtins,
        hashlib,
        io,
        json,
        os,
        select,
        socket,
        ssl,
        struct,
        sys,
        time,
    )
    types = (
        array.array,
        asyncio.Task,
        socket.socket,
        ssl.SSLContext,
        io.FileIO,
        int,
        str,
        bytes,
        bytearray,
    )
    for owner in (*shared, *types, memoryview, list, dict, set, tuple, range, OSError, property):
        assert not short.keys() & set(dir(owner)), owner
    stubbed = [
        "machine",
        "network",
        "rp2",
        "esp32",
        "vfs",
        "cryptolib",
        "asyncio",
        "socket",
        "tls",
        "ssl",
    ]
    for path in Path(sys.prefix, "stubs").rglob("*.pyi"):
        if path.stem in stubbed:
            nodes = ast.walk(ast.parse(path.read_text()))
            names = {
                node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)
            }
            assert not short.keys() & names, path


@pytest.mark.slow
def test_names_that_a_program_uses_stay():
    program = "from tern.gradient import Gradient, sigmoid_tail\nGradient(3).reset(range_=2)\n"
    texts = ("class Gradient", "def sigmoid_tail", "def reset(self, range_=0)")
    for programs, found in (([], [True, False, False]), ([program], [True, True, True])):
        source = mpy.sources_for(mpy.BOARDS["pico"], programs=programs)["tern.gradient"]
        assert [text in source for text in texts] == found


def test_types_cost_no_byte_on_a_board():
    typed = (
        "from tern.compat import TYPE_CHECKING, micropython, ptr8\n"
        "if TYPE_CHECKING:\n    from tern.boards import Base\n\n    class Other: ...\n"
        "class One:\n    kept: int\n"
        "    def f(self, x: 'Base', y: int = 1) -> 'Other | None':\n"
        "        self.kept: 'list[int]' = [x, y]\n"
        "@micropython.viper\ndef leaf(a: ptr8, n: int) -> int:\n    return a[n]\n"
    )
    plain = (
        "from tern.compat import TYPE_CHECKING, micropython, ptr8\n"
        "class One:\n    def f(self, x, y=1):\n        self.kept = [x, y]\n"
        "@micropython.viper\ndef leaf(a: ptr8, n: int) -> int:\n    return a[n]\n"
    )
    bare = fold.without_types(typed)
    assert bare.count("\n") == typed.count("\n")
    assert "Other" not in bare
    assert modules.imports(bare) == modules.imports(plain)
    library = {"tern.compat": mpy.library()["tern.compat"]}
    sources = [fold.fold({**library, "tern.one": text})["tern.one"] for text in (bare, plain)]
    for processor in mpy.ARCHITECTURES:
        stripped, untyped = (mpy.compiled(source, processor, "one", True) for source in sources)
        assert stripped == untyped


def test_the_public_functions_for_programs_have_types():
    """Editors and type checkers read them, since the package has a py.typed."""
    assert (mpy.LIBRARY / "py.typed").exists()
    for name in {*mpy.BEYOND, "boards", "boards.this"}:
        text = Path(mpy.LIBRARY.parent, f"{mpy.file_of(f'tern.{name}')}.py").read_text()
        public = modules.public(text)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in public:
                arguments = [argument for argument in node.args.args if argument.arg != "self"]
                types = [node.returns, *(argument.annotation for argument in arguments)]
                assert all(types), f"{name}: {node.name}"


def test_a_name_with_two_meanings_is_refused(constants):
    for user in (
        "from some import constants\n\ndef f(constants):\n    return constants.TEXT\n",
        "from some.constants import TEXT\n\ndef f():\n    TEXT = 5\n    return TEXT\n",
    ):
        with pytest.raises(TernError, match="another meaning"):
            folded(user)


@pytest.mark.slow
def test_a_board_has_the_modules_that_its_client_needs():
    """The boards are one of each kind: with Thumb's assembler or without, with a network or
    without.
    """
    for name in ("pico", "pico2-w", "esp32"):
        board = mpy.BOARDS[name]
        sources = mpy.sources_for(board)
        assert {"tern", "tern.client", "tern.boards", "tern.links.serial"} <= set(sources), name
        assert ("tern.links.mqtt" in sources) == ("tern.mqtt" in sources) == board.network
        assert f"tern.boards.{board.platform}" in sources
        absent = {
            "tern.boards.emulated",
            "tern.local",
            "tern.wire",
            "tern.host_frames",
            "tern.bench",
        }
        assert not absent & set(sources)
        whole = mpy.sources_for(board, whole=True)
        assert set(sources) | {"tern.local", "tern.wire"} <= set(whole)
        assert ("tern.mqtt" in whole) == board.network
        assert ("asm_thumb" in sources["tern.table"]) == (
            board.processor in ("armv6m", "armv7emsp")
        ), name
    more = {
        piece: {*mpy.sources_for(board, more=[piece])} - {*sources} for piece in ("bench", "lhp")
    }
    assert more == {"bench": {"tern.bench"}, "lhp": {"tern.lhp"}}


@pytest.mark.slow
def test_the_folded_library_has_the_same_lines_and_uses_no_name_that_is_gone(tmp_path):
    before = mpy.library()
    folded = fold.fold(before)
    assert "if True:" in folded["tern.compat"], "a device's constants, not this interpreter's"
    assert "MICROPYTHON" not in folded["tern.compat"]
    for name, source in folded.items():  # the emulated Pico tests that they work: tern deploy
        assert source.count("\n") == before[name].count("\n"), name
        assert not modules.lacking(folded, source), name
        (tmp_path / f"{name}.py").write_text(source)
    words = (
        "check",
        "--isolated",
        "--select",
        "F821",
        "--config",
        f"builtins = {sorted(fold.COMPILED)}",
    )
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", *words, tmp_path], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
