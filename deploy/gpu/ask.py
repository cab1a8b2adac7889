"""What the GPU check asks one engine, over HTTP: ``python ask.py URL CASE FOLDER``.

Prints a line for each thing that holds or does not, and ends with 1 if one does not. ``FOLDER`` keeps the
texts of the plain case, to be compared: that is only noted, since dummy weights give logits so close that
another batch shape may turn a word. Standard library only.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

TOKENS: Final = 64
SHORT_TOKENS: Final = 16
FILL: Final = 24
"""Prompts between the first and its repetition: more than the small device pool holds."""
WORDS: Final = 1_500
CALL_S: Final = 60.0


class Engine:
    """One engine's HTTP server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> dict[str, Any]:
        """A JSON answer."""
        with urllib.request.urlopen(self.url + path, timeout=CALL_S) as answer:
            return dict(json.load(answer))

    def chat(self, text: str, tokens: int = TOKENS) -> tuple[str, int, int]:
        """The answer's text, the cached tokens and the made ones."""
        body = {
            "model": "gpu-check",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
        }
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=CALL_S) as answer:
            said = json.load(answer)
        usage = said["usage"]
        details = usage.get("prompt_tokens_details") or {}
        text = said["choices"][0]["message"].get("content") or ""
        return text, int(details.get("cached_tokens") or 0), int(usage["completion_tokens"])


def prompt(number: int) -> str:
    """A long one, unlike the others from its first word on."""
    return f"{number} " + " ".join(f"{number * 7 + n % 97}" for n in range(WORDS))


def compared(folder: Path, case: str, texts: list[str]) -> str:
    """How many greedy answers are those of the plain case."""
    kept = folder / "plain.json"
    if case == "plain":
        kept.write_text(json.dumps(texts))
        return "kept, for the others to be compared with"
    if not kept.exists():
        return "nothing to compare with: the plain case gave none"
    same = sum(a == b for a, b in zip(json.loads(kept.read_text()), texts, strict=True))
    return f"{same} of {len(texts)} are the plain case's"


def main(words: list[str]) -> int:
    """Ask, and say what held."""
    url, case, folder = words[0], words[1], Path(words[2])
    engine, held = Engine(url), True

    def tell(name: str, is_well: object, what: str) -> None:
        nonlocal held
        held = held and bool(is_well)
        print(f"  {'holds ' if is_well else 'FAILS '} {name}: {what}", flush=True)

    info = engine.get("/server_info")
    print(f"  pool {info.get('max_total_num_tokens')} tokens, SGLang {info.get('version')}")
    texts = [engine.chat(prompt(number)) for number in range(3)]
    tell("generation", all(made == TOKENS for _, _, made in texts), f"{TOKENS} tokens each")
    _, cached, _ = engine.chat(prompt(0))
    tell("prefix cache", cached > 0, f"{cached} tokens of a repeated prompt were cached")
    print(f"  noted  greedy answers: {compared(folder, case, [text for text, _, _ in texts])}")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: engine.chat(prompt(100 + n), SHORT_TOKENS)[2], range(FILL)))
    tell("eight at once", made == [SHORT_TOKENS] * FILL, f"{len(made)} answers")
    _, cached, _ = engine.chat(prompt(0))
    has_host = "hicache" in case
    what = f"{cached} tokens cached after {FILL} other prompts"
    tell("host tier" if has_host else "eviction", (cached > 0) is has_host, what)
    row = engine.get("/v1/loads?include=all")["loads"][0]
    drafted = row.get("speculative") or {}
    if "dflash" in case:
        length = drafted.get("accept_length")
        tell("DFlash", length is not None and length >= 1.0, f"accept length {length}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
