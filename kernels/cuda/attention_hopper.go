//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

var _ = kernelsOf("attention_hopper",
	"attend_hopper_64", "attend_hopper_128", "attend_hopper_256",
)

// hopperKernel is the shape of one kernel of cuda/attention_hopper.cu: entries of a
// tile, and tiles of keys and of values in shared memory.
type hopperKernel struct{ keys, stages int }

var hopperKernels = map[int]hopperKernel{64: {128, 3}, 128: {128, 2}, 256: {64, 2}} // by head size

const (
	hopperThreads = 384
	hopperQueries = 128 // of a block
	hopperColumns = 64  // of a box
)

// shared is the shared memory of a block: struct Layout, and what aligns it.
func (k hopperKernel) shared(dim int) int {
	barriers := 8 * (2 + 4*k.stages)
	return 1024 + 2*dim*(hopperQueries+2*k.keys*k.stages) + barriers
}

// hasHopper tells whether a device of that compute capability runs the machine code for
// sm_90a: 9.0, under a driver that encodes tensor maps.
func hasHopper(major, minor int) bool {
	return major == 9 && minor == 0 && cu.Version() >= 12000
}

// hopperFits tells whether the kernels for Hopper compute t, whose logits they do not bound.
func (t *attention) hopperFits(out cu.DevicePtr) bool {
	_, ok := hopperKernels[t.dim]
	if !ok || !t.b.sm90a || out == 0 || out%8 != 0 || t.q%16 != 0 || t.scale <= 0 || t.cap > 0 {
		return false
	}
	for _, h := range t.past {
		if h.k%16 != 0 || h.v%16 != 0 {
			return false
		}
	}
	return true
}

// attendHopper is attendMMA by the kernels for Hopper.
func (t *attention) attendHopper(out, lse cu.DevicePtr) {
	k := hopperKernels[t.dim]
	maps := make([]cudadriver.TensorMap, 0, 2*len(t.past))
	for _, h := range t.past {
		for _, at := range []cu.DevicePtr{h.k, h.v} {
			m, err := cudadriver.BF16Matrix(at, int(h.entries), t.dim, k.keys, hopperColumns)
			t.b.try(t.op, err)
			maps = append(maps, m)
		}
	}
	queries := t.rows * t.heads / t.kvHeads
	t.b.launch(fmt.Sprint("attend_hopper_", t.dim), [3]int{(queries + hopperQueries - 1) / hopperQueries, t.kvHeads, 1}, hopperThreads, k.shared(t.dim),
		out, lse, t.q, t.pastAt, upload(t.b, t.op, maps), t.fromPast, t.rows, t.heads, t.kvHeads, t.scale)
}

// describeAttention says what prompts over caches in bf16 run on.
func (b *cuda) describeAttention() string {
	if b.sm90a {
		return "wgmma"
	}
	return "mma.sync"
}
