"""The layout is the architecture: which module may import which, without circles."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "tern": ROOT / "firmware",
    "ternhost": ROOT / "host",
    "terngateway": ROOT / "host",
    "ternpapers": ROOT / "host",
    "ternviews": ROOT / "host",
    "terntools": ROOT / "tools",
    "ternbench": ROOT / "tools",
}
CORE = ("tern", "ternhost", "terntools")  # no package beside it knows another one

# The floors of the host, from the top down: a module may import from its own room and from lower
# floors only.
HOST_FLOORS = (
    {"__main__"},
    {"service"},
    {"cli"},
    {"backup", "demo", "watch"},
    {"api"},
    {"planning"},
    {"statement"},
    {"run"},
    {"reach"},
    {"learn", "provision"},
    {"store"},
    {"count"},
    {"plots"},
    {"privacy"},
    {"datasets"},
    {"vectorised"},
    {"extensions"},
    {"listed_commands", "long_running"},
    {
        "cache",
        "child_processes",
        "command",
        "device_library",
        "extras",
        "machine_names",
        "options",
        "programs",
        "registry",
        "signals",
        "terminal",
    },
    {"files", "log"},
    {"errors", "guides"},
    {"text", "words"},
)
TOOL_FLOORS = ({"testing"}, {"emulators"}, {"boards"}, {"terminal", "sessions", "listed_commands"})


@cache
def modules(package):
    """The modules of a package, by name."""
    folder = FOLDERS[package]
    paths = {}
    for path in sorted((folder / package).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if "port" in parts:  # modules of QEMU's boards run on MicroPython
            continue
        if parts[-1] == "__init__":
            parts = parts[:-1]
        paths[".".join(parts)] = path
    return paths


def all_modules():
    return {name: path for package in FOLDERS for name, path in modules(package).items()}


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def nodes(node):
    """The nodes of a tree, without what is only for the type checker."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from nodes(child)


@cache
def imports(path):
    """The modules that a file imports anywhere."""
    known = all_modules()
    names = set()
    for node in nodes(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in known else node.module)
    return frozenset(names)


def package_of(module):
    return module.partition(".")[0]


def room_of(module):
    """The part of a package that a module is in; the package's own module is its top."""
    return module.split(".")[1] if "." in module else ""


def require_no_circle(graph):
    done = set()

    def visit(name, path):
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done:
            return
        for neighbour in sorted(graph[name]):
            visit(neighbour, (*path, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def imports_of_higher_floors(package, floors):
    """Imports within a package that lead upward, or to another room of the same floor."""
    floor_of = {room: number for number, rooms in enumerate(floors) for room in rooms}
    known = modules(package)
    wrong = []
    for name, path in known.items():
        for other in imports(path) & known.keys():
            room, other_room = room_of(name), room_of(other)
            if not room or room == other_room:
                continue
            if floor_of[other_room] <= floor_of[room]:
                wrong.append(f"{name} imports {other}")
    return wrong


@pytest.mark.parametrize("package", FOLDERS)
def test_no_modules_import_each_other_in_a_circle(package):
    known = modules(package)
    require_no_circle({name: imports(path) & known.keys() - {name} for name, path in known.items()})


def test_no_module_of_the_host_imports_a_higher_floor_or_a_neighbouring_room():
    assert imports_of_higher_floors("ternhost", HOST_FLOORS) == []


def test_no_tool_imports_a_higher_floor_or_a_neighbouring_room():
    assert imports_of_higher_floors("terntools", TOOL_FLOORS) == []


@pytest.mark.parametrize("package", FOLDERS)
def test_a_package_imports_only_packages_that_it_may_know(package):
    """The device library stands alone, the host builds on it, and the tools on both. Every other
    package builds on this core, and on no package beside it.
    """
    known = {
        "tern": {"tern"},
        "ternhost": {"tern", "ternhost"},
        "terntools": {"tern", "ternhost", "terntools"},
    }.get(package, {*CORE, package})
    for name, path in modules(package).items():
        imported = {package_of(other) for other in imports(path)} & FOLDERS.keys()
        if name == "terngateway.experiment":  # an entry point of ternpapers: nobody else imports it
            imported.discard("ternpapers")
        assert imported <= known, name


def test_the_core_does_not_speak_of_what_packages_beside_it_bring():
    words = re.compile(r"gateway|home.?assistant|grafana|\bnats\b", re.IGNORECASE)
    for path in (ROOT / "host" / "ternhost").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert not words.search(path.read_text()), path


def test_a_report_comes_through_at_most_twelve_files_each_once():
    """CONTRIBUTING has a table of the files that a report comes through, between the broker and the
    model. It stays short enough to be read, and names files that exist.
    """
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("**The path of a report") :].partition("\n## ")[0]
    files = re.findall(r"^\| `([a-z_/]+\.py)` \|", section, re.MULTILINE)
    assert 5 <= len(files) <= 12
    assert len(set(files)) == len(files)
    for file in files:
        assert (ROOT / "host" / "ternhost" / file).is_file(), file
