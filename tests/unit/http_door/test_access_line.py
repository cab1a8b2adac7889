"""The line of a request carries the ids by which people look for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.obs.logs import Observer
from router.obs.metrics import Counts
from router.state.history import Outcome, RequestRecord

if TYPE_CHECKING:
    import pytest


def test_the_ids_of_a_request_stand_in_its_line(caplog: pytest.LogCaptureFixture) -> None:
    record = RequestRecord(
        session_key="s",
        session_source="header",
        dialect="openai-chat",
        model="m",
        is_stream=True,
        reason="home",
        arrived_s=1.0,
        prompt_tokens=10,
        ended_s=2.0,
        outcome=Outcome.DONE,
        request_id='my "id',
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    )
    with caplog.at_level(logging.INFO, "homeport.access"):
        observer = Observer(Counts(), access_log=True)
        observer.finished(record)
        record.request_id, record.trace_id = "", ""
        observer.finished(record)
    first, second = (entry.getMessage() for entry in caplog.records)
    assert first.endswith(" id='my \"id' trace=4bf92f3577b34da6a3ce929d0e0e4736")
    assert second.endswith(" id=- trace=-")
