"""The dialect of ``/v1/responses``."""
