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

// InUseAbove is InUse that looks no further once no more than want is in use.
func InUseAbove(b Backend, want int64) (bytes int64) {
	c := b.(*cuda)
	c.do("inUse", func() {
		for i := 0; i < 3 && (i == 0 || c.live > want); i++ {
			c.collect(func() bool { return c.live <= want })
		}
		bytes = c.live
	})
	return bytes
}
