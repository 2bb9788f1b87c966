"""`tern config`: shows what the project file says, and what is in force for a command."""

import argparse
import re
from pathlib import Path
from typing import Any

from ternhost.cli import project
from ternhost.command import add_command, print_result
from ternhost.errors import OK, UsageError
from ternhost.listed_commands import CONFIG
from ternhost.text import did_you_mean

_NO_FILE = f"""there is no {project.FILE} in this directory; for options that you type again and again, write one:
  data = "flights"
  fleet = "mqtt:my-broker"

  [serve]
  every = "1h\""""


def add_parser(subparsers: Any) -> None:
    """Add `tern config` to the commands."""
    example = "tern config\ntern config train fedsgd\ntern config board provision"
    parser = add_command(subparsers, CONFIG.name, CONFIG.summary, example, run)
    text = "the words of a command, such as: train fedsgd (default: all that the file sets)"
    parser.add_argument("words", nargs="*", metavar="COMMAND", help=text)


def run(args: argparse.Namespace) -> int:
    """Print the settings of the project file, or the options in force for a command."""
    from ternhost.cli.tree import build_parser  # which lists this module

    settings = project.load(Path())
    if args.words:
        return _show_command(args, settings, build_parser(args.words))

    parser = build_parser()
    for setting in settings:
        path = setting.table.split(".") if setting.table else []
        # Raises UsageError for a table of no command, and for a value that does not fit.
        project.apply([setting], parser, path)
    rows = [_row(setting) for setting in settings]
    lines = [f"{row['option']} = {row['value']}  ({row['from']})" for row in rows] or [_NO_FILE]
    print_result({"settings": rows}, "\n".join(lines), args.json)
    return OK


def _show_command(
    args: argparse.Namespace, settings: list[project.Setting], parser: argparse.ArgumentParser
) -> int:
    """Print the options of a command with their values, and what sets them."""
    path = project.command_path(parser, args.words)
    if path != args.words:
        text = f"there is no command 'tern {' '.join(args.words)}'"
        unknown = next(word for word in args.words if word not in path)
        suggestion = did_you_mean(unknown, project.words_after(parser, path))
        raise UsageError(text, hint=f"{suggestion} 'tern --help' lists the commands".strip())
    in_force = project.apply(settings, parser, path)
    rows = []
    for action in project.options_of(parser, path):
        setting = in_force.get(action.dest)
        if setting is not None:
            rows.append({**_row(setting), "option": action.option_strings[0]})
        else:
            value = _default_in_words(action)
            rows.append({"option": action.option_strings[0], "value": value, "from": "default"})
    lines = [f"{row['option']:20} {row['value']}  ({row['from']})" for row in rows]
    if not lines:
        lines = [f"'tern {' '.join(path)}' has no options"]
    print_result({"options": rows}, "\n".join(lines), args.json)
    return OK


def _row(setting: project.Setting) -> dict[str, Any]:
    """Return a setting for JSON."""
    return {"option": setting.name, "value": setting.value, "from": setting.place}


def _default_in_words(action: argparse.Action) -> str:
    """Return the default of an option as its help tells it; "-" if it has none."""
    if action.nargs == 0:
        return "no"
    told = re.search(r"\(default: (.*)\)", action.help or "", re.DOTALL)
    return told[1] if told else "-"
