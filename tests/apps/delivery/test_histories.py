"""Billed time is true time, whatever happens to subscribers and meters. `make soak` runs more seeds."""

from pathlib import Path

from tests.apps.delivery.histories import check_billed_time, check_late_tape


def test_billed_time_is_true_time_and_a_second_meter_changes_nothing(tmp_path: Path) -> None:
    check_billed_time(1, tmp_path)


def test_late_tape_is_corrected_and_forged_identifications_are_not_billed(tmp_path: Path) -> None:
    check_late_tape(1, tmp_path)
