package memcount_test

import (
	"runtime"
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

// TestSeekFrom: from a peak that is known to be reached peaks are found to the part that is asked for, with fewer collections of
// garbage; one that is not known is found as before.
func TestSeekFrom(t *testing.T) {
	b, err := kernels.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	const rows, size, want = 60, 400_000, 61 * 400_000
	count := func(known, part int64) (peak, sure int64, collections uint32) {
		d := memcount.New(b)
		d.SeekFrom(known, part)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var kept []*kernels.Tensor
		for range rows { // one dies for each that stays
			d.Alloc(kernels.F32, size/4)
			kept = append(kept, d.Alloc(kernels.F32, size/4))
		}
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		return d.Peak(), d.Sure(), after.NumForcedGC - before.NumForcedGC
	}
	peak, sure, all := count(0, memcount.FinestPart)
	check := func(name string, peak, sure, part int64) {
		t.Helper()
		if peak < want-size || peak > want+want/part || sure > want || sure < peak-peak/part-1 {
			t.Errorf("%s: a peak of %d, surely %d, want %d to a part of 1/%d", name, peak, sure, want, part)
		}
	}
	check("all", peak, sure, memcount.FinestPart)
	peak, sure, coarse := count(0, 8)
	check("coarse", peak, sure, 8)
	peak, sure, fine := count(sure, memcount.FinestPart)
	check("from the coarse one", peak, sure, memcount.FinestPart)
	if coarse == 0 || coarse+fine > all/2 {
		t.Errorf("%d and %d collections, %d in one pass", coarse, fine, all)
	}
}
