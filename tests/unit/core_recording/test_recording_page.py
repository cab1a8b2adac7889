"""The format's page names every record, its number and its fields, in their order."""

from __future__ import annotations

import re
from pathlib import Path

from router.recording import records
from router.recording.codec import VERSION

PAGE = (Path(__file__).parents[3] / "docs" / "recording.md").read_text()


def test_the_page_has_every_record_as_it_is() -> None:
    documented = {
        name: (int(number), tuple(re.findall(r"`(\w+)`", fields)))
        for name, number, fields in re.findall(
            r"^\| `([A-Z]\w+)` \| (\d+) \| (.+) \|$", PAGE, re.MULTILINE
        )
    }
    real = {
        name: (kind.__struct_config__.tag, kind.__struct_fields__)
        for name, kind in vars(records).items()
        if isinstance(kind, type) and issubclass(kind, records._Record) and name != "_Record"
    }
    assert documented == real
    assert f"## The format, version {VERSION}\n" in PAGE
