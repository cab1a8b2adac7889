"""Tenants in a recording: sealed, and as far apart in a replay as they were."""

from __future__ import annotations

from router.dialect.base import SessionSource
from router.dialect.clients.salt import claimed
from router.recording.player import Player
from router.recording.records import Arrive, Header
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from router.tenants.model import scope_of
from tests.doubles.prompts import prompt
from tests.doubles.recordings import packed, recorded


def test_prompts_without_a_name_stay_with_their_tenant_in_a_replay() -> None:
    core, journal = recorded()
    for at in range(3):
        core.members.join(ReplicaSpec(f"r{at}", "127.0.0.1", 31_000 + at), 0.0)
        core.members.heard(f"r{at}", Event.PROBE_OK, 0.0)
    sessions: dict[str, set[str]] = {"acme-corp": set(), "other-inc": set()}
    links = [1, 2]
    for turn in range(6):
        links.append(10 + turn)
        for tenant, seen in sessions.items():
            facts = prompt(links, key="chain:same")
            facts.session_source = SessionSource.CHAIN
            claimed(facts, tenant, scope_of(tenant), is_isolated=False)
            ticket = core.arrive(facts, float(turn))
            seen.add(ticket.session_key)
            core.began(ticket, turn + 0.1)
            core.finish(ticket, Outcome.DONE, turn + 0.2)
    assert sessions == {name: {f"{name}/chain:same"} for name in sessions}
    rows = journal.records
    header = rows[0]
    assert isinstance(header, Header)
    assert list(Player(header).play(rows[1:])) == []
    arrivals = [row for row in rows if isinstance(row, Arrive)]
    assert len({row.tenant for row in arrivals}) == 2
    data = packed(rows)
    assert not [name for name in sessions if name.encode() in data or name in str(rows)]
