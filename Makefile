# What people and CI run. `verify` changes nothing; `fix` does.
.PHONY: help check verify docs fix fuzz package-check test test-python test-torch test-wheel test-slurm test-frameworks wheel dist bench bench-stores bench-launcher bench-succession bench-peers tools

help:
	@echo "make check           format, lints, unit tests, 10,000 seeds of each simulator: for every change, a few minutes (SEEDS=1000000: more)"
	@echo "make verify          format, lints, the book, licences, oldest compiler, manifests; changes nothing"
	@echo "make docs            the book into target/book, its links and commands checked"
	@echo "make fix             format, and whatever the linter can mend by itself"
	@echo "make test            everything that can fail, against real etcd too (fetches it)"
	@echo "make fuzz            each fuzz target for a minute (SECONDS=3600: for an hour)"
	@echo "make package-check   what would be published, built, installed and tried, in an old Debian too (RELEASE=1: before a release)"
	@echo "make test-python     the Python package, installed from its wheel into a fresh environment"
	@echo "make test-torch      our stores, launcher and torchrun plugin under stock PyTorch (fetches it, 5 GB; TORCH=2.6.0: another)"
	@echo "make test-wheel      what make wheel makes, in a fresh environment with that PyTorch"
	@echo "make test-slurm      the launcher on a real Slurm of three nodes (fetches it; needs root)"
	@echo "make test-frameworks stock JAX and Dask under the launcher, Dynamo and Mooncake on the server, on two hosts and a real Slurm (fetches them, 280 MB; needs root)"
	@echo "make wheel           the Python package, for others to install: any Linux with glibc 2.17 or later"
	@echo "make dist            the files of a release: wheel, sdist, the command with glibc and with musl, checksums"
	@echo "make bench           ours and real etcd side by side, and what an exit barrier costs, a few minutes"
	@echo "make bench-stores    our stores and PyTorch's side by side, a few minutes (OPTIONS=--json)"
	@echo "make bench-launcher  rallypoint run, and torchrun with our plugin, beside torchrun, a few minutes (OPTIONS=--json)"
	@echo "make bench-succession the loss of the head beside other losses, for the launcher, the plugin and c10d (needs root; OPTIONS=--json)"
	@echo "make bench-peers     ours and all peers in turns, twenty minutes; writes docs/benchmarks and the README's figures (QUICK=1: a few minutes, into target; OPTIONS='--only a,c'; needs root)"

# A test that runs for longer than this, in seconds, hangs: it is named, and the run ends.
HANGS = 900
watchdog = scripts/with-watchdog $(HANGS)

# How many tests of Python run side by side.
PROCESSES = 3

# How many runs of each simulator `make check` makes. `make test` makes 100,000.
SEEDS = 10000

# What needs no other server, no network and no root. The tests of the library start the command beside them; it is
# built together with a test, because cargo then compiles each dependency with the features that all tests use, once.
CORE_TESTS = --test agents --test c10d_model --test mvcc_model --test rendezvous_answers --test sim
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo build --workspace --locked --bin rallypoint --test c10d_model
	RALLYPOINT_SIM_RUNS=$(SEEDS) RALLYPOINT_AGENTS_RUNS=$(SEEDS) $(watchdog) cargo test --workspace --locked --lib $(CORE_TESTS)

verify:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p rallypoint --no-default-features --lib --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked
	scripts/licences
	scripts/deny
	scripts/msrv
	scripts/test-watchdog
	scripts/fuzz
	scripts/python-lints
	scripts/manifests
	scripts/docs

docs:
	scripts/docs

fix:
	cargo fmt --all
	scripts/python-lints --fix
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

fuzz:
	scripts/fuzz $(or $(SECONDS),60)

package-check:
	scripts/package-check

tools:
	scripts/test-tools

test: tools
	$(watchdog) cargo test --workspace --locked --no-fail-fast

test-python: tools
	python=$$(scripts/python-env) && scripts/side-by-side "$$python" $(PROCESSES) tests/python

test-torch: tools
	scripts/test-tools h2load
	cargo build --locked --example agent_store --bin rallypoint
	scripts/python-env >/dev/null
	scripts/torch-env launchers >/dev/null
	python=$$(scripts/torch-env) && PYTHONPATH=$$(cd $${CARGO_TARGET_DIR:-target}/wheel/site && pwd) scripts/side-by-side "$$python" $(PROCESSES) $(or $(TESTS),tests/torch)

test-wheel: tools
	wheel=$$(scripts/wheel) && python=$$(scripts/torch-env) && RALLYPOINT_WHEEL="$$wheel" "$$python" -m pytest tests/torch/test_wheel.py

test-slurm: tools
	scripts/slurm-tools
	cargo build --locked --bin rallypoint
	python=$$(scripts/virtualenv $${CARGO_TARGET_DIR:-target}/slurm-env tests/slurm/requirements.txt) && "$$python" -m pytest tests/slurm

test-frameworks: tools
	scripts/slurm-tools
	scripts/test-tools libibverbs
	cargo build --locked --bin rallypoint
	scripts/python-env >/dev/null
	python=$$(scripts/virtualenv $${CARGO_TARGET_DIR:-target}/frameworks tests/frameworks/requirements.txt) && \
		PYTHONPATH=$$(cd $${CARGO_TARGET_DIR:-target}/wheel/site && pwd) "$$python" -m pytest tests/frameworks

wheel:
	@scripts/wheel

dist:
	@scripts/dist

bench: tools
	cargo bench --locked --bench versus_etcd
	cargo bench --locked --bench exit_barrier

bench-stores: tools
	cargo build --release --locked --example agent_store --bin rallypoint
	python=$$(scripts/torch-env) && cd tests/torch && "$$python" -m bench $(OPTIONS)

bench-launcher: tools
	cargo build --release --locked --bin rallypoint
	site=$$(scripts/python-env release) && python=$$(scripts/torch-env) && \
		cd tests/torch && PYTHONPATH=$$site "$$python" -m bench.launcher $(OPTIONS)

bench-succession: tools
	cargo build --release --locked --bin rallypoint
	site=$$(scripts/python-env release) && python=$$(scripts/torch-env) && \
		cd tests/torch && PYTHONPATH=$$site:$$(cd ../slurm && pwd) "$$python" -m bench.succession $(OPTIONS)

bench-peers: tools
	scripts/test-tools h2load
	cargo build --release --locked --example agent_store --bin rallypoint
	site=$$(scripts/python-env release) && python=$$(scripts/torch-env) && \
		cd tests/torch && PYTHONPATH=$$site "$$python" -m bench.peers $(if $(QUICK),--quick) $(OPTIONS)
