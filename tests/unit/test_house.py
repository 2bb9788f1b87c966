"""The layout is the architecture: who may import whom, with no circle, and how large the house may be."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {"tern": ROOT / "firmware", "ternhost": ROOT / "host", "terntools": ROOT / "tools"}

# The floors of the host, from the top down: a module may import from its own room and from lower floors only.
FLOORS = (
    {"__main__"},
    {"cli"},
    {"dashboard"},
    {"api"},
    {"experiments"},
    {"runs"},
    {"gateways"},
    {"fleet"},
    {"algorithms", "drivers"},
    {"report"},
    {"aggregate"},
    {"mechanisms", "links", "datasets"},
    {"vectorised"},
    {"errors", "registry", "options", "files", "cache", "extras", "text"},
)
MOST_LINES_OF_HOST = 24_300  # of code
MOST_LINES_OF_A_FILE = 420


def modules(package: str) -> dict[str, Path]:
    """The modules of a package, by name."""
    base = SOURCES[package]
    found = {}
    for path in sorted((base / package).rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        if "port" not in parts:  # of QEMU's boards: runs on MicroPython
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of `known` that a file imports, anywhere in it; not for the type checker alone."""
    found: set[str] = set()
    for node in walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
    return found & known.keys()


def walk(node: ast.AST):
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk(child)


def floor_of(module: str) -> int | None:
    room = module.split(".")[1] if "." in module else None
    return next((i for i, rooms in enumerate(FLOORS) if room in rooms), None)


@pytest.mark.parametrize("package", SOURCES)
def test_no_modules_import_each_other_in_a_circle(package):
    known = modules(package)
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_every_room_of_the_host_has_its_floor():
    rooms = {name.split(".")[1] for name in modules("ternhost") if "." in name}
    assert rooms <= set().union(*FLOORS)


def test_nothing_in_the_host_imports_a_floor_above_or_a_room_beside():
    known = modules("ternhost")
    wrong = []
    for name, path in known.items():
        own = floor_of(name)
        for other in imports(path, known):
            theirs = floor_of(other)
            if own is None or theirs is None or theirs < own:
                wrong.append(f"{name} imports {other}")
            elif theirs == own and name.split(".")[1] != other.split(".")[1]:
                beside = {name.split(".")[1], other.split(".")[1]}
                if own < len(FLOORS) - 1:
                    wrong.append(f"{name} imports {other}, beside it: {sorted(beside)}")
    assert not [line for line in wrong if not line.startswith("ternhost imports")]


def test_nothing_in_the_host_imports_a_tool():
    tools = modules("terntools")
    assert not {name: found for name, path in modules("ternhost").items() if (found := imports(path, tools))}


def test_the_device_library_imports_nothing_of_the_host():
    others = {**modules("ternhost"), **modules("terntools")}
    assert not {name: found for name, path in modules("tern").items() if (found := imports(path, others))}


def code_lines(path: Path) -> int:
    """How many lines of a file are code: neither empty nor comment nor docstring."""
    text = path.read_text()
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                told |= set(range(value.lineno, (value.end_lineno or 0) + 1))
    silent = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    }  # fmt: skip
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - told)


def test_the_host_is_no_larger_than_it_may_be():
    assert sum(code_lines(path) for path in modules("ternhost").values()) <= MOST_LINES_OF_HOST


@pytest.mark.parametrize("package", ["ternhost", "terntools"])
def test_no_file_is_long_without_a_reason(package):
    long = {
        name: count
        for name, path in modules(package).items()
        if (count := len(path.read_text().splitlines())) > MOST_LINES_OF_A_FILE
        and "in one file" not in (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
    }
    assert not long
