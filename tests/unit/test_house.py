"""The layout is the architecture: which module may import which, without circles."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {"tern": ROOT / "firmware", "ternhost": ROOT / "host", "terntools": ROOT / "tools"}

# The floors of the host, from the top down: a module may import from its own room and from lower
# floors only.
FLOORS = (
    {"__main__"},
    {"cli"},
    {"watch"},
    {"api"},
    {"experiments"},
    {"planning"},
    {"statement"},
    {"run"},
    {"reach"},
    {"learn", "provision"},
    {"store"},
    {"count"},
    {"plots"},
    {"privacy", "datasets"},
    {"vectorised"},
    {
        "errors",
        "registry",
        "options",
        "device_library",
        "files",
        "cache",
        "extras",
        "text",
        "command",
        "terminal",
    },
)
# The same for the tools.
TOOL_FLOORS = ({"testing"}, {"emulators"}, {"boards"}, {"terminal", "sessions"})
# The ways of reaching devices. Registries name them, and their commands are in them. Other
# importers are only the plans, which run on simulated clients, and the tools, whose boards
# are on ports.
WAYS = ("ports", "broker", "gateway", "simulated")
BESIDE = {"ternhost.planning": "simulated"} | dict.fromkeys(
    [
        "terntools.boards",
        "ternbench",
        "ternbench.meters",
        "terntools.emulators",
        "terntools.testing",
    ],
    "ports",
)
# Tools that import a broker late, for their options, and tools that are imported late themselves.
BROKER_OPTIONS = {"terntools.emulators.fleet_command"} | {
    f"terntools.boards.{name}"
    for name in ("attach", "network", "relay", "relay_command", "update_command")
}
ABOUT_BROKERS = {
    "terntools.boards.hearing",
    "terntools.emulators.at_broker",
    "terntools.emulators.programs",
}


@cache
def modules(package: str) -> dict[str, Path]:
    """The modules of a package, by name."""
    base = SOURCES[package]
    paths = {}
    for path in sorted((base / package).rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        if "port" not in parts:  # modules of QEMU's boards run on MicroPython
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported(path: Path, late: bool = True) -> set[tuple[str, str]]:
    """The (module, name) of each import of a file, at its top or `late`, except those only for the
    type checker.
    """
    names = set()
    for node in walk(tree(path)) if late else tree(path).body:
        if isinstance(node, ast.Import):
            names |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {(node.module, alias.name) for alias in node.names}
    return names


def imports(path: Path, known: dict[str, Path], late: bool = True) -> set[str]:
    """The modules of `known` that a file imports."""
    return {
        whole if (whole := f"{module}.{name}") in known else module
        for module, name in imported(path, late)
    } & known.keys()


def walk(node: ast.AST):
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk(child)


def floor_of(module: str, floors: Iterable[set[str]] = FLOORS) -> int | None:
    room = module.split(".")[1] if "." in module else None
    return next((i for i, rooms in enumerate(floors) if room in rooms), None)


@pytest.mark.parametrize("package", SOURCES)
def test_no_modules_import_each_other_in_a_circle(package):
    known = modules(package)
    require_no_circle({name: imports(path, known) - {name} for name, path in known.items()})


def test_no_c_modules_of_an_emulator_use_each_other_in_a_circle():
    """A header and the files named like it are one module, also if they are for different machines."""
    texts: dict[str, str] = {}
    for path in sorted((SOURCES["terntools"] / "terntools/emulators").rglob("*.[chS]")):
        without_declarations = re.sub(r"^\w.*;|//.*", "", path.read_text(), flags=re.M)
        texts[path.stem] = texts.get(path.stem, "") + without_declarations
    functions = {
        stem: set(re.findall(r"^(?!static )\w[^;(){}=#]*\b(\w+)\([^;]*?\) \{$", text, re.M))
        for stem, text in texts.items()
        if stem != "main"  # a machine begins and ends in it
    }
    graph: dict[str, set[str]] = {}
    for stem, text in texts.items():
        used = set(re.findall(r"(\w+)\(", text)) - functions.get(stem, set())
        graph[stem] = {
            other
            for other in texts.keys() - {stem}
            if re.search(rf'#include ".*\b{other}\.h"', text) or used & functions.get(other, set())
        }
    assert "board" in graph["modflash"]
    require_no_circle(graph)


def require_no_circle(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for neighbour in sorted(graph[name]):
                visit(neighbour, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_every_room_of_the_host_has_a_floor():
    rooms = {name.split(".")[1] for name in modules("ternhost") if "." in name}
    assert rooms <= set().union(*FLOORS)


def test_no_module_of_the_host_imports_a_higher_floor_or_a_neighbouring_room():
    known = modules("ternhost")
    wrong = []
    for name, path in known.items():
        floor = floor_of(name)
        for other in imports(path, known):
            other_floor = floor_of(other)
            if floor is None or other_floor is None or other_floor < floor:
                wrong.append(f"{name} imports {other}")
            elif other_floor == floor and name.split(".")[1] != other.split(".")[1]:
                beside = {name.split(".")[1], other.split(".")[1]}
                if floor < len(FLOORS) - 1:
                    wrong.append(f"{name} imports {other}, beside it: {sorted(beside)}")
    assert not [line for line in wrong if not line.startswith("ternhost imports")]


def test_no_tool_imports_a_higher_floor():
    known = modules("terntools")
    floors = {name: floor_of(name, TOOL_FLOORS) for name in known.keys() - {"terntools"}}
    assert None not in floors.values()
    pairs = {
        (name, other) for name in floors for other in imports(known[name], known) & floors.keys()
    }
    assert {(name, other) for name, other in pairs if floors[other] < floors[name]} == set()


def test_every_step_in_the_path_of_a_report_calls_its_neighbour():
    """Each step in CONTRIBUTING is in its folder, and calls an earlier step or is called by one."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    steps = re.findall(
        r"^\d\. `([a-z/]+)`: ((?:.|\n(?!\d\.|\n))*)",
        text[text.index("**The path of a report") :],
        re.M,
    )[:4]
    assert [folder for folder, _ in steps] == ["reach/broker", "count", "run", "learn"]
    path: dict[str, set[str]] = {}  # the names that each step mentions
    for folder, words in steps:
        mentions: dict[str, set[str]] = {}
        for source in (ROOT / "host" / "ternhost" / folder).glob("*.py"):
            for node in tree(source).body:
                mentions |= members(node) if isinstance(node, ast.ClassDef) else {}
        named = re.findall(r"`([A-Z][\w.]*)`", words)
        assert named
        assert set(named) <= mentions.keys(), folder
        for step in named:
            called = step.rpartition(".")[2] in set().union(*path.values())
            calls = mentions[step] & {earlier.rpartition(".")[2] for earlier in path}
            assert called or calls or not path, (
                f"{step} and the steps before it do not call each other"
            )
            path[step] = mentions[step]


