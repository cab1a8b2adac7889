"""Tables of the page: all figures side by side, and one figure over the points of a sweep."""

__all__: list[str] = []
