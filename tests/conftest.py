"""What holds for all tests: neither the time that an example of a property takes nor chance decides.

The examples of a property are the same in every run. `pytest --hypothesis-profile=chance` looks for others.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("chance", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", settings.get_profile("chance"), derandomize=True)
settings.load_profile("patient")
