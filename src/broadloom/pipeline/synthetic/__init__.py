"""Tapes that were never recorded: made fast, in any size, with known truth; and faults planted into any tape."""
