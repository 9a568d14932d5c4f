//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

// SetHopper lets attention on b use the kernels for Hopper or not, and returns a
// function that undoes it; ok is false where the device has none.
func SetHopper(b kernels.Backend, on bool) (restore func(), ok bool) {
	c := b.(*cuda)
	before := c.sm90a
	if on && !before {
		return func() {}, false
	}
	c.sm90a = on
	return func() { c.sm90a = before }, true
}

// Launched tells whether a kernel was launched since the last wait.
func Launched(b kernels.Backend, name string) bool { return slices.Contains(b.(*cuda).queued, name) }

// InUse is the device memory of b's live tensors after a garbage collection.
func InUse(b kernels.Backend) int64 { return b.(*cuda).inUse() }

// Visible are the entries of KV head g that row r sees.
func Visible(a *kernels.Attend, g, r int) (from, to int) { return a.Visible(g, r) }

// InUseAbove is InUse that looks no further once no more than want is in use.
func InUseAbove(b kernels.Backend, want int64) (bytes int64) {
	c := b.(*cuda)
	c.do("inUse", func() {
		for i := 0; i < 3 && (i == 0 || c.live > want); i++ {
			c.collect(func() bool { return c.live <= want })
		}
		bytes = c.live
	})
	return bytes
}

// CatchWarnings lets b warn again of graphs and products, and collects what it
// warns of until restore is called.
func CatchWarnings(b kernels.Backend) (warnings *[]string, restore func()) {
	before := warn
	warnings = new([]string)
	warn = func(text string) { *warnings = append(*warnings, text) }
	c := b.(*cuda)
	c.graphsWarned, c.productsWarned = false, false
	return warnings, func() { warn, c.graphsWarned, c.productsWarned = before, false, false }
}

// Recorded is the number of operations that g holds; 0 where nothing is recorded.
func Recorded(g kernels.Graph) int { return g.(*cudaGraph).Operations() }

// VisibleOwn are the own pairs that row r sees.
func VisibleOwn(a *kernels.Attend, r int) (from, to int) { return a.VisibleOwn(r) }

// Temporary is the memory that f's operations take at most, what they allocate included. The
// workspace of products, where all share one, is not.
func Temporary(b kernels.Backend, f func()) int64 {
	c := b.(*cuda)
	exact := c.exact
	if !exact {
		c.do("Temporary", func() { c.workspaceFor("Temporary", MaxWorkspace) })
	}
	c.exact = true // each in an allocation of its own
	defer func() { c.exact = exact }()
	c.ResetPeak()
	before := c.peak
	f()
	return c.peak - before
}

// SelectChunk is how much of n entries a block chooses k from.
func SelectChunk(n, k, heads, processors int) int { return selectChunk(n, k, heads, processors) }

// SetProcessors lets b cut work as for so many processors, and returns a function that undoes it.
func SetProcessors(b kernels.Backend, n int) (restore func()) {
	c := b.(*cuda)
	before := c.processors
	c.processors = n
	return func() { c.processors = before }
}

// SetShared changes the shared memory that a block may have, and returns a function that
// undoes it.
func SetShared(b kernels.Backend, bytes int) (restore func()) {
	c := b.(*cuda)
	before := c.shared
	c.shared = min(before, bytes)
	return func() { c.shared = before }
}

// EachFatBinary calls f for every fat binary that would be loaded.
func EachFatBinary(f func(name string, data []byte) error) error { return eachFatBinary(f) }

// EachPacked calls f for every fat binary in the archives of a folder.
func EachPacked(folder fs.FS, f func(name string, data []byte) error) error {
	return eachPacked(folder, f)
}

// PackedArchives are the digests and names of the archives in the program, the oldest first, as
// kernels.sum has them.
func PackedArchives() (lines []string, err error) {
	entries, err := packedKernels.ReadDir(".")
	for _, e := range entries {
		data, readErr := packedKernels.ReadFile(e.Name())
		err = errors.Join(err, readErr)
		lines = append(lines, fmt.Sprintf("%x  %s", sha256.Sum256(data), e.Name()))
	}
	slices.SortStableFunc(lines, func(a, b string) int { return len(a) - len(b) })
	return lines, err
}

// LoadKernels loads the kernels once more, for the device and the driver as they are now,
// and says what runs.
func LoadKernels(b kernels.Backend) (images string, err error) {
	c := b.(*cuda)
	again := newCUDA(cuda{cudaDevice: &cudaDevice{
		device: c.device, context: c.context, stream: c.stream, shared: c.shared,
		functions: make(map[string]cu.Function), images: make(map[string]imageUse),
	}})
	defer kernels.CatchDevice(&err)
	again.do("load", func() {
		d, err := describe(0)
		again.try("load", err)
		var major, minor int
		fmt.Sscanf(d.Capability, "%d.%d", &major, &minor)
		again.sm90a = hasHopper(major, minor)
		again.loadKernels()
	})
	return again.describeImages(), nil
}

// StagePinned fails the test where copies to the device do not go through pinned memory, and
// returns a function that fails it where more than its bound was used.
func StagePinned(t testing.TB, b kernels.Backend) func() {
	s := &b.(*cuda).staging
	if s.failed {
		t.Fatal("there is no pinned memory")
	}
	return func() {
		if s.failed || !s.halves[0].left || !s.halves[1].left || len(s.halves[0].memory) != stagingBytes {
			t.Error("the pinned memory was not used in turn")
		}
	}
}

// InOneLaunch tells whether b computes linear layers of rows x in one launch.
func InOneLaunch(b kernels.Backend, x *kernels.Tensor, layers ...kernels.LinearRows) (takes bool) {
	c := b.(*cuda)
	c.do("TakesDecodeLinears", func() { takes = c.takesDecodeLinears("TakesDecodeLinears", x, layers...) })
	return takes
}

// SetWidened changes how much memory weights are widened into at once, and returns a function
// that undoes it.
func SetWidened(bytes int) (restore func()) {
	before := widenedBytes
	widenedBytes = bytes
	return func() { widenedBytes = before }
}

// Widen is a weight in blocks in BF16.
func Widen(b kernels.Backend, w *kernels.Tensor) *kernels.Tensor {
	y := b.Alloc(kernels.BF16, w.Shape...)
	b.(*cuda).do("Widen", func() { b.(*cuda).widen("Widen", b.(*cuda).address("Widen", y), w) })
	return y
}

// KeptFormats are the formats of blocks that stay as they are.
func KeptFormats() []string { return keptFormats }

// AttendTogether is StepAttention in one launch; false where that is not done.
func AttendTogether(b kernels.Backend, out, q *kernels.Tensor, s kernels.Steps, at kernels.StepLayer) bool {
	return b.(*cuda).attendTogether(out, q, s, at)
}

// Variances are those of layers' scores.
func Variances(b kernels.Backend, scores []*kernels.Tensor, entries [][]int) []float64 {
	return b.(*cuda).variances(scores, entries)
}
