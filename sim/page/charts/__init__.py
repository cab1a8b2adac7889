"""One chart a file; each answers a section of the page, or says what it lacks."""

from __future__ import annotations
