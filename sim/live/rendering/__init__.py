"""From a request body to prompt bytes, pages and the answer: pure code of the emulator's own.

It shares nothing with what the router believes of a prompt, so that one checks the other.
"""
