//go:build gpu && linux && amd64

package kernels

// SetExactWork changes the size of a product from which on the activations of more
// than 64 rows are rounded to bf16, and returns a function that undoes it.
func SetExactWork(n int) (restore func()) {
	before := exactWork
	exactWork = n
	return func() { exactWork = before }
}

// InUse is the device memory of b's live tensors after a garbage collection.
func InUse(b Backend) int64 { return b.(*cuda).inUse() }

// Visible are the entries of KV head g that row r sees.
func Visible(a *Attend, g, r int) (from, to int) { return a.visible(g, r) }

// CatchWarnings makes b record graphs again if it has given up, and collects what it
// warns of until restore is called.
func CatchWarnings(b Backend) (warnings *[]string, restore func()) {
	before := warn
	warnings = new([]string)
	warn = func(text string) { *warnings = append(*warnings, text) }
	b.(*cuda).graphsFailed = false
	return warnings, func() { warn, b.(*cuda).graphsFailed = before, false }
}

// Recorded is the number of operations that g holds; 0 where nothing is recorded.
func Recorded(g Graph) int {
	if r := g.(*cudaGraph).recorded; r != nil {
		return r.calls
	}
	return 0
}
