"""What all tests share."""

from hypothesis import settings

# A busy machine is no mistake: how long one example takes is not judged.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
