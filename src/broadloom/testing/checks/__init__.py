"""The guarantees of Broadloom, checked: in simulations, in local clusters and in chaos runs."""