def members(cls: ast.ClassDef) -> dict[str, set[str]]:
    """By "Class.method", the names that each method of a class mentions; the class and its
    attributes have none.
    """
    mentioned: dict[str, set[str]] = {cls.name: set()}
    for each in ast.walk(cls):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            mentioned.setdefault(f"{cls.name}.{each.attr}", set())
        elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(each)}
            mentioned[f"{cls.name}.{each.name}"] = names
    return mentioned


def test_no_module_of_the_host_imports_a_tool():
    tools = modules("terntools")
    assert not {
        name: used for name, path in modules("ternhost").items() if (used := imports(path, tools))
    }


def test_the_host_imports_no_test_library():
    libraries = {"unittest", "pytest", "hypothesis"}
    paths = modules("ternhost").values()
    assert not {
        name for path in paths for name, _ in imported(path) if name.partition(".")[0] in libraries
    }


def test_the_device_library_imports_nothing_of_the_host():
    others = {**modules("ternhost"), **modules("terntools")}
    assert not {
        name: used for name, path in modules("tern").items() if (used := imports(path, others))
    }


@pytest.mark.slow
def test_methods_that_a_subclass_of_another_module_overrides_are_public():
    private = {}
    for name in modules("ternhost").keys() - {"ternhost.__main__"}:
        for cls in vars(importlib.import_module(name)).values():
            if not isinstance(cls, type) or cls.__module__ != name:
                continue
            for base in cls.__mro__[1:]:
                if base.__module__.startswith(("tern.", "ternhost.")) and base.__module__ != name:
                    shared = {
                        each
                        for each in vars(cls).keys() & vars(base).keys()
                        if is_private_method(cls, each)
                    }
                    private |= {f"{name}.{cls.__name__}": shared} if shared else {}
    assert private == {}


