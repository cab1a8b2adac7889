"""Settings of the sources: what is taken, and one clear line for each mistake."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from router.control.discovery.access import demand_extra
from router.errors import ConfigError
from router.guards import check_files
from router.settings import load

if TYPE_CHECKING:
    from pathlib import Path


def test_all_of_them_are_taken_from_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.toml"
    path.write_text(
        '[discovery]\nfile = "f.toml"\nnameserver = "[::1]:53"\nkubernetes_services = ["a"]\n'
        "kubernetes_port = 30000\nleave_drain_s = 20\n"
    )
    monkeypatch.setenv("HOMEPORT_DISCOVERY__DNS", "dns://a.b:1, srv://_http._tcp.c")
    found = load({}, path).settings.discovery
    assert found.dns == ("dns://a.b:1", "srv://_http._tcp.c")
    assert (found.file, found.nameserver, found.leave_drain_s) == ("f.toml", "[::1]:53", 20.0)
    assert (found.kubernetes_services, found.kubernetes_port) == (("a",), "30000")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('dns = ["dns://a"]', r"discovery\.dns = 'dns://a' .*neither dns://NAME:PORT nor srv://"),
        ('dns = ["srv://a:1"]', "neither"),
        ('dns = ["dns://a:0"]', "neither"),
        ('dns = ["dns://a:99999"]', "neither"),
        ('dns = ["dns://a:1/x"]', "neither"),
        ('dns = ["dns://u:p@a:1"]', "neither"),
        ('dns = ["dns://a b:1"]', "neither"),
        ('dns = ["http://a:1"]', "neither"),
        ('dns = "dns://a:1"\nnameserver = "ns"', "ADDRESS:PORT"),
        ('dns = "dns://a:1"\nnameserver = "ns.test:53"', "ADDRESS:PORT"),
        ('dns = "dns://a:1"\nnameserver = "10.0.0.1:0"', "ADDRESS:PORT"),
        ('nameserver = "10.0.0.1:53"', "nameserver belongs to dns"),
        ('kubernetes_services = ["A"]', "kubernetes_services = 'A'"),
        ('kubernetes_services = ["a,b"]\nx = 1', "discovery"),
        ('kubernetes_port = "http"', "belong to kubernetes_services"),
        ('kubernetes_services = ["a"]\nkubernetes_port = 70000', "from 1 to 65535"),
        ('kubernetes_services = ["a"]\nkubernetes_port = 0', "from 1 to 65535"),
        ('kubernetes_services = ["a"]\nkubernetes_port = "a port"', "neither a port's number"),
        ('kubernetes_services = ["a"]\nkubernetes_port = true', "kubernetes_port = True"),
        ('kubernetes_services = ["a"]\nkubernetes_namespace = "../x"', "kubernetes_namespace"),
        ('scheme = "ftp"', "discovery.scheme"),
        ("leave_drain_s = 0", "discovery.leave_drain_s"),
    ],
)
def test_a_mistake_names_its_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "h.toml"
    path.write_text(f"[discovery]\n{text}\n")
    with pytest.raises(ConfigError, match=said):
        load({}, path)


def test_the_file_is_read_before_a_start(tmp_path: Path) -> None:
    path, replicas = tmp_path / "h.toml", tmp_path / "r.toml"
    path.write_text(f'[discovery]\nfile = "{replicas}"\n')
    settings = load({}, path).settings
    with pytest.raises(ConfigError, match=r"replicas file .*r\.toml: No such file"):
        check_files(settings)
    replicas.write_text("[[replica]]\nurl = 'http://h:1'\n")
    check_files(settings)


def test_a_missing_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    demand_extra()
    for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes_asyncio"]:
        monkeypatch.delitem(sys.modules, name)
    # What an import finds where the package is not installed.
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    with pytest.raises(ConfigError, match=r"pip install homeport\[kubernetes\]"):
        demand_extra()
