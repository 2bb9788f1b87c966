# `make help` lists the targets. Each does all of its own set-up.
.DEFAULT_GOAL := help
.PHONY: help setup demo docs check test exhaustive quick-tests tests exhaustive-tests versions emulators soak lint sizes lock release clean
# Style and types beside the tests. What these build in the course is not to inherit it.
beside = @$(MAKE) --no-print-directory --jobs=2 lint
python := .venv/bin/python
# Each test that runs a command would compile all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE
# The device library as port $(1) sees it, without the boards of port $(2).
mypy_firmware = MYPYPATH=.venv/stubs/$(1) $(python) -m mypy --config-file firmware/mypy.ini \
	--custom-typeshed-dir .venv/stubs/$(1) --exclude boards/$(2) --cache-dir .mypy_cache/$(1)

# JOBS processes run the tests; those that share a board or a file stay in one of them. Many tests mostly wait.
JOBS ?= $(shell expr $$(nproc) \* 2)
pytest = MAKEFLAGS= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(python) -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder \
	--durations 15 --durations-min 10
# Quick tests of the packages beside the core, which may be taken away.
beside_core := tests/bench tests/papers tests/views/test_grafana.py tests/views/test_notices.py
targets := unix,webassembly,pico,armv6m,rv32,xtensa,m33
newest := unix-newest,rv32-newest,xtensa-newest,m33-newest,armv6m-newest

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

setup:  ## .venv with the tern command, and the cache of emulators
	@MAKEFLAGS= sh tools/setup.sh

# The demo's matrices are small: more threads would mostly wait for each other, and keep cores from the boards.
demo:  ## learn which flights will be late, through emulated boards, in about a minute; writes runs/<time>/report.html
	@MAKEFLAGS= sh tools/setup.sh device demo
	OPENBLAS_NUM_THREADS=1 .venv/bin/tern demo

docs: setup  ## the site of the documentation, with a reference made from the code, into build/site; a broken link fails
	@MAKEFLAGS= sh tools/setup.sh device docs
	$(python) docs/make_site.py

check:  ## before a commit, a minute on 2 cores: style, types, quick unit tests, device tests on MicroPython for unix
	$(beside) quick-tests
# Quick tests do not wait, and each process imports all that they need.
quick-tests: JOBS = $(shell nproc)
quick-tests: setup
	$(pytest) -m "not slow" tests/unit tests/device $(wildcard $(beside_core))

test:  ## what a change can break, 23 minutes on 2 cores: all tests, with samples of the long ones
	$(beside) tests
tests: emulators
	$(pytest) --target $(targets) --junitxml build/tests.xml

exhaustive:  ## every test with all of its values, on every target, an hour on 4 cores
	$(beside) exhaustive-tests
exhaustive-tests: emulators
	@MAKEFLAGS= .venv/bin/tern emulator build newest >/dev/null || echo "make: without the newest MicroPython, see above" >&2
	$(pytest) --target $(targets),$(newest) --exhaustive

emulators: setup
	@MAKEFLAGS= sh tools/setup.sh device,pico,esp32,m33,webassembly tests

versions: emulators  ## device tests with every mpy-cross since 1.23; writes a table of docs/guides/emulators.md
	$(python) tests/compilers.py

SECONDS ?= 60
INPUTS ?= 0
soak: setup  ## treat fleets on a broker badly for SECONDS (default 60), and fuzz, with INPUTS=N so many inputs; ends with a JSON line
	@MAKEFLAGS= sh tools/setup.sh device fuzz || echo "make: without atheris the fuzzing is blind" >&2
	@cd tests && ../$(python) -m harness $(SECONDS) --inputs $(INPUTS)

lint: setup  ## style and types of host, tools and firmware
	$(python) -m ruff check .
	$(python) -m ruff format --check --quiet .
	$(python) -m mypy
	$(call mypy_firmware,rp2,esp32)
	$(call mypy_firmware,esp32,rp2)

sizes: setup  ## size of what each board gets of the device library, as .mpy
	$(python) tests/figures.py

lock:  ## pin what setup installs in tools/locks, with hashes, after a change of pyproject.toml
	@sh tools/lock.sh $(UPGRADE)

release: setup  ## sdist, wheel and their SBOMs, into dist, from the commit that is checked out
	@$(python) tests/release.py

clean:  ## remove .venv and what tools left; keep runs/ and the cache of emulators
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find firmware host tools tests shared_specs -name __pycache__ -type d -prune -exec rm -rf {} +
