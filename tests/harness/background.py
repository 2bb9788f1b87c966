"""Commands in the background of a shell."""

import json
import subprocess

from warm import TERN


def interrupt(number, *words, **options):
    """Start a command in the background, send it a signal once it has printed a line; return (that
    line, exit code).
    """
    # A shell without job control ignores SIGINT for processes that it starts with &.
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *TERN, *words, "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    ) as process:
        try:
            first = json.loads(process.stdout.readline())
            process.send_signal(number)
            assert process.communicate(timeout=60)[1] == b""
        finally:
            process.kill()
    return first, process.returncode
