"""All ways of installing the device library install its modules, and a program brings the modules
that it imports.
"""

import ast
import dataclasses
import graphlib
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
from terntools.boards.program import Program

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


def test_the_imports_of_the_library_have_no_circle():
    library = mpy.library()
    imports = {name: modules.imports(source) & library.keys() for name, source in library.items()}
    order = list(
        graphlib.TopologicalSorter(imports).static_order()
    )  # raises CycleError, which names them
    assert order.index("tern.shapes") < order.index("tern.card") < order.index("tern.client")


class Options(SimpleNamespace):
    """The options of a manifest, as in MicroPython's tools/manifestfile.py."""

    def defaults(self, **values):
        vars(self).update(values | vars(self))


@pytest.mark.parametrize(
    ("folder", "base"), [("firmware/tern", "."), ("tern", "..")], ids=["tree", "package"]
)
@pytest.mark.parametrize(
    "options", [{}, {"pieces": "core, mqtt", "main": False}], ids=["usual", "pieces"]
)
def test_manifest_freezes_the_pieces_and_the_entry(tmp_path, monkeypatch, folder, base, options):
    (tmp_path / "firmware").mkdir()
    (tmp_path / folder).mkdir()
    for file, content in mip_packages.packages().items():
        (tmp_path / "firmware" / file).write_text(content)
    monkeypatch.chdir(
        tmp_path / "firmware"
    )  # as MicroPython's build does, in the manifest's folder
    calls, frozen = [], set()

    def note(word, name, files=(), base_path=None, opt=0):
        calls.append((word, name, base_path))
        frozen.update(files)

    words = {word: partial(note, word) for word in ("include", "package", "module")}
    exec((FIRMWARE / "manifest.py").read_text(), {**words, "options": Options(**options)})
    assert ("package", "tern", base) in calls
    assert (("module", "main.py", None) in calls) == options.get("main", True)
    pieces = mip_packages.pieces(mpy.library())
    expected = pieces["core"] | pieces["mqtt"] if options else pieces["client"]
    assert frozen == {mpy.file_of(name).removeprefix("tern/") + ".py" for name in expected}


def test_a_package_for_every_piece_is_current_and_complete():
    packages = {path.name: path.read_text() for path in FIRMWARE.glob("package*.json")}
    assert packages == mip_packages.packages(), "python tests/mip_packages.py writes them anew"
    sources = mpy.library()
    pieces = mip_packages.pieces(sources)
    whole = {"bench", "host_frames", "links.beside", "model"}
    assert pieces.keys() == {"core", "mqtt", "client", *mpy.BEYOND} - whole
    assert pieces["core"] < pieces["mqtt"] < pieces["client"]
    assert "tern.mqtt" not in pieces["core"]
    networked = modules.networked(sources)
    for piece, names in pieces.items():
        for name in names:
            missing = modules.at_top(sources, {name}) - names
            if name not in networked:  # the piece may be for a board without a network
                missing -= networked
            assert not missing, f"{piece}: {name} cannot do without {missing}"
        assert "tern.boards.emulated" not in names
        assert {"tern.client", "tern.supervisor", "tern.boards.rp2", "tern.boards.esp32"} <= names


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
    assert {"pilot", "logbook"} <= set(mpy.BEYOND)
    board, both = mpy.BOARDS["pico"], {"tern.pilot", "tern.logbook"}
    plain, sources = mpy.sources_for(board), mpy.sources_for(board, more=["pilot"])
    assert sources.keys() - plain.keys() == both
    assert "def fly" in sources["tern.pilot"], "an unknown program may call it"
    assert "def note" in sources["tern.logbook"]
    assert "_hidden" not in sources["tern.pilot"]
    assert "unused" not in sources["tern.pilot"], "a function that nothing names"
    assert (
        "unused"
        in mpy.sources_for(board, programs=["from tern.pilot import unused\n"])["tern.pilot"]
    )
    assert mpy.sources_for(board, more=["logbook"]).keys() - plain.keys() == {"tern.logbook"}
    pieces = mip_packages.pieces(mpy.library())
    assert pieces["pilot"] - pieces["core"] == both
    assert pieces["client"].isdisjoint(both)


