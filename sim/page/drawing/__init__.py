"""What every chart is drawn with: markup, scales, units and frames."""

from __future__ import annotations
