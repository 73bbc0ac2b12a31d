"""What holds for all tests: how long an example of a property takes is no fact about the product."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
