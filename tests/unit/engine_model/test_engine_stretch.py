"""Stretches of steps: ends, counts and cuts agree with stepping one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from replica.hardware.profiles import profile_named
from sim.engine.job import Job
from sim.engine.pool import HostTier, KvPool
from sim.engine.requests import EngineRequest
from sim.engine.stretch import Stretch, stretch_of

FACTS = profile_named("b200-tp4-fp8")


def running(prompt_tokens: int, output_tokens: int, *, accept: float = 5.84) -> Job:
    request = EngineRequest("r", prompt_tokens, output_tokens)
    pool = KvPool(capacity_pages=1, host=HostTier(0))
    found = pool.find(request.pages, 0)
    job = Job(request, found, total_pages=1, accept=accept)
    job.holding = pool.pin(found)
    job.yielded()
    return job


@pytest.mark.parametrize("growth_s", [0.0, 1e-5, 0.02])
def test_steps_counted_in_closed_form_are_those_of_a_loop(growth_s: float) -> None:
    stretch = Stretch(100.0, first_s=0.02, growth_s=growth_s, n_steps=50)
    end_s, duration_s = 100.0, 0.02
    for step in range(1, 51):
        assert stretch.finished_by(stretch.end_of(step - 1)) == step - 1
        end_s += duration_s
        duration_s += growth_s
        assert stretch.end_of(step) == pytest.approx(end_s)
        middle_s = (stretch.end_of(step - 1) + stretch.end_of(step)) / 2
        assert stretch.finished_by(middle_s) == step - 1
    assert stretch.finished_by(stretch.end_s + 1.0) == 50


def test_a_cut_ends_with_the_step_in_progress() -> None:
    stretch = Stretch(0.0, first_s=1.0, growth_s=0.0, n_steps=10)
    stretch.cut(4.5)
    assert (stretch.n_steps, stretch.end_s) == (5, 5.0)
    stretch.cut(3.0)
    assert (stretch.n_steps, stretch.end_s) == (3, 3.0)
    stretch.cut(2.5)
    stretch.cut(7.0)
    assert stretch.n_steps == 3


def test_a_stretch_cut_at_its_start_has_no_step() -> None:
    stretch = Stretch(2.0, first_s=1.0, growth_s=0.1, n_steps=10)
    stretch.cut(2.0)
    assert (stretch.n_steps, stretch.end_s) == (0, 2.0)


@pytest.mark.parametrize("accept", [1.0, 1.5, 2.0, 5.84, 8.0])
@pytest.mark.parametrize("output_tokens", [1, 2, 7, 100, 147, 585, 5841])
def test_a_job_has_all_its_tokens_after_its_steps_and_not_before(
    accept: float, output_tokens: int
) -> None:
    job = running(1000, output_tokens, accept=accept)
    assert job.tokens_after(job.steps_total) == output_tokens
    assert job.tokens_after(0) == 1
    if job.steps_total:
        assert job.tokens_after(job.steps_total - 1) < output_tokens
    assert job.steps_total * accept == pytest.approx(output_tokens - 1, abs=accept)


def test_fractions_of_the_accept_length_are_carried_along() -> None:
    job = running(1000, 10_000)
    counts = [job.tokens_after(step) for step in range(101)]
    gains = {after - before for before, after in pairwise(counts)}
    assert gains == {5, 6}
    assert counts[100] == 585


def test_a_stretch_lasts_until_the_first_job_is_done() -> None:
    jobs = [running(50_000, 200), running(100_000, 100), running(2_000, 900)]
    held = sum(job.holding.pages for job in jobs if job.holding is not None)
    stretch, taken = stretch_of(jobs, FACTS, 7.0)
    assert taken == 3
    assert sum(job.holding.pages for job in jobs if job.holding is not None) == held + taken
    assert stretch.n_steps == jobs[1].steps_total
    mean = (50_001 + 100_001 + 2_001) / 3
    assert stretch.end_of(1) - 7.0 == pytest.approx(FACTS.step_s(3, mean))
    fifth = stretch.end_of(5) - stretch.end_of(4)
    assert fifth == pytest.approx(FACTS.step_s(3, mean + 4 * 5.84))


def test_a_token_on_the_way_leaves_fewer_steps() -> None:
    job = running(1_000, 147)
    assert job.steps_total == 25
    for _ in range(5):
        job.yielded()
    assert (job.tokens, job.steps_total) == (6, 25)
    job.yielded()
    assert (job.tokens, job.steps_total, job.tokens_after(24)) == (7, 24, 147)
