"""The board starts tern, and its figures are as the hardware map expects."""


def test_the_board_answers_its_host(dut):
    dut.deploy()
    hello = dut.start()
    assert "tern" in hello.text


def test_a_figure_is_as_expected(expectation, measured):
    assert expectation.allows(measured), f"{measured:g}, expected {expectation}"
