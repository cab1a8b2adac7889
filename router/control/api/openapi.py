"""The control API's description, OpenAPI 3.1, made of the tables and shapes that serve it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Final

import msgspec

from router.control.api.answers import status_of
from router.control.api.changes import ACTOR_HEADER, REASON_HEADER
from router.control.api.shapes import ErrorAnswer
from router.control.api.table import CALLS, NEW_TOKENS_MAX, SESSIONS_MAX, Call

_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "id": {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "a replica's id",
        "schema": {"type": "string"},
    },
    "key": {
        "name": "key",
        "in": "path",
        "required": True,
        "description": "a session's key, percent-encoded",
        "schema": {"type": "string"},
    },
    "limit": {
        "name": "limit",
        "in": "query",
        "description": "how many at most",
        "schema": {"type": "integer", "minimum": 1, "maximum": SESSIONS_MAX, "default": 100},
    },
    "new_tokens": {
        "name": "new_tokens",
        "in": "query",
        "description": "tokens that the turn adds behind the session's last prompt and answer",
        "schema": {"type": "integer", "minimum": 0, "maximum": NEW_TOKENS_MAX, "default": 0},
    },
    "actor": {
        "name": ACTOR_HEADER,
        "in": "header",
        "description": "who makes the change; the client's address if not given",
        "schema": {"type": "string", "maxLength": 128},
    },
    "reason": {
        "name": REASON_HEADER,
        "in": "header",
        "description": "why, where the body does not say so",
        "schema": {"type": "string", "maxLength": 500},
    },
}


def description(version: str) -> dict[str, Any]:
    """The whole document, for this version of homeport."""
    kinds: list[type] = [ErrorAnswer]
    for call in CALLS:
        shapes = (call.body, *call.answers.values())
        kinds += [kind for kind in shapes if isinstance(kind, type) and kind is not dict]
    kinds = list(dict.fromkeys(kinds))
    references, schemas = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schema_of = dict(zip(kinds, references, strict=True))
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for call in CALLS:
        paths[call.path][call.method.lower()] = _operation(call, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "homeport's control API",
            "version": version,
            "description": "Times are seconds, sizes tokens. What operators change is kept at /changes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}, {"header": []}, {}],
        "paths": dict(paths),
        "components": {
            "schemas": schemas,
            "parameters": _PARAMETERS,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the router's admin_key, where it has one",
                },
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(call: Call, schema_of: dict[type, dict[str, Any]]) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", call.path)
    names += ["limit"] if call.has_limit else []
    names += ["new_tokens"] if call.has_new_tokens else []
    names += ["actor", "reason"] if call.is_change else []
    operation: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.summary,
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in names],
        "responses": _responses(call, schema_of),
    }
    if call.body is not None:
        operation["requestBody"] = {
            "required": call.is_body_needed,
            "content": {_JSON: {"schema": schema_of[call.body]}},
        }
    if call.is_open:
        operation["security"] = []
    return operation


def _responses(call: Call, schema_of: dict[type, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, shape in call.answers.items():
        answer: dict[str, Any] = {"description": call.summary}
        if isinstance(shape, str):
            answer["content"] = {shape: {"schema": {"type": "string"}}}
        elif shape is not None:
            answer["content"] = {_JSON: {"schema": schema_of.get(shape, {"type": "object"})}}
        found[str(status)] = answer
    codes = [*call.codes, "expectation-failed", "internal"]
    if not call.is_open:
        codes.append("bad-api-key")
    if call.body is not None:
        codes += ["too-large", "request-timeout"]
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for code in codes:
        by_status[status_of(code)].append(code)
    error = {_JSON: {"schema": schema_of[ErrorAnswer]}}
    for status, names in sorted(by_status.items()):
        found[str(status)] = {"description": ", ".join(names), "content": error}
    return found
