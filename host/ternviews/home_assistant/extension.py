"""What Home Assistant adds to the core: a guest of brokers, and an observer of served runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ternhost.extensions import Extension

if TYPE_CHECKING:
    from ternhost.reach.broker.guests import Guest
    from ternhost.run.observer import Observer


class HomeAssistantExtension(Extension):
    """`tern broker config --guest home-assistant` and `tern serve --home-assistant`."""

    name = "home-assistant"
    package = "ternviews"

    @property
    def guests(self) -> Sequence[Guest]:
        from ternviews.home_assistant.guest import GUEST

        return (GUEST,)

    @property
    def observers(self) -> Sequence[type[Observer]]:
        from ternviews.home_assistant.observer import HomeAssistant

        return (HomeAssistant,)


HOME_ASSISTANT = HomeAssistantExtension()
