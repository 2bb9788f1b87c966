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
    """To save a board's memory, a module's constants are written into the code that uses them, and
    imported no longer. Lists, and names that are assigned twice, are no constants. Empty lines take
    the place of the import's, so that tracebacks name the right line.
    """
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


def test_private_names_of_the_library_become_short_in_all_modules():
    """To save a board's memory, a private name such as `_first` is shortened (to `aA`) where it is
    an attribute or a whole string. `_foreign` and `_own` are no names of the library, and stay.
    """
    a = "class A:\n    def _first(self):\n        return other._foreign\n"
    b = "def f(a):\n    return a._first(), '_first', 'a _first', a._foreign\n"

    assert fold.fold({"a": a, "b": b}) == {
        "a": a.replace("_first", "aA"),
        "b": "def f(a):\n    return a.aA(), 'aA', 'a _first', a._foreign\n",
    }
    # A program that is deployed with the library uses its short names.
    assert fold.fold_program("x._first = y._own\n", {"a": a}) == "x.aA = y._own\n"


def test_functions_and_methods_that_nothing_names_go():
    module = "def used():\n    return 1\n\n\ndef unused():\n    return 2\n"
    user = "from module import used\n\n\nclass A:\n    def method(self):\n        used()\n"
    sources = {"module": module, "user": user}
    pruned = fold.prune(sources, ["user.A().method()"])
    assert pruned == {"module": "def used():\n    return 1\n\n\npass\n\n", "user": user}
    assert "def method" not in fold.prune(sources, ["A"])["user"]


def test_parameters_that_may_be_named_in_a_call_keep_their_names():
    a = "class A:\n    def __init__(self, first):\n        pass\n\n    def f(self, second):\n        pass\n"
    assert shorten.parameters({"a": a}, whole=["a"]) == {"a": a}
    assert shorten.parameters({"a": a}, ["A(first=1)\n", "x.f(second=2)\n"]) == {"a": a}
    assert shorten.parameters({"a": a}, ["A(**options)\n"]) == {"a": a}
    assert shorten.parameters({"a": a}, ["A(first=1)\n"])["a"] == a.replace("second", "args")


@pytest.mark.parametrize("other", ["x.by(total=1)\n", "x = 'total'\n"], ids=["keyword", "text"])
def test_a_name_with_another_use_keeps_its_form(other):
    box = "class Box:\n    def total(self):\n        pass\n"
    assert "total" not in shorten.short_names((("tern.box", box), ("tern.other", other)))


STANDARD_MODULES = (array, asyncio, builtins, hashlib, io, json, os, select, socket, ssl, struct)
TYPES = (array.array, asyncio.Task, socket.socket, ssl.SSLContext, io.FileIO, int, str, bytes)
COLLECTIONS = (bytearray, memoryview, list, dict, set, tuple, range, OSError, property)
MODULES_OF_BOARDS = ("machine", "network", "rp2", "esp32", "vfs", "cryptolib", "tls")


@pytest.fixture(scope="module")
def shortened():
    """The public names of the library that become short."""
    folded = fold.fold(mpy.library("armv6m") | mpy.library())
    return shorten.short_names(tuple(folded.items())).keys()


def test_names_of_the_standard_library_stay(shortened):
    assert len(shortened) > 150
    for owner in (*STANDARD_MODULES, sys, time, *TYPES, *COLLECTIONS):
        assert not shortened & set(dir(owner)), owner


def test_names_of_micropython_s_stubs_stay(shortened):
    for path in Path(sys.prefix, "stubs").rglob("*.pyi"):
        if path.stem not in MODULES_OF_BOARDS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert node.name not in shortened, path


@pytest.mark.slow
def test_names_that_a_program_uses_stay():
    program = "from tern.gradient import Gradient, accumulate\nGradient(3).reset(range_=2)\n"
    texts = ("class Gradient", "def accumulate", "def reset(self, range_=0)")
    for programs, found in (([], [True, False, False]), ([program], [True, True, True])):
        source = mpy.sources_for(mpy.BOARDS["pico"], programs=programs)["tern.gradient"]
        assert [text in source for text in texts] == found


@pytest.mark.slow
def test_the_folded_library_has_the_same_lines_and_uses_no_name_that_is_gone(tmp_path):
    """Folding rewrites the device library to save a board's memory. Lines keep their numbers,
    imports find their names, and Ruff finds no undefined name (F821).
    """
    library = mpy.library()
    folded = fold.fold(library)

    for name, source in folded.items():
        assert source.count("\n") == library[name].count("\n"), name
        assert not modules.lacking(folded, source), name
        (tmp_path / f"{name}.py").write_text(source)

    builtin = f"builtins = {sorted(fold.COMPILED)}"
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821"]
    checked = subprocess.run([*ruff, "--config", builtin, tmp_path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
