"""For all tests: a slow moment of the machine is no failure of a property."""

from hypothesis import settings

settings.register_profile("weft", deadline=None)
settings.load_profile("weft")
