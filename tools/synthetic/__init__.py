"""Synthetic tapes of any size with known ground truth, and fault injection into any tape."""
