package kernels

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Meter is a Backend whose device measures its own time, and whose memory is counted.
type Meter interface {
	Backend

	// Model is the device's name, Driver its driver and libraries.
	Model() string
	Driver() string
	// Time is the time on the device from before f's work to its end, by events in the
	// order of the work: it contains waits for the host. It returns f's error.
	Time(f func() error) (time.Duration, error)
	// Product computes c [m, n] = a [m, k] · w [n, k]ᵀ for a and w in BF16 and c in F32
	// by the library's product alone: a measure of what the device can do.
	Product(c, a, w *Tensor)

	// Memory is what the device's memory is used for, after a garbage collection.
	Memory() MemoryUse
	// ResetPeak gives free memory back to the driver and makes MemoryUse.Peak what is
	// held now.
	ResetPeak()
	// LimitMemory bounds MemoryUse.Held to so many bytes, 0 to what there is, and
	// returns a function that undoes it. GLIMPSE_CUDA_MEMORY does so from the start.
	LimitMemory(bytes int64) (restore func())
}

// MemoryUse is the memory of a device, in bytes.
type MemoryUse struct {
	Live      int64 // of tensors
	Held      int64 // taken from the driver: tensors, free blocks, scratch memory
	Peak      int64 // most held since the start or ResetPeak
	Available int64 // that new tensors could have
	Kept      int64 // of Held, scratch memory and workspace: not for tensors, but forecasts count them
	Total     int64 // of the device, or the limit
}

// Wait waits until a backend has done all work that was asked of it.
func Wait(b Backend) {
	if w, ok := b.(interface{ Wait() }); ok {
		w.Wait()
	}
}

// ParseBytes reads an amount of memory: a number with one of the units kB, MB, GB
// (powers of 1000), KiB, MiB, GiB (powers of 1024) or B, which may be left out.
func ParseBytes(text string) (int64, error) {
	number := strings.TrimRight(text, "BkKMGi ")
	unit, ok := map[string]float64{
		"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[strings.TrimSpace(text[len(number):])]
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(v > 0 && v*unit < math.MaxInt64) {
		return 0, fmt.Errorf("got %q, want an amount of memory such as 24GB or 22GiB", text)
	}
	return int64(v * unit), nil
}
