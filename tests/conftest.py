"""Hypothesis without its time limit for one example: a busy machine is no defect."""

from hypothesis import settings

settings.register_profile("trivet", deadline=None)
settings.load_profile("trivet")
