"""The public names of broadloom.testing."""

import pytest

import broadloom.testing


@pytest.mark.parametrize("name", broadloom.testing.__all__)
def test_export_resolves_to_class_of_that_name(name: str) -> None:
    assert getattr(broadloom.testing, name).__name__ == name


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        broadloom.testing.Nonsense  # noqa: B018
