"""All messages of errors, warnings and notes, as they stand in the code: `python tests/messages.py`.

It prints them by file; with --keep it writes tests/messages.txt, which a test compares. A value that
a message contains stands there as {its expression}. Read the file as a whole from time to time: this
is how one sees that two messages say one thing in two ways.
"""

import argparse
import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_name("messages.txt")
FOLDERS = ("host", "tools")
ERRORS = ("TernError", "UsageError", "DeviceError", "RefusedError", "StorageError")
MORE_ERRORS = ("InterruptedByUser", "NotTernError", "_unknown")
# Functions whose first argument is a message; of `require`, the third completes a sentence.
SAYING = ("warn", "note", "say", "print_line")


def text_of(node, names):
    """The text of an expression; None if it is none. names: what local names stand for."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(part.value)
            else:
                parts.append("{" + ast.unparse(part.value) + "}")
        return "".join(parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left, names), text_of(node.right, names)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.Name):
        return names.get(node.id)
    return None


class Messages(ast.NodeVisitor):
    """Collects the messages of a module, in the order of the code."""

    def __init__(self):
        self.found = []
        self._names = {}

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

    def visit_Call(self, node):
        self.generic_visit(node)
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if called.endswith("Error") or called in (*ERRORS, *MORE_ERRORS, *SAYING):
            self._add(node)

    def _add(self, node):
        texts = [text_of(argument, self._names) for argument in node.args[:2]]
        for keyword in node.keywords:
            if keyword.arg == "hint":
                texts.append(text_of(keyword.value, self._names))
        message = "\n    ".join(text for text in texts if text)
        if " " in message:  # a word alone is no message
            self.found.append(message)


def messages():
    """The messages of each file that has some, by its path."""
    by_file = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            visitor = Messages()
            visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
            if visitor.found:
                by_file[path.relative_to(ROOT).as_posix()] = visitor.found
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
