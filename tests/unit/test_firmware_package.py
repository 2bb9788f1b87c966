"""All ways of installing the device library install its modules, and a program brings the modules
that it imports.
"""

import ast
import dataclasses
import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import mip_packages
import pytest

import tern
from ternhost.errors import UsageError
from terntools.boards import deploy, fold, modules, mpy, program

FIRMWARE = Path(tern.__file__).parents[1]


def test_package_json_lists_every_module_of_a_board():
    listed = json.loads(mip_packages.text())
    assert listed["version"] == tern.__version__
    files = {path.relative_to(FIRMWARE).as_posix() for path in (FIRMWARE / "tern").rglob("*.py")}
    assert listed["urls"] == [[file, file] for file in sorted(files - {"tern/boards/emulated.py"})]


def test_the_modules_of_a_board_follow_from_their_imports():
    sources = {
        "tern.client": "try:\n from tern.new import Answerer\nexcept ImportError:\n pass\nfrom tern import links",
        "tern.links": "MODULES = {'new.json': 'tern.links.new'}\ndef open_link():\n import socket",
        "tern.links.new": "from tern.tcp import Connection\ndef open_link():\n from tern import late",
        "tern.tcp": "import socket",
        "tern.new": "from tern import helper",
        **dict.fromkeys(
            ("tern.late", "tern.helper", "tern.boards.new", "tern.boards.emulated"), ""
        ),
    }
    assert modules.on_demand(sources) == ("new",)
    networked = {"tern.links.new", "tern.tcp", "tern.late"}
    assert modules.networked(sources) == networked
    client = {"tern.client", "tern.links"} | networked
    assert set(modules.needed(sources, ["tern.client"], ["tern.new"])) == client
    assert set(modules.needed(sources, ["tern.client"])) == client | {"tern.new", "tern.helper"}
    assert modules.at_top(sources, ["tern.new", "tern.none"]) == {"tern.new", "tern.helper"}
    assert modules.at_top(sources, ["tern.client"]) == {"tern.client", "tern.links"}
    of_a_board = modules.usable(sources, modules.Board("armv6m", "new", network=False))
    assert set(sources) - set(of_a_board) == networked | {"tern.boards.emulated"}


class Options(SimpleNamespace):
    """The options of a manifest, as in MicroPython's tools/manifestfile.py."""

    def defaults(self, **values):
        vars(self).update(values | vars(self))


@pytest.mark.parametrize(
    ("options", "has_entry"),
    [({}, True), ({"pieces": "core, mqtt", "main": False}, False)],
    ids=["usual", "pieces"],
)
def test_the_manifest_freezes_the_pieces_and_the_entry(tmp_path, monkeypatch, options, has_entry):
    for file, content in mip_packages.packages().items():
        (tmp_path / file).write_text(content)
    monkeypatch.chdir(tmp_path)  # as MicroPython's build does, in the manifest's folder
    calls, frozen = [], set()

    def note(word, name, files=(), base_path=None, opt=0):
        calls.append((word, name))
        frozen.update(files)

    words = {word: partial(note, word) for word in ("include", "package", "module")}
    exec((FIRMWARE / "manifest.py").read_text(), {**words, "options": Options(**options)})
    assert ("package", "tern") in calls
    assert (("module", "main.py") in calls) == has_entry
    pieces = mip_packages.pieces(mpy.library())
    expected = pieces["core"] | pieces["mqtt"] if options else pieces["client"]
    assert frozen == {mpy.file_of(name).removeprefix("tern/") + ".py" for name in expected}


def test_the_packages_are_current():
    packages = {path.name: path.read_text() for path in FIRMWARE.glob("package*.json")}
    assert packages == mip_packages.packages(), "python tests/mip_packages.py writes them anew"


def test_every_piece_is_complete():
    sources = mpy.library()
    networked = modules.networked(sources)
    for piece, names in mip_packages.pieces(sources).items():
        for name in names:
            missing = modules.at_top(sources, {name}) - names
            if name not in networked:  # the piece may be for a board without a network
                missing -= networked
            assert not missing, f"{piece}: {name} cannot do without {missing}"
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
    def _hidden(self):
        pass
def unused():
    pass
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
    monkeypatch.setattr(mpy, "BEYOND", modules.beyond(mpy.library(), mpy.MAIN.read_text()))


@pytest.mark.slow
@pytest.mark.usefixtures("extra_modules")
def test_a_module_that_is_named_comes_with_the_modules_that_it_brings():
    board = mpy.BOARDS["pico"]
    plain, sources = mpy.sources_for(board), mpy.sources_for(board, more=["pilot"])
    assert sources.keys() - plain.keys() == {"tern.pilot", "tern.logbook"}
    assert "def fly" in sources["tern.pilot"], "an unknown program may call it"
    assert "unused" not in sources["tern.pilot"], "a function that nothing names"


