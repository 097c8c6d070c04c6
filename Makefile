# The commands people type. `make setup` brings what is missing; everything else calls it first.
SECONDS_EACH ?= 450
.PHONY: help setup setup-test demo run test lint e2e unit fuzz seek noise bench corpus golden docs catalogue clean

BIN := .venv/bin
CORPUS ?= ../shared/corpus

help:          ## Show this list.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup:         ## System packages that are missing, .venv, triage in it.
	@packaging/setup

setup-test:
	@packaging/setup --tests

demo: setup    ## The main job on a bundled crash: diagnosis here, dashboard on loopback.
	@$(BIN)/python -m demo

run: setup     ## Watch, worker and dashboard on this machine's own journal.
	@$(BIN)/triage run

test: setup-test  ## All tests, the systemd ones included (TRIAGE_E2E=skip leaves those and the browser out).
	@$(MAKE) --no-print-directory -j2 -k -Otarget e2e unit  # side by side: the systemd tests mostly wait

e2e: setup-test   ## The systemd tests alone.
	@$(BIN)/python -m pytest --durations=10 tests/e2e

unit: setup-test  ## All the others.
	@$(BIN)/python -m pytest --durations=10 --ignore=tests/e2e

fuzz: setup-test  ## Half an hour of coverage-guided fuzzing of the engine (SECONDS_EACH=60 for less); finds go to var/fuzz.
	@$(BIN)/python -m pip install -q atheris
	@for target in line traceback log entries; do $(BIN)/python -m tests.fuzz.drive $$target $(SECONDS_EACH) || exit 1; done

seek: setup-test  ## The properties with inputs that no run tried before, more of them where a test names no number.
	@HYPOTHESIS_PROFILE=seek $(BIN)/python -m pytest $$(grep -rl "from hypothesis" tests --include='test_*.py')

noise: setup-test ## A million lines of a healthy day, read by each road: nothing fatal or degraded may be found.
	@$(BIN)/python -m tests.crashes.noise 1000000

lint: setup-test  ## Style, types, import contracts, rules.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/triage rules check

golden: setup-test  ## Rewrite the golden crashes; review the diff.
	@$(BIN)/python -m pytest tests/crashes --golden

corpus: setup  ## Score `triage scan` on the corpus, where that folder is there.
	@if [ -x $(CORPUS)/score.py ]; then \
	  for what in h200 cases; do echo "== $$what"; python3 $(CORPUS)/score.py --triage "$(CURDIR)/$(BIN)/triage" $$what; done; \
	else echo "no corpus at $(CORPUS): nothing to score"; fi

bench: setup-test  ## triage beside its peers; writes docs/performance.md (peers: apt-get install ripgrep fail2ban gcc libsystemd-dev).
	@$(BIN)/python -m benchmarks

docs: setup    ## Rewrite the generated pages (docs/rules-list.md).
	@$(BIN)/python docs/generate.py

catalogue: setup  ## Rewrite the catalogue (flags, checks, messages, switches, pins) from SGLang's wheels (minutes; on the building machine only).
	@$(BIN)/python -m pip install -q msgspec
	@$(BIN)/python catalogue/build.py

clean:
	rm -rf .venv build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis
