"""Mutants of the device library: a module with one small mistake, which its tests must find.

python tests/mutation.py MODULE [NUMBER]      lists the mutants of tern.MODULE that survive

A mutant swaps an operator or a comparison, negates a condition, moves an integer by one, or drops a
statement. Each runs in a process of its own, so that one that hangs or fills the memory does no harm.
"""

import ast
import gc
import os
import resource
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent
LIBRARY = TESTS.parent / "firmware" / "tern"
SECONDS = 8  # of the processor, for a mutant; the right library takes at most 2
_MEMORY = 1 << 31  # bytes
_QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where files cost least

# Each operator and comparison becomes another one of the same kind.
_SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def mutants(source, number=None):
    """Mutants of a module, in the order of its syntax tree: (what is wrong, its source) of each.

    number: so many at equal distances, the same every time; None: all.
    """
    sites = [
        (position, change)
        for position, node in enumerate(ast.walk(ast.parse(source)))
        for change in _changes(node)
    ]
    if number:
        sites = sites[:: max(1, len(sites) // number)][:number]
    for position, change in sites:
        tree = ast.parse(source)
        node = next(one for i, one in enumerate(ast.walk(tree)) if i == position)
        what = f"line {node.lineno}: {change} of {ast.unparse(node).splitlines()[0]}"
        _apply(change, node)
        yield what, ast.unparse(ast.fix_missing_locations(tree))


def _changes(node):
    """The names of the changes that this node of a syntax tree allows."""
    match node:
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str())):
            return []  # a text
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in _SWAPS:
            return ["swap", "drop"] if isinstance(node, ast.AugAssign) else ["swap"]
        case ast.Compare() if type(node.ops[0]) in _SWAPS:
            return ["swap"]
        case ast.If() | ast.While():
            return ["negation"]
        case ast.Constant(value=int()) if not isinstance(node.value, bool):
            return ["one more"]
        case ast.Assign() | ast.Raise() if hasattr(node, "col_offset") and node.col_offset:
            return ["drop"]
        case ast.Expr(value=ast.Call()):
            return ["drop"]
    return []


def _apply(change, node):
    if change == "one more":
        node.value += 1
    elif change == "negation":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif change == "drop":
        node.__class__ = ast.Pass
    elif isinstance(node, ast.Compare):
        node.ops[0] = _SWAPS[type(node.ops[0])]()
    else:
        node.op = _SWAPS[type(node.op)]()


def is_caught(module, source, files):
    """Whether one of these files of tests/device fails while tern.`module` has this source."""
    with tempfile.TemporaryDirectory(dir=_QUICK) as folder:
        Path(folder, f"{module}.py").write_text(source)
        command = [sys.executable, __file__, "--run", folder, *files]
        environment = {**os.environ, "TMPDIR": folder}
        try:
            ended = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, timeout=20 * SECONDS
            )
        except subprocess.TimeoutExpired:
            return True
        return ended.returncode != 0


def _run(folder, *files):
    """Run device tests with the modules of this folder before the library's, those of vectors first."""
    os.fsync = gc.collect = int  # CPython, without power cuts, needs neither
    import tern

    tern.__path__.insert(0, folder)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.path[:0] = [str(TESTS), str(TESTS / "device")]
    tests = []
    for file in files:
        functions = runpy.run_path(str(TESTS / "device" / file)).items()
        tests += [(name, test) for name, test in functions if name.startswith("test_")]
    for _, test in sorted(tests, key=lambda named: "vectors" not in named[0]):
        test()
    os._exit(0)


def main(module, number=None):
    from unit.test_mutation import MODULES

    source = (LIBRARY / f"{module}.py").read_text()
    caught = tried = 0
    for what, mutant in mutants(source, int(number) if number else None):
        tried += 1
        if is_caught(module, mutant, MODULES[module][0]):
            caught += 1
        else:
            print(f"{module}, {what}")
    print(f"{module}: {caught} of {tried} caught")


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        _run(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
