"""Measurement: the threshold sweep and calibration (a later release fills it)."""
