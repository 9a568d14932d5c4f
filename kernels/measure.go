package kernels

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MemoryUse is the memory of a device, in bytes.
type MemoryUse struct {
	Live      int64 // of tensors
	Held      int64 // taken from the driver: tensors, free blocks, scratch memory
	Peak      int64 // most held since the start or ResetPeak
	Available int64 // that new tensors could have
	Kept      int64 // of Held, scratch memory and workspace: not for tensors, but forecasts count them
	Total     int64 // of the device, or the limit
}

// Traits are what the memory that a backend's operations take depends on; those of the host
// are all zero.
type Traits struct {
	Device           bool // it has memory of its own
	Exact            bool // blocks are not rounded up
	Graphs           bool // it records graphs
	Processors       int
	Shared           int   // bytes of shared memory that a block may have
	Memory           int64 // of the device in all
	Fuses            bool  // operations that follow each other are one kernel
	DecodeLinearsOff bool  // decode linears are products like any other
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
