"""GPU facts: known values, look-up by name."""

from __future__ import annotations

import pytest

from replica.hardware.gpus import B200, B300, GPUS, H200, gpu_named


def test_every_gpu_is_found_under_its_own_name() -> None:
    for name, gpu in GPUS.items():
        assert gpu_named(name) is gpu
        assert gpu_named(name.upper()) is gpu


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown GPU 'b100': known are b200, b300, h200"):
        gpu_named("b100")


def test_sizes_are_those_that_the_published_capacities_start_from() -> None:
    assert (B200.hbm_gb, B200.usable_gib) == (180.0, 179.0)
    assert (B300.hbm_gb, B300.usable_gib) == (288.0, 268.0)


def test_only_blackwell_runs_fp4() -> None:
    assert B200.has_fp4
    assert B300.has_fp4
    assert not H200.has_fp4
