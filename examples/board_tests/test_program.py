"""The program computes the right features on the board."""

ONE = 16384  # tern keeps numbers from -1 to 1 as whole numbers, and this is its 1


def test_a_machine_that_stands_still_does_not_vibrate(repl):
    assert repl.evaluate("vibration.features([0] * 32)") == [ONE, 0, -ONE, -ONE, -ONE]


def test_a_shaking_machine_crosses_its_mean_with_every_sample(repl):
    *_, crossings = repl.evaluate("vibration.features([-900, 900] * 16)")
    assert crossings == ONE
