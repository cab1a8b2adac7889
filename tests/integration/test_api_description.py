"""What the control API says of itself is OpenAPI, and every call is as it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.doubles.agents import chat_body
from tests.doubles.processes import Running, emulate, end, running, until

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "a/b ü"
QUOTED = "a%2Fb%20%C3%BC"


@pytest.fixture(scope="module")
def replica() -> Iterator[Running]:
    started = emulate()
    try:
        started.wait_ready()
        yield started
    finally:
        end(started)


@pytest.fixture
def router() -> Iterator[Running]:
    with running("serve", "--port", "0", "--admin-port", "0", "--probe-s", "0.1") as started:
        yield started


@pytest.fixture
def admin(router: Running, replica: Running) -> Iterator[httpx2.Client]:
    """A control API whose fleet is r1 and r2, both ready."""
    with httpx2.Client(base_url=router.admin_url, timeout=10) as client:
        for name in ("r1", "r2"):
            client.post("/replicas", json={"url": replica.url, "id": name})
        until(lambda: set(states(client).values()) == {"ready"})
        yield client


def states(admin: httpx2.Client) -> dict[str, str]:
    return {row["id"]: row["state"] for row in admin.get("/fleet").json()["replicas"]}


def row(admin: httpx2.Client, name: str) -> dict[str, Any]:
    return next(r for r in admin.get("/fleet").json()["replicas"] if r["id"] == name)


def ask(router: Running, key: str = KEY, text: str = "hello") -> str:
    """One turn of a session; answers where it was served and why."""
    answer = httpx2.post(
        f"{router.url}/v1/chat/completions",
        content=chat_body(text, stream=False),
        headers={"content-type": "application/json", "x-session-id": key.encode()},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text
    return f"{answer.headers['x-homeport-replica']} {answer.headers['x-homeport-reason']}"


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        found: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return dict(found)
    return node


def checked(document: dict[str, Any], operation: dict[str, Any], answer: httpx2.Response) -> None:
    """An answer is as the description says: its status is there, its body has that shape and no more."""
    described = operation["responses"]
    assert str(answer.status_code) in described, (
        operation["operationId"],
        answer.status_code,
        answer.text,
    )
    content = described[str(answer.status_code)].get("content", {})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not content:
        assert answer.content == b""
        return
    assert kind in content
    if kind == "application/json":
        schema = {**content[kind]["schema"], "components": document["components"]}
        OAS31Validator(schema).validate(answer.json())
        exact(document, content[kind]["schema"], answer.json(), operation["operationId"])


def exact(document: dict[str, Any], schema: dict[str, Any], value: object, where: str) -> None:
    """No field is there that is not described."""
    schema = resolved(document, schema)
    for option in schema.get("anyOf", ()):
        if value is not None and "$ref" in option:
            exact(document, option, value, where)
    if isinstance(value, dict) and "properties" in schema:
        assert value.keys() <= schema["properties"].keys(), where
        for key, inner in value.items():
            exact(document, schema["properties"][key], inner, f"{where}.{key}")
    for inner in value if isinstance(value, list) else ():
        exact(document, schema.get("items", {}), inner, where)


GOOD_BODIES: dict[str, dict[str, Any]] = {
    "change": {"weight": 2, "inflight_max": 4, "why": "a test"},
    "drain": {"deadline_s": 500, "remove": False},
    "pin": {"replica": "r1", "for_s": 60},
    "move": {"replica": "r1"},
}


def test_the_description_is_openapi_and_every_call_in_it_is_as_it_says(
    router: Running, admin: httpx2.Client, replica: Running
) -> None:
    document = admin.get("/openapi.json").json()
    OpenAPIV31SpecValidator(document).validate()
    assert json.dumps(document) == json.dumps(admin.get("/openapi.json").json())
    ask(router)
    ask(router)
    until(lambda: row(admin, "r1")["load"] is not None)
    admin.patch("/replicas/r1", json={"weight": 3, "why": "so that there is a change"})
    bodies = GOOD_BODIES | {"register": {"url": replica.url, "id": "r3", "lease_s": 60}}
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) == len({operation["operationId"] for _, _, operation in operations}) > 15
    # What drains, unpins and removes comes last, so that every good answer is seen.
    operations.sort(key=lambda row: (row[0] == "delete", row[2]["operationId"] == "drain"))
    seen: set[tuple[str, int]] = set()
    for known in (True, False):
        for method, template, operation in operations:
            name = operation["operationId"]
            target = {"id": "r3" if name == "heartbeat" else "r1", "key": QUOTED}
            path = template.format(**(target if known else {"id": "nobody", "key": "nobody"}))
            for body in (bodies.get(name), {"nonsense": 1}):
                content = (
                    None if body is None or "requestBody" not in operation else json.dumps(body)
                )
                if content is None and body is not None:
                    continue  # it takes no body
                answer = admin.request(method, path, content=content)
                checked(document, operation, answer)
                seen.add((name, answer.status_code))
    for name, status in (
        ("pin", 200),
        ("pin", 400),
        ("pin", 404),
        ("remove", 204),
        ("forget", 200),
    ):
        assert (name, status) in seen
    good = {name for name, status in seen if status < 300}
    assert good == {operation["operationId"] for _, _, operation in operations}


def test_every_described_change_names_its_author_by_headers(admin: httpx2.Client) -> None:
    document = admin.get("/openapi.json").json()
    for methods in document["paths"].values():
        for operation in methods.values():
            names = {resolved(document, row)["name"] for row in operation["parameters"]}
            takes_reason = "x-homeport-reason" in names
            assert takes_reason == ("x-homeport-actor" in names)
            body = operation.get("requestBody")
            if body is not None:
                schema = resolved(document, body["content"]["application/json"]["schema"])
                assert schema["additionalProperties"] is False
                assert ("why" in schema["properties"]) == takes_reason


def test_the_description_needs_the_key_and_says_which_calls_do_not(replica: Running) -> None:
    key = "hp-a-key-of-the-control-port-0000"
    flags = ("--admin-key", key, "--port", "0", "--admin-port", "0", "--replica", replica.url)
    with (
        running("serve", *flags) as router,
        httpx2.Client(base_url=router.admin_url) as admin,
    ):
        assert admin.get("/openapi.json").status_code == 401
        assert admin.put("/sessions/s/pin", json={"replica": "r1"}).status_code == 401
        document = admin.get("/openapi.json", headers={"x-api-key": key}).json()
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                answer = admin.request(method, path.format(id="r1", key="s"))
                if operation.get("security") == []:
                    assert answer.status_code == 200
                elif path != "/metrics":  # open unless metrics_open says otherwise
                    assert answer.status_code == 401
                    checked(document, operation, answer)
