"""The typed stubs beside the device library name what its modules have, with the same parameters, and say the same."""

import ast
from pathlib import Path

import pytest

from terntools.boards import modules, mpy, stubs

STUBS = stubs.stubs()


def parameters(node):
    """Names of the parameters of a function, and which of them may be left out."""
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return names, len(node.args.defaults), [ast.unparse(default) for default in node.args.defaults]


def attributes(source):
    """The names that a class and its methods give to `self`, or at its top, by class."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                part.attr if isinstance(part, ast.Attribute) else part.id
                for part in ast.walk(node)
                if isinstance(part, ast.Attribute | ast.Name) and isinstance(part.ctx, ast.Store)
            }
    return found


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.relative_to(mpy.LIBRARY).as_posix())
def test_a_stub_is_as_its_source(stub):
    text, source = stub.read_text(), STUBS[stub].read_text()
    there, told = stubs.definitions(ast.parse(source)), stubs.definitions(ast.parse(text))
    if stub == mpy.LIBRARY / "model.pyi" and "Model" not in there:
        pytest.skip("no Model here")
    protocols = {name for name, node in told.items() if "Protocol" in ast.unparse(node).splitlines()[0]}
    told = {name: node for name, node in told.items() if name.partition(".")[0] not in protocols}
    for name, node in told.items():
        assert name in there, f"{name} is not in the source"
        if not isinstance(node, ast.ClassDef):
            assert parameters(node) == parameters(there[name]), name
            assert isinstance(node, ast.AsyncFunctionDef) == isinstance(there[name], ast.AsyncFunctionDef)
    classes = {name for name, node in told.items() if isinstance(node, ast.ClassDef)}
    for name in modules.public(source) & {part.rpartition(".")[2] for part in there}:
        whole = {one for one in there if one.rpartition(".")[2] == name and one.partition(".")[0] in classes}
        assert whole <= told.keys(), f"{whole - told.keys()} is not in the stub"
    held = attributes(source)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            named = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
            assert named <= held[node.name], f"{node.name} has no {named - held[node.name]}"
    assert ast.unparse(ast.parse(text)) + "\n" == stubs.refreshed(text, source), (
        "python -m terntools.boards.stubs; ruff check --fix firmware; ruff format firmware"
    )


def test_first_sentences():
    assert stubs.first_sentence("One thing. Another.") == "One thing."
    assert (
        stubs.first_sentence("A long\n    one, i.e. two\n    lines.\n\nMore.")
        == "A long one, i.e. two lines."
    )
    stub = "class A:\n    x: int\n    def f(self) -> int: ...\n    def g(self) -> int: ...\n"
    source = 'class A:\n    """An A. It is one."""\n    def f(self):\n        """Do.\n\n        More."""\n'
    new = stubs.refreshed(stub, source)
    assert '"""An A."""' in new
    assert '"""Do."""' in new
    assert "def g(self) -> int:\n        ..." in new
    assert stubs.refreshed(new, source) == new


def test_the_package_says_that_it_is_typed():
    assert (mpy.LIBRARY / "py.typed").exists()
    assert Path(mpy.LIBRARY, "boards/this.pyi") in STUBS