def is_private_method(cls: type, name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and callable(getattr(cls, name))


def test_only_the_store_contains_sql():
    """A statement is a string that begins with its verb in capitals."""
    verbs = re.compile(
        r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE TABLE|PRAGMA|ALTER TABLE|BEGIN|COMMIT)\b"
    )
    speakers = {
        name
        for name, path in modules("ternhost").items()
        for node in ast.walk(tree(path))
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and verbs.match(node.value)
        )
        or (isinstance(node, (ast.Import, ast.ImportFrom)) and "sqlite3" in ast.unparse(node))
    }
    assert speakers
    assert {name for name in speakers if not name.startswith("ternhost.store.")} == set()


def way_of(module: str) -> str | None:
    parts = module.split(".")
    return (
        parts[2] if parts[:2] == ["ternhost", "reach"] and parts[2:] and parts[2] in WAYS else None
    )


def test_only_modules_of_a_way_of_reaching_devices_import_it():
    known = {**modules("ternhost"), **modules("terntools")}
    for name, path in known.items():
        allowed = (None, way_of(name), BESIDE.get(name.rpartition(".")[0]))
        others = {other for other in imports(path, known) if way_of(other) not in allowed}
        of_a_broker = name in BROKER_OPTIONS | ABOUT_BROKERS
        assert {way_of(other) for other in others} == ({"broker"} if of_a_broker else set()), name
        early = imports(path, known, late=False) & (others | ABOUT_BROKERS)
        assert not early or name in ABOUT_BROKERS, name


# The unit tests of each way, which show that it works without the others, and the commands that are
# lost with it.
TAKEN_AWAY = {
    "ports": (
        "serial_link",
        "bench deploy device devices flash fleet hil monitor provision relay up update",
    ),
    "broker": ("broker sites hellos", "broker"),
    "gateway": ("gateways_messages gateway_init", "gateway"),
    "simulated": ("simulated hiera", "experiment plan"),
}
# Common modules are imported once; each way is hidden in forks of that process.
_HIDE = """
import contextlib, importlib, json, os, sys
import pytest, hypothesis, numpy, ternhost.reach
import terntools.testing.pytest_hardware, terntools.testing.pytest_plugin  # the tools need ports

folder, ways, every = sys.argv[1], *map(json.loads, sys.argv[2:])

class Hidden:
    def __init__(self, way):
        self.way, self.name = way, f"ternhost.reach.{way}"
        self.forget(self.name)
        vars(ternhost.reach).pop(way, None)
        sys.meta_path.insert(0, self)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(self.name)

    def forget(self, *prefixes):
        for name in [name for name in sys.modules if name.startswith(prefixes)]:
            del sys.modules[name]

    def find_spec(self, name, path=None, target=None):
        if name.startswith(self.name):
            raise ModuleNotFoundError(f"{name} is hidden", name=name)

    def pytest_collection_modifyitems(self, items):
        items[:] = items[::every]

    def test(self):
        others = " ".join(tests for way, (tests, _) in ways.items() if way != self.way).split()
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not no_boards"]
        assert not pytest.main([*options, *(f"{folder}/test_{name}.py" for name in others)], plugins=[self])

    def command(self):
        self.forget("ternhost", "terntools")
        from ternhost.cli import COMMANDS, main
        missing = []
        for words in [], *([name] for name in COMMANDS):
            with contextlib.suppress(SystemExit):  # as --help ends
                main([*words, "--help"])
                missing += words or ["tern"]
        assert sorted(missing) == ways[self.way][1].split(), missing
        fleet = ["--fleet", "emulated:1" if self.way == "simulated" else "simulated:500", "--no-report"]
        assert main(["train", *fleet, "--reports", "100"]) == main(["collect", *fleet, "--dataset", "wine"]) == 0
        assert "fleet" in missing or main(["fleet", "kinds"]) == 0

for way in ways:
    for work in Hidden.test, Hidden.command:
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0, way
        else:
            work(Hidden(way))
            sys.exit()
"""


@pytest.mark.slow
def test_all_else_works_without_a_way_of_reaching_devices(pytestconfig, tmp_path):
    """Every fourth test of the others runs without it; with --exhaustive, every test."""
    every = "1" if pytestconfig.getoption("exhaustive") else "4"
    words = [
        sys.executable,
        "-c",
        _HIDE,
        str(ROOT / "tests" / "unit"),
        json.dumps(TAKEN_AWAY),
        every,
    ]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
