"""Modal's second router: sessions stay, thick ones are split, crowded homes are left."""

from __future__ import annotations

import pytest

from router.policy.modal import ModalV2
from tests.doubles.small_fleet import Row, busy, fleet, ranked, request


def test_new_sessions_go_by_requests_in_flight_and_kv_use() -> None:
    rows = [Row(inflight=3), Row(inflight=1, used_ratio=0.5), Row(inflight=2, used_ratio=0.1)]
    ranking = ranked(ModalV2(), fleet(*rows), request())
    assert (ranking.ranked[0], ranking.reason) == ("r2", "new")
    gone = ranked(ModalV2(), fleet(*rows), request(home_id="gone"))
    assert (gone.ranked[0], gone.reason) == ("r2", "rehome")


@pytest.mark.parametrize(("session_inflight", "reason"), [(0, "home"), (10, "home"), (11, "split")])
def test_a_session_over_twice_the_target_is_split(session_inflight: int, reason: str) -> None:
    asked = request(home_id="r0", session_inflight=session_inflight)
    ranking = ranked(ModalV2(), busy(11, 9, 8), asked)
    assert ranking.reason == reason
    assert ranking.ranked[0] == ("r0" if reason == "home" else "r2")


@pytest.mark.parametrize(("crowd", "reason"), [(10, "home"), (18, "home"), (19, "move")])
def test_a_home_over_twice_the_mean_and_two_is_left(crowd: int, reason: str) -> None:
    # 18 + 6 on three replicas: the mean is 8 and the limit 18; with 19 it is 18.67
    ranking = ranked(ModalV2(), busy(crowd, 4, 2), request(home_id="r0"))
    assert ranking.reason == reason
    assert ranking.ranked[0] == ("r0" if reason == "home" else "r2")
