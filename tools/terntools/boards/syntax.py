"""Says what MicroPython's compiler does not know in a program that is right in Python.

The compiler itself only says "invalid syntax". Which constructs it lacks is in MicroPython's
documentation, "MicroPython differences from CPython"; these were tried with 1.29. They are looked for
only after the compiler has refused a program, since a newer one may know them.
"""

import ast
import re
from collections.abc import Iterator

from ternhost.errors import TernError, UsageError

_LINE = re.compile(r'File ".*", line ([0-9]+)')
_ASCII = ord("a")  # of {value!a} in an f-string
_MATCH = "a match statement", "write if and elif instead"
_EXCEPT_STAR = "except*", "write except instead"
_SLASH = "parameters that end with /", "leave the / out"
_DECORATOR = "a decorator that is an expression", "give it a name in the line above"
_WITH = "parentheses around what a with statement opens", "leave them out, or nest two statements"
_STARRED = "* inside a list, a tuple, a set or an index", "add lists instead, as in list(a) + [1]"
_STARRED_TYPE = "* in an annotation", "leave the annotation out"
_DICT = "** inside a dictionary", "make the dictionary, and call its update() for the other one"
_ASYNC_LOOP = "async for inside brackets", "write a loop instead"
_TYPE = "types that are declared", "leave the type out"
_F_ASCII = "!a in an f-string", "write !r instead"
_F_LAMBDA = "lambda in an f-string", "compute the value in the line above"
_NAME_ESCAPE = r"\N{...} in a text", "write the character itself"


def explained(name: str, text: str, error: TernError) -> UsageError:
    """Return the error for a program that MicroPython's compiler refuses, with the line.

    name: of the program's file. text: its content. error: what the compiler says.
    """
    lines = [int(number) for number in _LINE.findall(error.message)]
    *_, reason = error.message.splitlines()
    where = name
    unknown = sorted(_unknown(text))
    if lines:
        where = f"{name}, line {lines[-1]}"
        # The construct began on this line or before.
        unknown = [construct for construct in unknown if construct[0] <= lines[-1]]
    hint = (
        "write it in another way: MicroPython knows most of Python 3.4, and some of what came later"
    )
    problem = f"MicroPython cannot compile it ({reason})"
    if unknown:
        line, construct, hint = unknown[-1]
        where = f"{name}, line {line}"
        problem = f"MicroPython does not know {construct}"
    return UsageError(f"{where}: {problem}", hint)


def _unknown(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line of each construct that MicroPython lacks, its name and what to write instead."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        for construct in _constructs_of(node, lines):
            yield getattr(node, "lineno", 1), *construct
        for decorator in getattr(node, "decorator_list", []):
            if not re.fullmatch(r"[\w.]+(\(.*\))?", ast.unparse(decorator), re.DOTALL):
                yield decorator.lineno, *_DECORATOR


def _constructs_of(node: ast.AST, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the constructs of a node that MicroPython lacks, and what to write instead of each.

    lines: of the program.
    """
    if isinstance(node, ast.Match):
        yield _MATCH
    if type(node).__name__ == "TryStar":
        yield _EXCEPT_STAR
    if type(node).__name__ == "TypeAlias" or getattr(node, "type_params", None):
        yield _TYPE
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        if node.args.posonlyargs:
            yield _SLASH
        if node.args.vararg and isinstance(node.args.vararg.annotation, ast.Starred):
            yield _STARRED_TYPE
    if isinstance(node, ast.With | ast.AsyncWith):
        opens_parentheses = re.match(r"\s*(async\s+)?with\s*\(", lines[node.lineno - 1])
        if opens_parentheses and len(node.items) > 1:
            yield _WITH
    yield from _constructs_in(node, lines)


def _constructs_in(node: ast.AST, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the constructs of an expression that MicroPython lacks, as `_constructs_of` does."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        has_star = any(isinstance(element, ast.Starred) for element in node.elts)
        if has_star and not _is_target(node):
            yield _STARRED
    if isinstance(node, ast.Dict) and None in node.keys:
        yield _DICT
    if any(generator.is_async for generator in getattr(node, "generators", [])):
        yield _ASYNC_LOOP
    if isinstance(node, ast.FormattedValue):
        if node.conversion == _ASCII:
            yield _F_ASCII
        if any(isinstance(inner, ast.Lambda) for inner in ast.walk(node)):
            yield _F_LAMBDA
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        last_line = node.end_lineno or node.lineno
        if r"\N{" in "\n".join(lines[node.lineno - 1 : last_line]):
            yield _NAME_ESCAPE


def _is_target(node: ast.List | ast.Tuple | ast.Set) -> bool:
    """Return whether values are assigned to a list or a tuple, as in a, *b = c."""
    return isinstance(getattr(node, "ctx", None), ast.Store)
