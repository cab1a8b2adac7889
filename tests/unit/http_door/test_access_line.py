"""The line of a request: the ids by which people look for it, and how lines get out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from router.obs.access import DELAY_S, AccessLog
from router.state.history import Outcome, RequestRecord

if TYPE_CHECKING:
    from collections.abc import Callable


class Log:
    """An access log whose moments come when the test says so."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.asked: list[tuple[float, Callable[[], None]]] = []
        self.now_s = 1_700_000_000.25
        self.log = AccessLog(
            lambda delay_s, call: self.asked.append((delay_s, call)),
            write=self.written.append,
            clock_s=lambda: self.now_s,
        )

    def moment(self) -> list[str]:
        """The delay is over; the lines that were written since the last one."""
        for _, call in self.asked:
            call()
        self.asked.clear()
        lines = "".join(self.written).splitlines()
        self.written.clear()
        return lines


def _record() -> RequestRecord:
    return RequestRecord(
        session_key="s",
        session_source="header",
        dialect="openai-chat",
        model="a model",
        is_stream=True,
        reason="home",
        arrived_s=1.0,
        prompt_tokens=10,
        replica_id="r1",
        began_s=1.5,
        ended_s=2.0,
        outcome=Outcome.DONE,
        request_id='my "id',
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    )


def test_a_line_tells_the_whole_request() -> None:
    log, record = Log(), _record()
    record.reported_prompt_tokens, record.reported_cached_tokens, record.output_tokens = 12, 0, 7
    record.predicted_cached_tokens, record.tenant = 3, "t"
    log.log.finished(record)
    (line,) = log.moment()
    time, rest = line.split(" ", 1)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:20\.250", time)
    assert rest == (
        "INFO homeport.access request session=s source=header tenant=t dialect=openai-chat"
        " model='a model' stream=1 replica=r1 reason=home tries=1 prompt=12 predicted=3 cached=0"
        " output=7 ttft_s=0.500 duration_s=1.000 outcome=done error=-"
        " id='my \"id' trace=4bf92f3577b34da6a3ce929d0e0e4736"
    )


def test_what_is_not_known_is_a_dash() -> None:
    log, record = Log(), _record()
    record.request_id = record.trace_id = ""
    record.began_s = None
    log.log.finished(record)
    log.log.turned_away(code="bad-api-key", dialect="", target="/v1/a b", tenant="")
    first, second = log.moment()
    assert " tenant=- " in first
    assert " prompt=- predicted=0 cached=- output=- ttft_s=- " in first
    assert first.endswith(" error=- id=- trace=-")
    assert second.endswith("turned-away code=bad-api-key dialect= tenant=- target='/v1/a b'")


def test_lines_wait_for_each_other_but_not_long_and_not_without_bound() -> None:
    log, record = Log(), _record()
    log.log.finished(record)
    log.now_s += 1.0
    log.log.finished(record)
    assert [delay_s for delay_s, _ in log.asked] == [DELAY_S]
    assert not log.written
    first, second = log.moment()
    assert first.partition(" ")[0] < second.partition(" ")[0]
    for _ in range(10_000):
        log.log.finished(record)
    n_before = "".join(log.written).count("\n")
    assert 9_000 <= n_before < 10_000
    assert len(log.moment()) == 10_000


def test_a_log_that_ends_writes_what_waits() -> None:
    log = Log()
    log.log.finished(_record())
    log.log.flush()
    log.log.flush()
    assert len(log.written) == 1
