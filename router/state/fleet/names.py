"""From the model that a client names to the one that a replica serves.

A name is, in this order: an alias, a served model, a loaded adapter (alone, or as
``model:adapter``), or what a pattern of the aliases covers. No name, or SGLang's own stand-in for
none, is the default model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from router.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.state.fleet.fleet import Fleet

UNNAMED: Final = ("", "default")
"""What a request says that does not care; the latter is SGLang's default of the member."""

_KNOWN_MAX: Final = 1_000
_LISTED_MAX: Final = 40
_SHOWN: Final = 200
"""Characters of what a client sent that an error repeats."""


class Served(NamedTuple):
    """What a name stands for: a model of the fleet, with an adapter or without ("")."""

    base: str
    adapter: str = ""

    @property
    def full(self) -> str:
        """As the engine reads it: the adapter behind a colon."""
        return f"{self.base}:{self.adapter}" if self.adapter else self.base


class _Offer(NamedTuple):
    """What the fleet serves: models, and adapters by their own name.

    ``says_all``: some replica is ready, and every one that is has said what it serves.
    """

    n_changes: int
    models: tuple[str, ...]
    adapters: Mapping[str, Served]
    full: frozenset[str]
    says_all: bool


class Choice(NamedTuple):
    """What to look for in the fleet, and what the body must name instead (None: as it does)."""

    model: str
    sent: str | None = None


class ModelNames:
    """Resolves names against the live fleet; what was found is kept until the fleet changes."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        aliases: Mapping[str, str] | None = None,
        default_model: str | None = None,
    ) -> None:
        """``aliases`` by exact name, or by the beginning of one with ``*`` behind it."""
        self._fleet = fleet
        self._aliases = dict(aliases or {})
        patterns = [name[:-1] for name in self._aliases if name.endswith("*")]
        self._patterns = sorted(patterns, key=len, reverse=True)
        self._default = default_model
        self._offered: _Offer | None = None
        self._known: dict[tuple[str, str, bool], Choice] = {}
        self._adapters: dict[str, str | None] = {}
        self.has_several = False
        """The fleet serves more than one model, as of the last name that was looked for."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are served, each once, in order."""
        return self._offer().models

    @property
    def adapters(self) -> Mapping[str, Served]:
        """The adapters that are loaded, by their own name, in order."""
        return self._offer().adapters

    @property
    def aliases(self) -> dict[str, Served]:
        """The aliases that are whole names of something served."""
        found = {
            name: self.find(target) for name, target in self._aliases.items() if name[-1:] != "*"
        }
        return {name: served for name, served in sorted(found.items()) if served is not None}

    def find(self, name: str) -> Served | None:
        """What a name stands for, None if nothing of that is served."""
        offer = self._offer()
        if name in UNNAMED and name not in offer.models:
            if self._default is not None:
                return self._target(self._default, offer)
            return Served(offer.models[0]) if len(offer.models) == 1 else None
        if name in self._aliases:
            return self._target(self._aliases[name], offer)
        found = self._target(name, offer)
        if found is not None:
            return found
        for start in self._patterns:
            if name.startswith(start):
                return self._target(self._aliases[f"{start}*"], offer)
        return None

    def adapter_of(self, name: str) -> str | None:
        """The adapter that a model's name asks for, None for none."""
        offer = self._offer()
        known = self._adapters
        if name in known:
            return known[name]
        found = self.find(name)
        adapter = (name.partition(":")[2] if found is None else found.adapter) or None
        if len(known) < _KNOWN_MAX and offer.models:
            known[name] = adapter
        return adapter

    def resolve(
        self, name: str, *, lora_name: str = "", is_checked: bool = False, is_needed: bool = True
    ) -> Choice:
        """What to look for, and how the body has to name it.

        ``lora_name`` is an adapter named apart, which counts where the model names none.
        ``is_checked``: the engine compares the name with its own on this path; elsewhere it takes
        any, answers in that name, and reads an adapter from what is behind a colon. With
        ``is_needed`` off a request without a model may go anywhere.

        Raises:
            ClientError: every ready replica has said what it serves, and this is not of it.
        """
        self._offer()
        key = (name, lora_name, is_checked)
        choice = self._known.get(key)
        if choice is None:
            choice = self._resolve(name, lora_name, is_checked=is_checked, is_needed=is_needed)
            if is_needed and len(self._known) < _KNOWN_MAX:
                self._known[key] = choice
        return choice

    def _resolve(self, name: str, lora_name: str, *, is_checked: bool, is_needed: bool) -> Choice:
        offer = self._offer()
        is_unnamed = name in UNNAMED
        if is_unnamed and not is_needed and self._default is None:
            return Choice("")
        found = self.find(name)
        if found is None:
            if not offer.says_all:
                return Choice("" if is_unnamed else name)
            if is_needed or len(offer.models) > 1:
                raise unknown(name, self)
            return Choice("")
        lora = Served(found.base, found.adapter or lora_name)
        # An engine may load an adapter that none has said it holds.
        model = lora.full if lora.full in offer.full else found.base
        if is_unnamed:
            is_misread = bool(found.adapter) or (is_checked and bool(name))
        elif found.adapter:
            is_misread = name != found.full
        else:
            is_misread = name != found.base and (is_checked or ":" in name)
        return Choice(model, found.full if is_misread else None)

    def _target(self, name: str, offer: _Offer) -> Served | None:
        """What a name stands for without aliases."""
        if name in offer.models:
            return Served(name)
        adapter = offer.adapters.get(name)
        if adapter is not None:
            return adapter
        bases = [base for base in offer.models if name.startswith(f"{base}:")]
        if not bases:
            return None
        base = max(bases, key=len)
        return Served(base, name[len(base) + 1 :].strip())

    def _offer(self) -> _Offer:
        """What the fleet serves now."""
        offer = self._offered
        if offer is not None and offer.n_changes == self._fleet.n_changes:
            return offer
        self._known.clear()
        self._adapters.clear()
        replicas = self._fleet.replicas()
        models = tuple(sorted({name for r in replicas for name in r.models}))
        adapters: dict[str, Served] = {}
        for replica in replicas:
            for full in replica.serves[len(replica.models) :]:
                bases = [base for base in replica.models if full.startswith(f"{base}:")]
                base = max(bases, key=len, default="")
                adapter = full[len(base) + 1 :]
                adapters.setdefault(adapter, Served(base, adapter))
        said = {r.replica_id for r in replicas if r.serves}
        ready = self._fleet.eligible()
        self._offered = offer = _Offer(
            self._fleet.n_changes,
            models,
            dict(sorted(adapters.items())),
            frozenset(name for r in replicas for name in r.serves),
            says_all=bool(ready) and all(r.replica_id in said for r in ready),
        )
        self.has_several = len(models) > 1
        return offer


def unknown(name: str, names: ModelNames) -> ClientError:
    """The error for a model that nobody serves, with what is served."""
    served = [*names.models, *names.adapters, *names.aliases]
    more = "" if len(served) <= _LISTED_MAX else f" and {len(served) - _LISTED_MAX} more"
    listed = ", ".join(served[:_LISTED_MAX]) + more
    if name in UNNAMED:
        what = "The request names no model, and this router has no default_model"
    else:
        what = f"No replica serves a model {name[:_SHOWN]!r}"
    return ClientError("unknown-model", f"{what}; served here: {listed}.")
