"""Explains in a sentence what a board prints instead of an answer.

An ESP32's boot ROM gives reasons, and other programs print what they please.

The lines of the ROM and of the second-stage boot loader are those of ESP-IDF ("Fatal Errors" and
"Boot Log" of its programming guide, and `bootloader_support`).
"""

import re
from collections import Counter

_SHOWN_CHARACTERS = 60  # of a line
_SENT = b"import umachine as _M"  # a part of what the host sends to get a prompt
_RESET = re.compile(r"^rst:0x[0-9a-f]+ \(", re.MULTILINE)  # the ROM's line at each start
_SMALL_FLASH = re.compile(
    r"Detected size\((\d+)k\) smaller than the size in the binary image header\((\d+)k\)"
)
_AGAIN = "flash it again with tern board flash"
# How a line starts, and the cause that it shows. Where a board prints several, the first one here
# explains the others.
_CAUSES = (
    (
        r"Brownout detector",
        "its supply voltage drops too low (brownout): try another cable, port or supply",
    ),
    (
        r"waiting for download\s*$",
        "it waits in its boot loader: release BOOT (GPIO 0), and press reset",
    ),
    (
        r"invalid header: ",
        f"it has no firmware, or one for another chip (invalid header): {_AGAIN}",
    ),
    (r"E .*exceeds flash chip size", f"its firmware is for a larger flash than it has: {_AGAIN}"),
    (
        r"E .*(Failed to verify partition table|No bootable app|Image hash failed)",
        f"its firmware is damaged: {_AGAIN}",
    ),
    (r"flash read err", f"it cannot read its flash (flash read err): {_AGAIN}"),
    (r"csum err", f"its firmware is damaged (csum err): {_AGAIN}"),
    (r"Guru Meditation Error", f"its firmware crashes (Guru Meditation Error): {_AGAIN}"),
    (r"(abort\(\) was called|assert failed)", f"its firmware crashes (abort): {_AGAIN}"),
    (r"rst:0x\w+ \(\w*WDT", f"its watchdog resets it, since its program hangs: {_AGAIN}"),
    (
        r"The filesystem appears to be corrupted",
        "its file system is damaged, and MicroPython waits for somebody to act",
    ),
)
# The sentences about other programs, which flashing does not end: see is_firmware_missing().
_NO_TEXT = "it sends bytes that are no text: is it another device, or another baud rate?"
_ECHO = "it sends back what it is sent: is it another device?"


def describe(output: bytes) -> str:
    """Describe what a board has printed, in a sentence without a full stop; "" for nothing.

    The sentence gives the reason that an ESP32's boot ROM has printed. Without one, it quotes the
    line that came most often.
    """
    text = _lines_of(output)
    cause = _cause(text)
    restarts = len(_RESET.findall(text)) > 1
    if restarts and cause:
        return f"it restarts again and again, {cause}"
    if restarts:
        return "it restarts again and again"
    if cause:
        return cause
    if _SENT in output:
        return _ECHO
    if not _is_text(output):
        return _NO_TEXT
    return _most_frequent_line(text)


def is_firmware_missing(output: bytes) -> bool:
    """Return whether a board that printed this needs a firmware.

    It does if it printed nothing, or what an ESP32's boot ROM prints when no firmware starts.
    """
    text = _lines_of(output)
    has_printed = bool(output.strip(b"\0\r\n"))
    is_from_rom = bool(_RESET.search(text) or _cause(text))
    return not has_printed or is_from_rom


def _lines_of(output: bytes) -> str:
    """Return the output as text, with a line feed at the end of each line."""
    return output.decode(errors="replace").replace("\r", "\n")


def _cause(text: str) -> str:
    """Return why a board does not start, according to its boot ROM; "" if the ROM gives no reason."""
    sizes = _SMALL_FLASH.search(text)
    if sizes:
        flash = _megabytes(int(sizes[1]))
        firmware = _megabytes(int(sizes[2]))
        return (
            f"its flash has {flash}, and its firmware is for {firmware}: flash the one for {flash}"
        )
    for start_of_line, cause in _CAUSES:
        if re.search(f"^{start_of_line}", text, re.MULTILINE):
            return cause
    return ""


def _megabytes(kilobytes: int) -> str:
    """Return a size of flash for people, such as "4 MB"."""
    if kilobytes < 1024:
        return f"{kilobytes} KB"
    return f"{kilobytes // 1024} MB"


def _is_text(output: bytes) -> bool:
    """Return whether at least half of these bytes are printable; ends of lines do not count."""
    within_lines = output.translate(None, b"\r\n")
    printable = sum(byte in b"\t\x1b" or 32 <= byte < 127 for byte in within_lines)
    return 2 * printable >= len(within_lines)


def _most_frequent_line(text: str) -> str:
    """Return a sentence that quotes the line that came most often; "" if there is no line."""
    times_printed: Counter[str] = Counter()
    for line in text.split("\n"):
        if line.strip():
            times_printed[line.strip()] += 1
    if not times_printed:
        return ""
    [(shown, count)] = times_printed.most_common(1)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    sentence = f"it prints {shown!r}"
    if count > 1:
        sentence += " again and again"
    return sentence
