"""A round that gateways are asked for: each for its own devices, and what all of them have told together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ternhost.count.members import Integers, Members, integers
from ternhost.count.rounds import (
    COMPLETE,
    DEADLINE,
    QUORUM,
    Cohort,
    CohortInFlight,
    Refusal,
    Round,
    RoundResult,
)
from ternhost.reach.driver import Terms
from ternhost.reach.gateway import messages
from ternhost.reach.gateway.answers import Told, answers_of, check, together, without_names
from ternhost.reach.gateway.frames import LENGTH, MessageError
from ternhost.reach.gateway.messages import Answer, Ask, Refused


def parts(
    asked: Round, gateways: Mapping[str, Integers], terms: Terms, categories: Sequence[int] | None = None
) -> dict[str, Ask]:
    """The question to each gateway that has devices in a round; gateways: the devices of each, ascending. categories:
    those of each cohort of hashed answers, 0 of others, where results of single devices are wanted.
    """
    wanted = [np.sort(integers(cohort.devices)) for cohort in asked.cohorts]
    found = {}
    for name, devices in gateways.items():
        members = Members(devices)
        own = [of_cohort[members.find(of_cohort) >= 0] for of_cohort in wanted]
        there = [i for i, ids in enumerate(own) if len(ids)]
        if there:
            cohorts = [Cohort(asked.cohorts[i].body, own[i]) for i in there]
            sizes = [] if categories is None else [categories[i] for i in there]
            single = categories is not None
            found[name] = Ask(asked.number, cohorts, single, sizes, terms.quorum, terms.deadline)
    return found


class RoundAtGateways:
    """What was asked of whom (`asks`, by gateway), and what was answered: nothing counts twice."""

    def __init__(self, asked: Round, asks: Mapping[str, Ask], now: float) -> None:
        self.number = asked.number
        self.begun = now
        self.asks = dict(asks)
        self.asked = sum(len(cohort.devices) for cohort in asked.cohorts)
        self._quorum = asked.quorum
        self._cohorts = asked.cohorts
        self._devices = [Members(cohort.devices) for cohort in asked.cohorts]
        self._told: dict[str, list[Told]] = {}
        self._refusals: dict[int, Refusal] = {}
        self._ended: set[str] = set()
        self.under_way: dict[str, int] = {}  # reports that gateways have told of so far
        self.outstanding = set(self.asks)  # gateways that have neither answered nor been given up
        self.refused: dict[str, Refused] = {}

    # In a store

    def exchange(self, gateway: str, answer: bytes = b"") -> bytes:
        """What a store keeps of a gateway in this round: what it was asked, and then what it has answered."""
        ask = self.asks[gateway].encode()
        return LENGTH.pack(len(ask)) + ask + answer

    @classmethod
    def stored(cls, asked: Round, exchanges: Mapping[str, bytes], now: float) -> RoundAtGateways:
        """As a store has it, with the answers so far. Raises MessageError for what another version has kept."""
        ends = {name: LENGTH.size + LENGTH.unpack_from(kept)[0] for name, kept in exchanges.items()}
        asks = {name: messages.decode_ask(kept[LENGTH.size : ends[name]]) for name, kept in exchanges.items()}
        round_ = cls(asked, asks, now)
        for name, kept in exchanges.items():
            if answer := kept[ends[name] :]:
                message = messages.decode(answer)
                if not isinstance(message, Answer):
                    raise MessageError("this is no answer of a gateway")
                round_.take(name, message, round_.checked(name, message))
        return round_

    # Answers

    def checked(self, gateway: str, answer: Answer) -> list[Told]:
        """What an answer tells of each cohort. Raises MessageError where something speaks against it."""
        return check(answer, self.asks[gateway])

    def take(self, gateway: str, answer: Answer, told: list[Told]) -> None:
        """Count an answer that was checked, and that the store has."""
        if gateway not in self._told:
            self._told[gateway] = told
            self._ended.add(answer.ended)
            self._refusals |= without_names(self.number, answer.refusals, len(self._refusals) + 1)
            self.give_up(gateway)

    def give_up(self, gateway: str) -> None:
        """Expect nothing of a gateway any more."""
        self.outstanding.discard(gateway)
        self.under_way.pop(gateway, None)

    @property
    def reports(self) -> int:
        """Reports that count."""
        return sum(one.reports for told in self._told.values() for one in told)

    @property
    def so_far(self) -> int:
        """The same, with those that gateways say they have."""
        return self.reports + sum(self.under_way.values())

    @property
    def unreached(self) -> int:
        """How many devices are on no gateway."""
        return self.asked - sum(ask.asked for ask in self.asks.values())

    def ended(self, waiting: Iterable[str]) -> str | None:
        """How the round has ended if only these gateways are waited for; None where it goes on."""
        if self.reports >= self._quorum and self.reports < self.asked:
            return QUORUM
        if self.outstanding.intersection(waiting):
            return None
        return next((how for how in (DEADLINE, QUORUM) if how in self._ended), COMPLETE)

    def result(self, ended: str) -> RoundResult:
        """What it has told."""
        at: list[tuple[int, Cohort, Told]] = [
            (self._index(cohort), cohort, told)
            for name, of_gateway in self._told.items()
            for cohort, told in zip(self.asks[name].cohorts, of_gateway, strict=True)
        ]
        cohorts = []
        for index, asked in enumerate(self._cohorts):
            counted = CohortInFlight(asked.body, len(asked.devices))
            single = []
            supports = None
            for cohort, told in ((cohort, told) for i, cohort, told in at if i == index):
                counted.counts += told.counts.reshape(-1)
                counted.reports += told.reports
                if told.results is not None:
                    single.append(answers_of(integers(cohort.devices), told.results))
                if told.supports is not None:
                    supports = told.supports + (0 if supports is None else supports)
            cohorts.append(replace(counted.result(), answers=together(single), supports=supports))
        return RoundResult(self.number, ended, self.asked, self.reports, dict(self._refusals), cohorts)

    def _index(self, cohort: Cohort) -> int:
        # Two cohorts may be asked the same; their devices are never the same.
        first = integers(cohort.devices[:1])
        return next(
            i
            for i, own in enumerate(self._cohorts)
            if own.body == cohort.body and self._devices[i].find(first)[0] >= 0
        )
