"""The verdict on a board's answers, without a board."""

from terntools.boards import self_check


def test_a_board_passes_only_with_the_expected_end():
    begun = "begin store_8\nbegin store_16\n"
    assert self_check.faults(f"{begun}{self_check.expected()}\n") == []
    assert self_check.faults(begun)
    assert self_check.faults("") == ["loading the programs stopped it"]
    (fault,) = self_check.faults("end 0 of nothing\n")
    assert fault == "interpreter: even the plain twins compute something else than here"
