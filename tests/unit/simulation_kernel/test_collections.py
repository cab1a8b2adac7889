"""A run looks at no object that was there before it, and leaves the collector as it found it."""

from __future__ import annotations

import gc

import pytest

from sim.jobs.running import rare_collections


@pytest.mark.parametrize("is_frozen", [True, False])
def test_what_a_caller_has_frozen_stays_so(*, is_frozen: bool) -> None:
    thresholds = gc.get_threshold()
    gc.freeze() if is_frozen else gc.unfreeze()
    try:
        with rare_collections():
            assert gc.get_freeze_count() > 0
            assert gc.get_threshold() != thresholds
        assert (gc.get_freeze_count() > 0) is is_frozen
        assert gc.get_threshold() == thresholds
    finally:
        gc.freeze()  # as the whole run of the tests is
