# Everything here is also reachable without make: see README.md.

# The version that knows the Go version of go.mod; .ci/run uses "make lint".
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Benchmarks print what benchstat reads: run them with COUNT=10 before and after a
# change and compare the two outputs.
COUNT = 1

.PHONY: build build-gpu test test-gpu kernels demo bench bench-kernels bench-gpu bench-gpu-binaries adapters policies man docs release fmt vet vet-arm64 lint

# The examples of documents and help texts write into out/, which git ignores.
build:
	@mkdir -p out
	@bash -euo pipefail -c 'source scripts/common.sh; build_programs'

# With the CUDA backend: needs a C compiler, no toolkit and no GPU.
build-gpu:
	./scripts/setup.sh
	@mkdir -p out
	@bash -euo pipefail -c 'source scripts/gpu_env.sh && go build -tags gpu -o bin/ ./cmd/...'

# The CUDA kernels, anew (nvcc is fetched where it is missing).
kernels:
	./scripts/kernels.sh

test:
	./scripts/test.sh

# One test in seconds: make test-gpu PKG=./kernels/cuda RUN=TestCUDASelect
test-gpu:
	./scripts/test_gpu.sh $(if $(PKG),--package $(PKG)) $(if $(RUN),-run '$(RUN)')

demo:
	./scripts/demo.sh

# Every bar of lab/results/cpu.md as a ratio measured in one run: kernels against
# OpenBLAS (from Debian's libopenblas-dev) and what the machine can do, steps against
# the prefill in them, and a model of a billion parameters against PyTorch (which the
# script installs aside). Hours on a slow machine; "make bench-kernels" is for benchstat.
bench:
	./scripts/setup.sh
	./lab/bench/bench_cpu.sh
	./lab/bench/bench_pytorch.sh
	./lab/bench/bench_serving.sh

bench-kernels:
	go test -run '^$$' -bench . -count $(COUNT) ./kernels ./internal/simd

# On a machine with a GPU: measures everything that lab/results/gpu.md has a bar for and writes
# its section "Measured". Half an hour; lab/bench/bench_gpu.sh runs the parts one by one.
bench-gpu: bench-gpu-binaries
	./lab/bench/bench_gpu.sh

# What bench-gpu runs, to be copied to a machine without Go: less than 40 MiB.
bench-gpu-binaries:
	./scripts/setup.sh
	./lab/bench/bench_gpu.sh --build

# The man pages, in out/man/man1: MANPATH=out/man man evict-run
man: build
	./bin/evict man out/man/man1
	./bin/train man out/man/man1

# The site of docs/ in out/docs, with a search that needs no network.
docs:
	./scripts/docs.sh

# Archives of a release with checksums, in out/release, for Linux and macOS, with CUDA and without.
release:
	./scripts/setup.sh
	./scripts/release.sh

# Trains the adapters that ship with the built-in model.
adapters:
	./lab/reference/shipped_adapters.sh

# Lists all policies in docs/policies.md and measures them for lab/results/policies.md.
policies:
	./lab/reference/update_policies.sh

fmt:
	gofmt -w $$(go list -f '{{.Dir}}' ./...)

vet:
	go vet ./...

# What is compiled for other processors must compile, too: the types of everything, and vet
# where there is assembly. lab/nightly.sh does it.
vet-arm64:
	GOOS=linux GOARCH=arm64 go vet $$(GOARCH=arm64 go list -f '{{if .SFiles}}{{.ImportPath}}{{end}}' ./...)
	go -C lab run ./typecheck -arch arm64 ..

lint:
	go run $(STATICCHECK) ./...
