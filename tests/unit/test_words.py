"""Each name of an option has one help text, wherever it stands."""

import pytest

from terngateway.site_fleet import SiteFleet
from ternhost.cli.running import PlaceOptions
from ternhost.extensions import option_classes
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.schedule import Schedule
from ternhost.options import options_of
from ternhost.privacy import mechanisms
from ternhost.run.options import classes_of_run
from ternhost.words import HELP

MOST_CHARACTERS = 80


def declared_options():
    """Every option of a dataclass, and every option of a mechanism."""
    classes = [learner.Options for learner in ALGORITHMS.values()]
    classes += [Schedule, *classes_of_run(), *option_classes(), PlaceOptions, SiteFleet]
    for each in classes:
        yield from options_of(each)
    for mechanism in mechanisms.REGISTRY.values():
        yield from mechanism.options


def help_by_name():
    """The help texts of each name."""
    texts = {}
    for each in declared_options():
        texts.setdefault(each.name, set()).add(each.help)
    return texts


@pytest.mark.parametrize(("name", "texts"), help_by_name().items())
def test_a_name_has_one_help_text(name, texts):
    assert len(texts) == 1
    assert texts == {HELP.get(name, *texts)}


@pytest.mark.parametrize(("name", "texts"), help_by_name().items())
def test_a_help_text_fits_a_line(name, texts):
    assert all(len(text) <= MOST_CHARACTERS for text in texts)
