//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"os"

	"gorgonia.org/cu"

	"glimpse/internal/bytesize"
	"glimpse/kernels"
)

// limitFromEnvironment is the most device memory that $GLIMPSE_CUDA_MEMORY allows; 0
// where it is not set.
func limitFromEnvironment() (int64, error) {
	text := os.Getenv("GLIMPSE_CUDA_MEMORY")
	if text == "" {
		return 0, nil
	}
	n, err := bytesize.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("GLIMPSE_CUDA_MEMORY: %w", err)
	}
	return n, nil
}

// obtain takes memory from the driver, if the limit and the device have so much.
func (b *cuda) obtain(op string, size int64) (cu.DevicePtr, bool) {
	if b.limit > 0 && b.held+size > b.limit {
		return 0, false
	}
	at, err := cu.MemAlloc(size)
	if err != nil {
		if !errors.Is(err, cu.OutOfMemory) {
			b.try(op, err)
		}
		return 0, false
	}
	b.held += size
	b.peak = max(b.peak, b.held)
	return at, true
}

// giveBack returns memory to the driver, which waits for the work that uses it.
func (b *cuda) giveBack(op string, m cudaMemory) {
	b.held -= m.size
	b.try(op, cu.MemFree(m.at))
}

// emptyPool gives all free blocks back to the driver.
func (b *cuda) emptyPool(op string) {
	for size, free := range b.pool {
		for _, at := range free {
			b.giveBack(op, cudaMemory{at, size})
		}
		delete(b.pool, size)
	}
}

// secure takes memory from the driver. Where there is none, what dead tensors and free
// blocks hold goes back first.
func (b *cuda) secure(op string, size int64) cu.DevicePtr {
	at, ok := b.obtain(op, size)
	if !ok {
		b.collect(func() bool {
			b.emptyPool(op)
			at, ok = b.obtain(op, size)
			return ok
		})
	}
	if !ok && b.dropScratch(op) {
		at, ok = b.obtain(op, size)
	}
	if !ok {
		b.outOfMemory(op, size)
	}
	return at
}

// dropScratch gives back the temporary memory where the operation uses none of it: it has
// grown by doubling, and grows again to what is needed.
func (b *cuda) dropScratch(op string) bool {
	if b.used > 0 || b.scratch == 0 {
		return false
	}
	b.giveBack(op, cudaMemory{b.scratch, b.size})
	b.scratch, b.size = 0, 0
	return true
}

func (b *cuda) outOfMemory(op string, size int64) {
	unused, total, err := b.memInfo()
	b.try(op, err)
	b.try(op, fmt.Errorf("out of memory: %d MiB asked for, %d MiB free of %d MiB, %d MiB in use by this program; shorten the prompt, lower the batch or the chunk, or use a smaller model",
		size>>20, unused>>20, total>>20, b.live>>20))
}

// memInfo is what is free on the device, and what there is, both within the limit.
func (b *cuda) memInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	if err == nil && b.limit > 0 {
		free, total = min(free, b.limit-b.held), min(total, b.limit)
	}
	return free, total, err
}

// Memory implements Measuring.
func (b *cuda) Memory() (use kernels.MemoryUse) {
	b.do("Memory", func() {
		b.collectAll()
		pooled := int64(0)
		for size, free := range b.pool {
			pooled += size * int64(len(free))
		}
		free, total, err := b.memInfo()
		b.try("Memory", err)
		use = kernels.MemoryUse{Live: b.live, Held: b.held, Peak: b.peak, Available: free + pooled, Kept: b.size + b.kept(), Total: total}
	})
	return use
}

// kept is the memory of the workspace.
func (b *cuda) kept() int64 {
	if b.workspace == 0 {
		return 0
	}
	return MaxWorkspace
}

// ResetPeak implements Measuring.
func (b *cuda) ResetPeak() {
	b.do("ResetPeak", func() {
		b.collectAll()
		b.emptyPool("ResetPeak")
		b.peak = b.held
	})
}

// LimitMemory implements Measuring.
func (b *cuda) LimitMemory(bytes int64) (restore func()) {
	var before int64
	set := func(n int64) { b.do("LimitMemory", func() { before, b.limit = b.limit, n }) }
	set(bytes)
	old := before
	return func() { set(old) }
}

// Traits implements DeviceInfo.
func (b *cuda) Traits() kernels.Traits {
	return kernels.Traits{Device: true, Exact: b.exact, Graphs: b.graphs(), Processors: b.processors, Shared: b.shared, Memory: b.memory}
}

// OwnMemory implements Memory.
func (b *cuda) OwnMemory() bool { return true }

// Device is the name that Open takes.
func (b *cuda) Device() string { return b.device }
