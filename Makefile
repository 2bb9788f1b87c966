# `make help` lists the targets. Each does all of its own set-up.
.DEFAULT_GOAL := help
.PHONY: help setup demo test soak lint sizes clean
python := .venv/bin/python
# The device library as port $(1) sees it, without the boards of port $(2).
mypy_firmware = MYPYPATH=.venv/stubs/$(1) $(python) -m mypy --config-file firmware/mypy.ini \
	--custom-typeshed-dir .venv/stubs/$(1) --exclude boards/$(2) --cache-dir .mypy_cache/$(1)

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

setup:  ## .venv with the tern command, and the cache of emulators
	@sh tools/setup.sh

demo: setup  ## train on real flights through emulated devices; writes runs/<time>/report.html
	.venv/bin/tern demo

test: lint  ## every check: style, types, cross-compilation, unit, device and integration tests
	@sh tools/setup.sh device,pico,esp32,m33 tests
	@.venv/bin/tern emulator build --what newest >/dev/null || echo "make: without the newest MicroPython, see above" >&2
	$(python) -m pytest --target unix,pico,rv32,xtensa,m33,rv32-newest

SECONDS ?= 60
soak: setup  ## treat fleets on a broker badly for SECONDS (default 60); ends with a JSON line
	@cd tests && ../$(python) -m harness $(SECONDS)

lint: setup  ## style and types of host, tools and firmware
	$(python) -m ruff check .
	$(python) -m mypy
	$(call mypy_firmware,rp2,esp32)
	$(call mypy_firmware,esp32,rp2)

sizes: setup  ## size of what each board gets of the device library, as .mpy
	$(python) -m terntools.boards.sizes

clean:  ## remove .venv and what tools left; keep runs/ and the cache of emulators
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find firmware host tools tests shared_specs -name __pycache__ -type d -prune -exec rm -rf {} +
