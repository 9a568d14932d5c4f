//go:build gpu && linux && amd64

package kernels

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"
	"unsafe"

	"glimpse/internal/cudadriver"

	"gorgonia.org/cu"
)

// hopperVariable, set to off, keeps attention off the kernels for Hopper.
const hopperVariable = "GLIMPSE_CUDA_HOPPER"

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
	return major == 9 && minor == 0 && cu.Version() >= 12000 && os.Getenv(hopperVariable) != "off"
}

// hopperFits tells whether the kernels for Hopper compute t.
func (t *attention) hopperFits(out cu.DevicePtr) bool {
	_, ok := hopperKernels[t.dim]
	if !ok || !t.b.sm90a || out == 0 || out%8 != 0 || t.q%16 != 0 || t.scale <= 0 {
		return false
	}
	for _, h := range t.past {
		if h.k%16 != 0 || h.v%16 != 0 {
			return false
		}
	}
	return t.b.hopperUsable(t.dim)
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

// hopperUsable checks the kernel for heads of dim elements at its first use. Where it
// disagrees with the portable kernel that one is used, and standard error says so.
func (b *cuda) hopperUsable(dim int) bool {
	err, checked := b.hopper[dim]
	if !checked {
		if err = b.checkHopper(dim); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v; the portable kernel is used\n", b.device, err)
		}
		b.hopper[dim] = err
	}
	return err == nil
}

// hopperPatience is how long a kernel that takes less than a millisecond may run when
// it is checked.
const hopperPatience = 30 * time.Second

// checkHopper runs the kernel for heads of dim elements and the portable one on the
// same random numbers, more than a block of queries and a tile of entries, ragged.
func (b *cuda) checkHopper(dim int) error {
	const rows, group = 45, 3
	const op = "self-check"
	name := fmt.Sprint("attend_hopper_", dim)
	rng := rand.New(rand.NewPCG(uint64(dim), 90))
	half := func(n int) cu.DevicePtr {
		v := make([]uint16, n)
		for i := range v {
			v[i] = F32ToBF16(2*rng.Float32() - 1)
		}
		return upload(b, op, v)
	}
	t := &attention{b: b, op: op, half: true, rows: rows, kvHeads: 2, heads: 2 * group, dim: dim, scale: 4 / float32(math.Sqrt(float64(dim)))}
	for _, entries := range []int{203, 64} {
		t.past = append(t.past, pastHead{k: half(entries * dim), v: half(entries * dim), entries: int32(entries)})
	}
	t.pastAt = upload(b, op, t.past)
	q := make([]float32, rows*t.heads*dim)
	for i := range q {
		q[i] = 4*rng.Float32() - 2
	}
	t.q = upload(b, op, q)
	outs, lses := len(q), rows*t.heads
	at := t.floats(2 * (outs + lses))
	next := func(n int) cu.DevicePtr {
		p := at
		at += cu.DevicePtr(4 * n)
		return p
	}
	first := at
	t.attendMMA(next(outs), next(lses))
	t.attendHopper(next(outs), next(lses))
	// A kernel that never ends must not end the program in silence.
	for deadline := time.Now().Add(hopperPatience); ; time.Sleep(100 * time.Microsecond) {
		err := b.stream.Query()
		if err == nil {
			break
		}
		if !errors.Is(err, cu.NotReady) {
			b.try(op, fmt.Errorf("kernel %s: %w (%s=off does without it)", name, err, hopperVariable))
		}
		if time.Now().After(deadline) {
			b.try(op, fmt.Errorf("kernel %s: not done after %v (%s=off does without it)", name, hopperPatience, hopperVariable))
		}
	}
	got := make([]float32, 2*(outs+lses))
	b.try(op, cu.MemcpyDtoHAsync(unsafe.Pointer(&got[0]), first, 4*int64(len(got)), b.stream))
	b.synchronize(op)
	// Both round weights of at most 1 to bf16, by up to 2^-9 of each, and weigh values of
	// at most 1; the denominators are float32.
	for _, part := range []struct {
		what  string
		from  int
		n     int
		limit float64
	}{{"output", 0, outs, 1.0 / 128}, {"softmax denominator", outs, lses, 1e-3}} {
		for i := part.from; i < part.from+part.n; i++ {
			want, have := float64(got[i]), float64(got[outs+lses+i])
			if d := math.Abs(have - want); !(d <= part.limit) {
				return fmt.Errorf("kernel %s: %s %d is %g, that of the portable kernel %g", name, part.what, i-part.from, have, want)
			}
		}
	}
	return nil
}

// CheckDevice opens a device by its number and holds the kernels that only this kind
// has against the portable ones, before something depends on them. Devices reports
// what it found.
func CheckDevice(ordinal int) (err error) {
	if _, err := openCUDA(ordinal); err != nil {
		return err
	}
	defer CatchDevice(&err)
	b := opened.get(ordinal)
	b.do("self-check", func() {
		if b.sm90a {
			for dim := range hopperKernels {
				b.hopperUsable(dim)
			}
		}
	})
	return nil
}

// describeAttention says what prompts over caches in bf16 run on.
func (b *cuda) describeAttention() string {
	if !b.sm90a {
		return "mma.sync"
	}
	text := "wgmma, checked for heads of"
	checked := 0
	for _, dim := range []int{64, 128, 256} {
		err, ok := b.hopper[dim]
		if err != nil {
			return fmt.Sprintf("mma.sync: %v", err)
		}
		if ok {
			checked++
			text += fmt.Sprintf(" %d", dim)
		}
	}
	if checked == 0 {
		return "wgmma, not checked yet"
	}
	return text
}
