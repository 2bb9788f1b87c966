"""All ways of installing the device library install its modules, and a program brings the modules
that it imports.
"""

import dataclasses
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import mip_packages
import pytest

import tern
from ternhost.errors import UsageError
from terntools.boards import machines, modules, mpy, program, software

FIRMWARE = Path(tern.__file__).parents[1]


# A small library. The client imports tern.new if the board has it; links are opened by name.
SMALL_LIBRARY = {
    "tern.client": (
        "try:\n from tern.new import Answerer\nexcept ImportError:\n pass\nfrom tern import links"
    ),
    "tern.links": "MODULES = {'new.json': 'tern.links.new'}\ndef open_link():\n import socket",
    "tern.links.new": "from tern.tcp import Connection\ndef open_link():\n from tern import late",
    "tern.tcp": "import socket",
    "tern.new": "from tern import helper",
    **dict.fromkeys(("tern.late", "tern.helper", "tern.boards.new", "tern.boards.emulated"), ""),
}
NETWORKED = {"tern.links.new", "tern.tcp", "tern.late"}
CLIENT = {"tern.client", "tern.links"} | NETWORKED


def test_the_modules_of_a_client_follow_from_its_imports():
    assert modules.on_demand(SMALL_LIBRARY) == ("new",)
    without_new = modules.needed(SMALL_LIBRARY, ["tern.client"], ["tern.new"])
    assert set(without_new) == CLIENT
    whole_client = CLIENT | {"tern.new", "tern.helper"}
    assert set(modules.needed(SMALL_LIBRARY, ["tern.client"])) == whole_client


def test_a_board_without_a_network_has_no_module_that_needs_one():
    board = modules.Board("armv6m", "new", network=False)
    usable = modules.usable(SMALL_LIBRARY, board)
    assert set(SMALL_LIBRARY) - set(usable) == NETWORKED | {"tern.boards.emulated"}


class Options(SimpleNamespace):
    """The options of a manifest, as in MicroPython's tools/manifestfile.py."""

    def defaults(self, **values):
        vars(self).update(values | vars(self))


@pytest.fixture
def freeze(tmp_path, monkeypatch):
    """`freeze(**options)` runs the manifest as MicroPython's build does, in a folder of its own.

    It returns the packages and modules that are named, and the files that are frozen.
    """
    for file, content in mip_packages.packages().items():
        (tmp_path / file).write_text(content)
    monkeypatch.chdir(tmp_path)

    def run(**options):
        names, frozen = set(), set()

        def note(name, files=(), base_path=None, opt=0):
            names.add(name)
            frozen.update(files)

        manifest = (FIRMWARE / "manifest.py").read_text()
        words = dict.fromkeys(("include", "package", "module"), note)
        exec(manifest, {**words, "options": Options(**options)})
        return names, frozen

    return run


def files_of(names):
    return {mpy.file_of(name).removeprefix("tern/") + ".py" for name in names}


def test_the_manifest_freezes_the_pieces_that_are_named_and_the_entry(freeze):
    names, frozen = freeze(pieces="core, mqtt")
    assert {"tern", "main.py"} <= names
    pieces = mip_packages.pieces(mpy.library())
    assert frozen == files_of(pieces["core"] | pieces["mqtt"])


def test_the_packages_are_current():
    packages = {path.name: path.read_text() for path in FIRMWARE.glob("package*.json")}
    assert packages == mip_packages.packages(), "python tests/mip_packages.py writes them anew"


def test_every_piece_is_complete():
    """Users may install the device library in pieces (`mip` packages). Each piece has all modules
    that its modules import when they are loaded; those that use a network may be missing for the
    others.
    """
    sources = mpy.library()
    networked = modules.networked(sources)
    for piece, names in mip_packages.pieces(sources).items():
        for name in names:
            missing = modules.at_top(sources, {name}) - names  # of what it imports when loaded
            if name not in networked:  # the piece may be for a board without a network
                missing -= networked
            assert not missing, f"{piece}: {name} cannot do without {missing}"
        # All have the client and the kinds of real boards.
        assert {"tern.client", "tern.supervisor", "tern.boards.rp2", "tern.boards.esp32"} <= names
        assert "tern.boards.emulated" not in names


# Modules for a user's program, which no board has by default.
PILOT = """
BRINGS = "logbook"
from tern.client import Client
SPEED = 7
class Pilot(Client):
    def fly(self):
        return SPEED
"""
LOGBOOK = """
from tern.storage import Records
class Logbook:
    def note(self):
        return Records
"""


@pytest.fixture
def extra_modules(monkeypatch):
    """A library with two more modules: tern.pilot, which brings tern.logbook."""
    more = {"tern.pilot": PILOT, "tern.logbook": LOGBOOK}
    library = mpy.library
    for name, text in more.items():
        module = ModuleType(name)
        exec(text, module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(mpy, "library", lambda architecture="": library(architecture) | more)
    beyond = modules.beyond(mpy.library(), mpy.MAIN.read_text())
    monkeypatch.setattr(mpy, "beyond", lambda: beyond)


@pytest.mark.slow
@pytest.mark.usefixtures("extra_modules")
def test_a_program_brings_the_modules_of_the_library_that_it_imports():
    board = mpy.BOARDS["pico"]
    program = "from tern.pilot import Pilot\nimport tern.softmax\n"
    sources = mpy.sources_for(board, programs=[program])
    added = sources.keys() - mpy.sources_for(board).keys()
    assert added == {"tern.pilot", "tern.logbook", "tern.softmax", "tern.inference"}


@pytest.mark.parametrize(
    "program",
    [
        "from tern.pilot import SPEED\n",  # folded in: it has no name there
        "import tern.nothing\n",
        "from tern.links.mqtt import open_link\n",  # no network
    ],
)
@pytest.mark.usefixtures("extra_modules")
def test_a_program_that_lacks_a_name_on_the_board_is_refused(program):
    with pytest.raises(UsageError, match="which the board does not have"):
        mpy.sources_for(mpy.BOARDS["pico"], programs=[program])


BESIDE = {
    "mine.py": "import json, helper\ntry:\n import perhaps\nexcept ImportError:\n pass\n",
    "helper.py": "from tern import softmax\nfrom parts.one import f\nimport mine, nowhere.at_all\n",
    "parts/__init__.py": "",
    "parts/one.py": "from . import two\n",
    "parts/two.py": "import helper\n",
    "json.py": "a stub for an editor",
    "unused.py": "import nowhere2",
}


@pytest.fixture
def mine(tmp_path):
    """The program mine.py, with other modules beside it."""
    for name, text in BESIDE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return program.read(tmp_path / "mine.py")


def test_a_program_brings_the_modules_beside_it_that_it_imports(mine):
    imported = {"helper.py", "mine.py", "parts/__init__.py", "parts/one.py", "parts/two.py"}
    assert set(mine.modules) == imported
    assert mine.missing == ("nowhere",)


RP2 = machines.Machine("armv6m", "rp2", "a Pico", "1.28.0", False, True)


def test_modules_of_a_program_are_beside_it_on_the_board(mine):
    files = software.library_files(RP2, program=mine).keys()
    assert {"/main.py", "/helper.py", "/parts/one.py", "/lib/tern/softmax.mpy"} <= files


def test_modules_of_a_program_that_is_updated_are_in_the_library(mine):
    updated = dataclasses.replace(mine, main=b"import tern.update\n")
    files = software.library_files(RP2, program=updated).keys()
    assert {"/main.py", software.PROGRAM, "/lib/helper.py", "/lib/parts/one.py"} <= files
    assert "/helper.py" not in files
