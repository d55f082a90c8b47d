"""The simulated world: virtual network and clock, faults, checkers, scenarios."""