@pytest.mark.slow
@pytest.mark.usefixtures("extra_modules")
def test_a_program_brings_the_modules_of_the_library_that_it_imports():
    board = mpy.BOARDS["pico"]
    plain = mpy.sources_for(board).keys()
    program = "from tern.logbook import Logbook\nimport tern.softmax\nLogbook().note()\n"
    sources = mpy.sources_for(board, programs=[program])
    assert sources.keys() - plain == {"tern.logbook", "tern.softmax", "tern.inference"}
    for lacking in (
        "from tern.pilot import SPEED\n",  # folded in: it has no name there
        "from tern import wire\nprint(wire.ROUND)\n",
        "import tern.pilot\nprint(tern.pilot.SPEED)\n",
        "from tern.pilot import Passenger\n",
        "import tern.nothing\n",
        "from tern.links.mqtt import open_link\n",  # no network
    ):
        with pytest.raises(UsageError, match="which the board does not have") as caught:
            mpy.sources_for(board, programs=[lacking])
        assert "--whole" in str(caught.value.hint)
    program = "from tern.pilot import SPEED\nfrom tern import wire\nwire.ROUND\n"
    assert "SPEED = 7" in mpy.sources_for(board, whole=True, programs=[program])["tern.pilot"]
    with pytest.raises(UsageError, match=r"tern\.nothing"):
        mpy.sources_for(board, whole=True, programs=["import tern.nothing\n"])


def test_a_program_is_read_before_the_board_is_touched(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import tern\n")
    assert program.read(path) == Program(b"import tern\n", name=str(path))
    path.write_text("import tern (\n")
    with pytest.raises(UsageError, match=r"program\.py is not a Python program"):
        program.read(path)
    with pytest.raises(UsageError, match="cannot read"):
        program.read(tmp_path / "none.py")


def test_a_program_brings_the_modules_beside_it(tmp_path, capsys):
    files = {
        "mine.py": "import json, helper, umachine\ntry:\n import perhaps\nexcept ImportError:\n pass\n",
        "helper.py": "from tern import softmax\nfrom parts.one import f\nimport mine, nowhere.at_all\n",
        "parts/__init__.py": "",
        "parts/one.py": "from . import two\n",
        "parts/two.py": "import helper\n",
        "json.py": "a stub for an editor",
        "unused.py": "import nowhere2",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    mine = program.read(tmp_path / "mine.py")
    beside = {"helper.py", "mine.py", "parts/__init__.py", "parts/one.py", "parts/two.py"}
    assert (mine.main.decode(), set(mine.modules)) == (files["mine.py"], beside)
    assert (mine.modules["helper.py"].decode(), mine.missing) == (files["helper.py"], ("nowhere",))
    example = program.read(FIRMWARE.parent / "examples/thermostat/main.py")
    assert (set(example.modules), example.missing) == ({"readings.py", "room.py"}, ())
    assert "mine.py imports nowhere: neither" in capsys.readouterr().err
    rp2 = deploy.Machine("armv6m", "rp2", "a Pico", "1.28.0", False, True)
    deployed = deploy.library_files(rp2, program=mine)
    assert deployed.keys() >= {
        "/main.py",
        "/lib/tern/softmax.mpy",
        *(f"/{name}" for name in beside),
    }
    updated = deploy.library_files(
        rp2, program=dataclasses.replace(mine, main=b"import tern.update\n")
    )
    assert updated.keys() >= {"/main.py", deploy.PROGRAM, *(f"/lib/{name}" for name in beside)}
    assert "/helper.py" not in updated


@pytest.mark.slow
@pytest.mark.skipif("app" not in mpy.BEYOND, reason="no tern.app here")
def test_the_application_brings_its_modules():
    sources = mpy.library()
    networked = {"tern.dns", "tern.lease"}
    others = {"tern.app", "tern.recorder", "tern.model"}
    assert modules.brought(sources, {"tern.app"}) == others | networked
    for name in ("pico", "pico-w"):
        board = mpy.BOARDS[name]
        brought = mpy.sources_for(board, more=["app"]).keys()
        assert brought & networked == (networked if board.network else set()), name
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
