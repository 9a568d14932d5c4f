package memcount_test

import (
	"testing"

	"glimpse/kernels"
	_ "glimpse/kernels/cpu"
	"glimpse/kernels/memcount"
)

// TestDryCountsWhatIsAlive: the peak is that of tensors which something refers to, not of
// all that were made, and reading gives zeros.
func TestDryCountsWhatIsAlive(t *testing.T) {
	b, err := kernels.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	d := memcount.New(b)
	kept := d.Alloc(kernels.F32, 1000)
	for range 50 { // one at a time
		x := d.Alloc(kernels.BF16, 100, 1000)
		d.Fill(x, 1)
	}
	if live, peak := d.Live(), d.Peak(); live != 4000 || peak < 204000 || peak > 204000+32<<10 {
		t.Errorf("%d bytes live, %d at most; want 4000 and 204000, of the peak up to 32 KiB more", live, peak)
	}
	view := kept.Rows(10, 20)
	kept = nil
	if live := d.Live(); live != 4000 { // a view keeps the whole alive
		t.Errorf("%d bytes live with a view, want 4000", live)
	}
	for _, v := range view.Float32s() {
		if v != 0 {
			t.Errorf("read %v, want 0", v)
		}
	}
	arena := kernels.NewArena(d)
	for range 3 {
		mark := arena.Mark()
		arena.Alloc(kernels.F32, 1<<20)
		arena.Release(mark)
	}
	if live := d.Live(); live != arena.Bytes() || live < 4<<20 || live > 5<<20 { // with the view gone
		t.Errorf("%d bytes live, the arena has %d", live, arena.Bytes())
	}
}
