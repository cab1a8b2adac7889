# Every target makes and refreshes .venv itself; Python 3.11 or newer and make are all it needs.
# Paths are relative: the folder's own name may hold spaces.
SHELL := /bin/sh
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
PY := .venv/bin/python
ENV := .venv/.made
# Real SGLang has an environment and a lock of its own; its wheels are for this Python only.
ENGINE_PYTHON ?= python3.11
ENGINE_PY := .venv-engine/bin/python
ENGINE := .venv-engine/.made

# Real agents (npm, PyPI) that the front door is tried with; each in its own folder, for their pins differ.
AGENTS := .venv-agents/.made

# The suites start our own programs hundreds of times: what is compiled once is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-engine test-agents check format bench lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | sort

$(ENV): pyproject.toml requirements/dev.txt
	@test -n "$(PYTHON)" || { echo "homeport needs Python 3.11 or newer; none was found (set PYTHON=...)" >&2; exit 1; }
	@echo "making .venv with $(PYTHON) ..." >&2
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(ENV)

$(ENGINE): requirements/engine.txt requirements/engine-torch.txt
	@"$(ENGINE_PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || \
		{ echo "real SGLang needs Python 3.11; $(ENGINE_PYTHON) is not that (set ENGINE_PYTHON=...)" >&2; exit 1; }
	@echo "making .venv-engine with $(ENGINE_PYTHON): SGLang on the CPU, 2.8 GB ..." >&2
	@"$(ENGINE_PYTHON)" -m venv .venv-engine
	@$(ENGINE_PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/engine-torch.txt \
		>.venv-engine/torch.log 2>&1 || { echo "pip cannot install $$(grep '^torch==' requirements/engine-torch.txt)" \
		"(Python 3.11, Linux x86-64): set PIP_FIND_LINKS to a folder with that wheel, or PIP_EXTRA_INDEX_URL to an" \
		"index of PyTorch's CPU wheels; pip's words are in .venv-engine/torch.log" >&2; exit 1; }
	@$(ENGINE_PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/engine.txt
	@touch $(ENGINE)

demo: $(ENV) ## router, three emulated replicas and a synthetic agent load on this machine
	@$(PY) -m router.cli demo $(ARGS)

test: $(ENV) ## every test but the slow sets
	$(PY) -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(ENV) ## the slow sets: a million sessions, half a minute of silence, the benchmarks' own commands
	$(PY) -m pytest -m slow --timeout 1200 $(ARGS)

test-engine: $(ENV) $(ENGINE) ## the suites that need real SGLang, on this CPU with a tiny model
	$(PY) -m pytest -m engine --timeout 300 $(ARGS)

$(AGENTS): tests/agents/package.json
	@command -v npm >/dev/null || { echo "the real agents need Node.js and npm" >&2; exit 1; }
	@echo "making .venv-agents: Claude Code, Codex, OpenCode, Cline, mini-swe-agent, Aider: 2.5 GB ..." >&2
	@mkdir -p .venv-agents/npm && cp tests/agents/package.json .venv-agents/npm/
	@cd .venv-agents/npm && npm install --silent --no-audit --no-fund --no-package-lock
	@for pinned in mini-swe-agent==2.4.6 aider-chat==0.86.2; do \
		place=".venv-agents/$$(echo "$$pinned" | sed 's/-chat//; s/==.*//')"; \
		$(PYTHON) -m venv "$$place" && "$$place/bin/python" -m pip install --quiet --disable-pip-version-check "$$pinned" || exit 1; \
	done
	@touch $(AGENTS)

test-agents: $(ENV) $(AGENTS) ## real coding agents through the router, offline, in a network namespace (Linux)
	$(PY) -m pytest -m agents --timeout 400 $(ARGS)

check: $(ENV) ## format, lint, types, import contracts
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

format: $(ENV) ## rewrite the sources in the house format
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(ENV) ## measure the front door against HAProxy and direct, as ratios
	$(PY) -m bench $(ARGS)

lock: $(ENV) ## resolve the locked, hashed requirement files anew
	$(PY) -m pip install --quiet uv
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate pyproject.toml --extra events --extra kubernetes -o requirements/serve.txt
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate pyproject.toml --extra events --extra kubernetes --group dev -o requirements/dev.txt
	$(PY) -m uv pip compile --quiet --no-deps --python-version 3.11 --python-platform x86_64-manylinux_2_34 --generate-hashes --no-header --no-annotate requirements/engine.in -o requirements/engine.txt

clean: ## remove both environments and caches
	rm -rf .venv .venv-engine .venv-agents .mypy_cache .ruff_cache .pytest_cache .hypothesis
