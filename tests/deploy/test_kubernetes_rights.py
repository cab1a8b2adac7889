"""The account that the router runs under in a cluster: just what its watch asks for."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml

from router.control.discovery import kubernetes
from tests.deploy.manifests import ROOT

RBAC: Final = ROOT / "deploy" / "k8s" / "rbac.yaml"


@pytest.fixture
def objects() -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(RBAC.read_text())}


def test_the_role_grants_what_the_code_asks_for_and_nothing_else(
    objects: dict[str, dict[str, Any]],
) -> None:
    [rule] = objects["Role"]["rules"]
    assert rule == {
        "apiGroups": [kubernetes.GROUP],
        "resources": [kubernetes.RESOURCE],
        "verbs": list(kubernetes.VERBS),
    }


def test_the_account_has_the_role_and_no_more(objects: dict[str, dict[str, Any]]) -> None:
    assert set(objects) == {"ServiceAccount", "Role", "RoleBinding"}
    binding = objects["RoleBinding"]
    role = objects["Role"]["metadata"]["name"]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": role,
    }
    account = objects["ServiceAccount"]["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert all("namespace" not in each["metadata"] for each in objects.values())
