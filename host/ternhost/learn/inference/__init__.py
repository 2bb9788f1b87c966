"""Protected inference: devices classify their own records and report the noisy result."""
