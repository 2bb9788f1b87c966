"""All messages of errors, warnings and notes, as they stand in the code: `python tests/messages.py`.

It prints them by file, with the lines of results of commands; with --keep it writes
tests/messages.txt, which a test compares. A value that a message contains stands there as {its
expression}, and a hint is indented under its message. Read the file as a whole from time to time:
this is how one sees that two messages say one thing in two ways.
"""

import argparse
import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_name("messages.txt")
FOLDERS = ("host", "tools")
# Functions whose first arguments are a message, beside those whose names end in "Error".
SAYING = (
    "InterruptedByUser",
    "NotTernError",
    "_bad",
    "_contradiction",
    "_report",
    "_unknown",
    "bad_file",
    "note",
    "print_line",
    "print_result",
    "progress",
    "say",
    "step",
    "storage_errors",
    "warn",
)
_LEAST_WORDS = 3  # of a line of a result; shorter texts are parts of tables


def text_of(node, names):
    """The text of an expression; None if it is none. names: what names stand for."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_part_of_text(part, names) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left, names), text_of(node.right, names)
        has_text = left is not None or right is not None
        joined = (left or _in_braces(node.left)) + (right or _in_braces(node.right))
        return joined if has_text else None
    if isinstance(node, ast.IfExp):
        choices = (text_of(node.body, names), text_of(node.orelse, names))
        return " / ".join(choice for choice in choices if choice) or None
    return _text_of_name(node, names)


def _text_of_name(node, names):
    """The text that a name stands for, or a constant of another module."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and node.attr.isupper():
        return names.get(node.attr)
    return None


def _part_of_text(part, names):
    """The text of a part of an f-string: a constant that it names, or its expression in braces."""
    if isinstance(part, ast.Constant):
        return part.value
    is_constant = isinstance(part.value, ast.Name | ast.Attribute)
    text = text_of(part.value, names) if is_constant else None
    # A short constant says more by its name: {_LEAST} instead of 2.
    return text if text and " " in text else _in_braces(part.value)


def _in_braces(node):
    return "{" + ast.unparse(node) + "}"


def called_name(node):
    """The name of the function or method that a call calls; for super().__init__ "Error"."""
    if isinstance(node.func, ast.Attribute):
        is_made = node.func.attr == "__init__" and any(key.arg == "hint" for key in node.keywords)
        return "Error" if is_made else node.func.attr
    return getattr(node.func, "id", "")


class Messages(ast.NodeVisitor):
    """Collects the messages of a module, in the order of the code.

    constants: the texts of all modules by their names, for hints that stand elsewhere.
    """

    def __init__(self, constants, has_results):
        self.found = []
        self._names = dict(constants)
        self._has_results = has_results

    def visit_FunctionDef(self, node):
        outer, self._names = self._names, dict(self._names)
        self.generic_visit(node)
        self._names = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assign(self, node):
        self.generic_visit(node)
        text = text_of(node.value, self._names)
        for target in node.targets:
            if isinstance(target, ast.Name) and text is not None:
                self._names[target.id] = text

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        added = text_of(node.value, self._names)
        if isinstance(node.target, ast.Name) and added is not None:
            before = self._names.get(node.target.id, "")
            self._names[node.target.id] = before + added

    def visit_List(self, node):
        self.generic_visit(node)
        self._add_lines(node.elts)

    def visit_Call(self, node):
        self.generic_visit(node)
        called = called_name(node)
        if called.endswith("Error") or called in SAYING:
            self._add(node)
        elif called == "append":
            self._add_lines(node.args)
        elif called == "exclude":
            names = [text_of(argument, self._names) for argument in node.args[1:]]
            self._add_text(" and ".join(f"--{name}" for name in names) + " exclude each other")
        elif called == "require" and len(node.args) == 4:
            name, must = (text_of(argument, self._names) for argument in node.args[1:3])
            name = name or _in_braces(node.args[1])
            must = must or _in_braces(node.args[2])
            self._add_text(f"--{name.replace('_', '-')} must be {must}, not ...")
        elif called == "_require" and len(node.args) > 1:
            self._add_text(text_of(node.args[1], self._names))

    def _add(self, node):
        texts = [text_of(argument, self._names) for argument in node.args[:2]]
        for keyword in node.keywords:
            if keyword.arg == "hint":
                hint = text_of(keyword.value, self._names)
                texts.append(hint or _in_braces(keyword.value))
        self._add_text("\n    ".join(text for text in texts if text))

    def _add_text(self, text):
        if text and " " in text:  # a word alone is no message
            self.found.append(text)

    def _add_lines(self, nodes):
        """Add the lines of a result, in a module that prints results."""
        if not self._has_results:
            return
        for node in nodes:
            text = text_of(node, self._names)
            if text and len(text.split()) >= _LEAST_WORDS:
                self.found.append(text)


def _constants(trees):
    """The texts that stand at the outside of modules, by their names, but for ambiguous names."""
    texts = {}
    for tree in trees:
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                text = text_of(statement.value, {})
                if text is not None:
                    texts.setdefault(statement.targets[0].id, set()).add(text)
    return {name: next(iter(found)) for name, found in texts.items() if len(found) == 1}


def messages():
    """The messages of each file that has some, by its path."""
    sources = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            sources[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    trees = {path: ast.parse(source) for path, source in sources.items()}
    constants = _constants(trees.values())
    by_file = {}
    for path, tree in trees.items():
        visitor = Messages(constants, has_results="print_result" in sources[path])
        visitor.visit(tree)
        if visitor.found:
            by_file[path] = visitor.found
    return by_file


def as_text(by_file):
    """The text of the file of messages."""
    lines = ["All messages of tern by file. Written by: python tests/messages.py --keep", ""]
    for path, found in by_file.items():
        lines += [path, *(f"  {message}" for message in found), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name}")
    if parser.parse_args().keep:
        KEPT.write_text(as_text(messages()), encoding="utf-8")
    else:
        print(as_text(messages()))


if __name__ == "__main__":
    main()