PROGRAM = "from tern.logbook import Logbook\nimport tern.softmax\nLogbook().note()\n"


@pytest.mark.slow
@pytest.mark.usefixtures("extra_modules")
def test_a_program_brings_the_modules_of_the_library_that_it_imports():
    board = mpy.BOARDS["pico"]
    sources = mpy.sources_for(board, programs=[PROGRAM])
    added = sources.keys() - mpy.sources_for(board).keys()
    assert added == {"tern.logbook", "tern.softmax", "tern.inference"}


@pytest.mark.parametrize(
    "program",
    [
        "from tern.pilot import SPEED\n",  # folded in: it has no name there
        "import tern.pilot\nprint(tern.pilot.SPEED)\n",
        "from tern.pilot import Passenger\n",
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


RP2 = deploy.Machine("armv6m", "rp2", "a Pico", "1.28.0", False, True)


def test_modules_of_a_program_are_beside_it_on_the_board(mine):
    files = deploy.library_files(RP2, program=mine).keys()
    assert {"/main.py", "/helper.py", "/parts/one.py", "/lib/tern/softmax.mpy"} <= files


def test_modules_of_a_program_that_is_updated_are_in_the_library(mine):
    updated = dataclasses.replace(mine, main=b"import tern.update\n")
    files = deploy.library_files(RP2, program=updated).keys()
    assert {"/main.py", deploy.PROGRAM, "/lib/helper.py", "/lib/parts/one.py"} <= files
    assert "/helper.py" not in files


@pytest.mark.slow
@pytest.mark.skipif("app" not in mpy.BEYOND, reason="no tern.app here")
@pytest.mark.parametrize("name", ["pico", "pico-w"])
def test_the_application_brings_modules_for_names_and_leases_to_boards_with_a_network(name):
    board, networked = mpy.BOARDS[name], {"tern.dns", "tern.lease"}
    brought = mpy.sources_for(board, more=["app"]).keys()
    assert {"tern.app", "tern.recorder", "tern.model"} <= brought
    assert brought & networked == (networked if board.network else set())
    assert not mpy.sources_for(board).keys() & networked


def leaves():
    """(module, function, constants): the library's viper functions with the public constants folded
    in, and the private constants of their modules.
    """
    for module, source in fold.fold(mpy.library()).items():
        tree = ast.parse(source)
        constants = {
            ast.unparse(node.targets[0]): ast.literal_eval(node.value.args[0])
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "const"
            and isinstance(node.value.args[0], ast.Constant)
        }
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            if "micropython.viper" in map(ast.unparse, function.decorator_list):
                yield module, function, constants


def variables(leaf):
    """Parameters and variables in the order of the text, in which MicroPython numbers them."""
    names = [
        node
        for node in ast.walk(leaf)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    assigned = sorted(names, key=lambda node: (node.lineno, node.col_offset))
    return list(
        dict.fromkeys(
            [argument.arg for argument in leaf.args.args] + [node.id for node in assigned]
        )
    )


def test_no_leaf_has_code_that_a_compiler_is_known_to_get_wrong():
    """See firmware/BOARDS.md for which compilers these are, and tern.compat for the rules."""
    functions = list(leaves())
    assert len(functions) > 15
    for module, leaf, constants in functions:
        where = f"{module}.{leaf.name}"
        types = {arg.arg: ast.unparse(arg.annotation) for arg in leaf.args.args if arg.annotation}
        wide = {name for name, kind in types.items() if kind in ("ptr16", "ptr32")}
        in_registers = variables(leaf)[:3]
        for node in ast.walk(leaf):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert)):
                assert isinstance(node.operand, ast.Constant), (
                    f"{where}: {ast.unparse(node)} of a variable"
                )
            if not isinstance(node, ast.Subscript):
                continue
            names = {part.id for part in ast.walk(node.slice) if isinstance(part, ast.Name)}
            known = (
                eval(ast.unparse(node.slice), dict(constants))
                if names <= constants.keys()
                else None
            )
            if isinstance(node.ctx, ast.Store):
                assert known in (None, 0), (
                    f"{where}: {ast.unparse(node)} = ... wants its index in a variable"
                )
            assert known is None or 0 <= known < 256, f"{where}: {ast.unparse(node)}"
            if ast.unparse(node.value) in wide:
                assert ast.unparse(node.slice) not in in_registers, (
                    f"{where}: the index of {ast.unparse(node)} is one of its first three variables"
                )
