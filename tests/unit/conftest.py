"""What the tests of the host share."""

from hypothesis import HealthCheck, settings

# A machine that is busy with other things is no fault of what is tested.
settings.register_profile("tern", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tern")
