"""Files of instruments of many kinds: each gives the energy that is in it, or is refused."""

import pytest
from harness import meter_kinds
from harness.meter_kinds import KINDS

from ternbench import energy
from ternbench.meters import choice
from ternhost.errors import TernError


def measured(kind, folder):
    """The energy of a report in the file of a kind."""
    path = folder / kind.file
    path.write_bytes(kind.data)
    chosen = choice.parse(f"csv:{path}{kind.settings}")
    trace = chosen.open().read()
    active_low = chosen.settings.get("active_low", False)
    return energy.measure(trace, 1, "x", active_low=active_low)


def named(kinds):
    return [pytest.param(kind, id=kind.name) for kind in kinds]


@pytest.mark.parametrize("kind", named(kind for kind in KINDS if kind.refused is None))
def test_a_file_gives_its_energy(kind, tmp_path):
    report = measured(kind, tmp_path)
    assert report.net == pytest.approx(meter_kinds.MICROJOULES, rel=0.01)


@pytest.mark.parametrize("kind", named(kind for kind in KINDS if kind.refused is not None))
def test_a_file_that_leaves_something_open_is_refused(kind, tmp_path):
    with pytest.raises(TernError) as refusal:
        measured(kind, tmp_path)
    assert kind.refused in f"{refusal.value.message} {refusal.value.hint}"


def test_there_are_60_kinds_of_files_or_more():
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 60
