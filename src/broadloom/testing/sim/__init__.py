"""Deterministic simulation: virtual network and clock, faults, checks, scenarios."""
