"""What one kind of replica cannot show, and why; the contract holds for both in all else."""

from __future__ import annotations

from typing import Final

import pytest

from tests.contract.conftest import EMULATED, SGLANG

EXCEPTIONS: Final[dict[tuple[str, str], str]] = {
    (EMULATED, "text only"): "Kimi reads images, and so does the emulated replica of it",
    (SGLANG, "no other families"): "it exports many more metrics than a dashboard of ours uses",
}


def skip_where_excepted(kind: str, topic: str) -> None:
    """Skip the test, with the reason, where this kind is excepted from the topic."""
    reason = EXCEPTIONS.get((kind, topic))
    if reason is not None:
        pytest.skip(reason)
