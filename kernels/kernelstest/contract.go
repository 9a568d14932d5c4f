package kernelstest

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"glimpse/internal/collective/collectivetest"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/memcount"
)

// Contract has what a backend is and what of it has no numbers to compare.
var Contract = map[string]func(t *testing.T, d Device){
	"Name": func(t *testing.T, d Device) {
		if other := Open(t, d.B.Name()); other.B.Name() != d.B.Name() {
			t.Errorf("%s opens %s", d.B.Name(), other.B.Name())
		}
	},
	"Device": func(t *testing.T, d Device) {
		if other := Open(t, d.B.Device()); other.B.Name() != d.B.Name() || other.B.Device() != d.B.Device() {
			t.Errorf("%s opens %s", d.B.Device(), other.B.Device())
		}
	},
	"Model": func(t *testing.T, d Device) {
		if d.B.Name() != "cpu" {
			described(t, d, d.B.Model())
		} else if exact, err := d.B.Exact(); err != nil || d.B.Model() != simd.Arithmetic(simd.Rounded) || exact.Model() != simd.Arithmetic(simd.Float32) {
			t.Errorf("described as %q, exact as %q, error %v", d.B.Model(), exact.Model(), err)
		}
	},
	"Exact": func(t *testing.T, d Device) {
		exact, err := d.B.Exact()
		if err != nil {
			if !d.B.OwnMemory() || !strings.Contains(err.Error(), d.B.Device()) {
				t.Error(err)
			}
			return
		}
		if exact.Name() != d.B.Name() || exact.Device() != d.B.Device() {
			t.Errorf("is %s on %s, want %s on %s", exact.Name(), exact.Device(), d.B.Name(), d.B.Device())
		}
		const out, in = 1 << 10, 1 << 8 // large enough for what may be rounded
		rng := rand.New(rand.NewPCG(60, 2))
		for name, w := range map[string]*kernels.Tensor{
			"Q4_K": d.Blocks(rng, "Q4_K", out, in), "Q4_1": d.Blocks(rng, "Q4_1", out, in), "NVFP4": d.Blocks(rng, "NVFP4", out, in),
			"BF16": d.Weight(rng, kernels.BF16, out, in), "F16": d.Weight(rng, kernels.F16, out, in),
		} {
			W := w.Float64s()
			for _, rows := range []int{1, 16, 17, 40} {
				x := d.Tensor(Random(rng, rows*in, 1), rows, in)
				X := x.Float64s()
				y := d.Garbage(rows, out)
				exact.Linear(y, x, w, nil, 1, 0)
				var off, all float64
				for i, got := range y.Float64s() {
					want := 0.0
					for k := range in {
						want += X[i/out*in+k] * W[i%out*in+k]
					}
					off, all = off+(got-want)*(got-want), all+want*want
				}
				if off = math.Sqrt(off / all); !(off <= 1e-6) {
					t.Errorf("%d rows by %s: off by %.2g in root mean square, want at most 1e-6", rows, name, off)
				}
			}
		}
	},
	"Compute": func(t *testing.T, d Device) {
		if c := d.B.Compute(); c != kernels.F32 && c != kernels.F64 {
			t.Errorf("computes in %s", c)
		}
	},
	"Traits": func(t *testing.T, d Device) {
		if d.B.Traits().Device != d.B.OwnMemory() {
			t.Errorf("a device: %v, memory of its own: %v", d.B.Traits().Device, d.B.OwnMemory())
		}
		if few, many := d.B.Traits().PrefillChunk(1<<40), d.B.Traits().PrefillChunk(1); few > many || (many > 0) != d.B.OwnMemory() {
			t.Errorf("%d rows of a terabyte, %d of a byte", few, many)
		}
		for _, n := range []int{1, 7, 600, 12345} {
			room, more, just := d.B.Traits().RoomFor(kernels.BF16, n, 24), memcount.New(d.B), memcount.New(d.B)
			x, y := more.Alloc(kernels.BF16, room, 24), just.Alloc(kernels.BF16, n, 24)
			if room < n || more.Live() != just.Live() {
				t.Errorf("room for %d of %d rows: %d bytes and %d", room, n, more.Live(), just.Live())
			}
			runtime.KeepAlive([]*kernels.Tensor{x, y})
		}
	},
	"Connect": func(t *testing.T, d Device) { // of one rank; the backends' own tests have more
		link, err := d.B.Connect(t.Context(), collectivetest.InProcess(1)[0])
		var none *kernels.NoLinkError
		switch {
		case err != nil && (!d.B.OwnMemory() || !errors.As(err, &none)):
			t.Error(err)
		case err == nil && (link != nil) != d.B.OwnMemory():
			t.Errorf("link %v, memory of its own: %v", link, d.B.OwnMemory())
		case link != nil:
			if err := link.Wait(t.Context()); err != nil || link.Name() == "" {
				t.Errorf("%s: %v", link.Name(), err)
			}
			link.Close()
		}
	},
	"TakesExperts": func(t *testing.T, d Device) { // FewExperts itself is compared in all cases
		rng := rand.New(rand.NewPCG(5, 7))
		e := &kernels.FewExperts{Routing: kernels.Routing{TopK: 2}}
		for range 5 {
			e.Each = append(e.Each, kernels.GatedRows{Gate: kernels.LinearRows{Weight: d.Weight(rng, kernels.F32, 16, 32)}, Up: kernels.LinearRows{Weight: d.Weight(rng, kernels.F32, 16, 32)}, Down: kernels.LinearRows{Weight: d.Weight(rng, kernels.F32, 32, 16)}})
		}
		const most = 16
		x, logits := d.Tensor(Random(rng, most*32, 1), most, 32), d.Tensor(Random(rng, most*5, 1), most, 5)
		var want []float64
		for rows := most; rows > 0; rows-- {
			if !d.B.TakesExperts(rows, e) {
				continue
			}
			y := d.Garbage(rows, 32)
			d.B.FewExperts(y, x.Rows(0, rows), logits.Rows(0, rows), nil, e, rows, 1, kernels.NewArena(d.B))
			if got := y.Float64s(); want == nil {
				want = got
			} else if !slices.Equal(got, want[:len(got)]) {
				t.Errorf("%d rows: other bits than among %d", rows, len(want)/32)
			}
		}
	},
	"SameRows": func(t *testing.T, d Device) {
		rng := rand.New(rand.NewPCG(31, 7))
		for _, most := range []int{1, 2, 5, 8, 12, 16, 17, 40} {
			for _, weight := range []*kernels.Tensor{
				d.Weight(rng, kernels.F32, 48, 256), d.Weight(rng, kernels.BF16, 48, 256), d.Blocks(rng, "Q4_0", 48, 256), d.Blocks(rng, "Q6_K", 48, 256),
				d.Weight(rng, kernels.F32, 48, 24), d.Weight(rng, kernels.BF16, 48, 36), d.Weight(rng, kernels.F32, 7, 100), // of little depth, of few columns
			} {
				out, width := weight.Dim0(), weight.Width()
				least := d.B.SameRows(most)
				if least < 1 || least > most {
					t.Fatalf("%d rows of %s: %d at the least", most, weight.DType, least)
				}
				x := make([]float64, most*width)
				for i := range x {
					x[i] = rng.NormFloat64()
				}
				y := d.B.Alloc(d.B.Compute(), most, out)
				d.B.Linear(y, d.Tensor(x, most, width), weight, nil, 1, 0)
				want := y.Float64s()
				for rows := least; rows < most; rows++ {
					z := d.B.Alloc(d.B.Compute(), rows, out)
					d.B.Linear(z, d.Tensor(x[:rows*width], rows, width), weight, nil, 1, 0)
					if got := z.Float64s(); !slices.Equal(got, want[:len(got)]) {
						t.Fatalf("%s: %d rows have other bits than among %d", weight.DType, rows, most)
					}
				}
			}
		}
	},
	"Alloc": func(t *testing.T, d Device) {
		x, y := d.B.Alloc(kernels.F32, 3, 5), d.B.Alloc(kernels.F32, 3, 5)
		d.B.Fill(y, 2)
		kernels.Convert(x, kernels.FromF64(make([]float64, 15), 3, 5))
		for _, v := range y.Float64s() {
			if v != 2 {
				t.Fatalf("a tensor has changed another: %v", y.Float64s())
			}
		}
	},
	"OwnMemory": func(t *testing.T, d Device) {
		host := kernels.FromF32([]float32{1})
		if own := d.B.Place(host) != host; own != d.B.OwnMemory() {
			t.Errorf("a placed tensor is another: %v", own)
		}
	},
	"Placed": func(t *testing.T, d Device) {
		for _, name := range []string{"F32", "BF16", "Q8_0", "NVFP4"} {
			stored, err := kernels.ParseStored(name)
			if err != nil {
				t.Fatal(err)
			}
			want := stored
			if d.B.OwnMemory() && name == "NVFP4" {
				want = stored.Numbers()
			}
			placed := d.B.Place(kernels.NewTensor(stored, 2, 64))
			if d.B.Placed(stored) != want || placed.DType != want || placed.Len() != 128 {
				t.Errorf("%s is placed as %s, said to be %s, want %s", name, placed.DType, d.B.Placed(stored), want)
			}
		}
	},
	"Place": func(t *testing.T, d Device) {
		placed := d.B.Place(kernels.FromF32([]float32{1, -2, 3}, 3))
		if v := placed.Float32s(); placed.DType != kernels.F32 || len(v) != 3 || v[0] != 1 || v[1] != -2 || v[2] != 3 {
			t.Errorf("placed %v", v)
		}
	},
	"ArenaLayout": func(t *testing.T, d Device) {
		layout, arena := d.B.ArenaLayout(), kernels.NewArena(d.B)
		for range 3 {
			if at := arena.Alloc(kernels.BF16, 3).Addr(); layout.Align < 16 || !layout.Apart && at%16 != 0 {
				t.Errorf("%+v: a tensor at %#x", layout, at)
			}
		}
		arena.Release(nil)
	},
	"Free": func(t *testing.T, d Device) {
		d.B.Free(nil)
		if d.B.ArenaLayout().Apart {
			before := d.B.Memory().Live
			x := d.B.Alloc(kernels.F32, 1<<16)
			d.B.Free([]*kernels.Tensor{x})
			if after := d.B.Memory().Live; after != before {
				t.Errorf("%d bytes are in use, %d before", after, before)
			}
		}
	},
	"KeptBytes": func(t *testing.T, d Device) {
		for _, entries := range []int{5, 300} {
			s := AttendShape{Rows: 4, Heads: 4, Dim: 8, Entries: []int{entries, entries}, Own: true}
			a := s.Attend(d, rand.New(rand.NewPCG(1, 2)))
			a.Kept = new(kernels.Kept)
			d.B.ObserveAttention(d.Garbage(s.Rows, s.Heads*s.Dim), d.Garbage(s.Heads, s.Rows), d.Garbage(s.Heads, entries), a)
			if want := int64(4 * len(a.Kept.Logits)); d.B.KeptBytes(s.Rows, s.Heads, len(s.Entries), entries) != want {
				t.Errorf("%d bytes are kept of %d entries, want %d", d.B.KeptBytes(s.Rows, s.Heads, len(s.Entries), entries), entries, want)
			}
		}
	},
	"Wait": func(t *testing.T, d Device) {
		x := d.Garbage(5)
		d.B.Fill(x, 1)
		d.B.Wait()
		if x.At(4) != 1 {
			t.Errorf("after Wait: %v", x.Float64s())
		}
	},
	"Time": func(t *testing.T, d Device) {
		refused := errors.New("refused")
		if _, err := d.B.Time(func() error { return refused }); !errors.Is(err, refused) {
			t.Errorf("error %v, want f's", err)
		}
		if took, err := d.B.Time(func() error { d.B.Fill(d.Garbage(100), 1); return nil }); err != nil || took <= 0 || took > time.Minute {
			t.Errorf("took %v: %v", took, err)
		}
	},
	"Memory": func(t *testing.T, d Device) {
		before := d.B.Memory()
		x := d.B.Alloc(kernels.F32, 1<<18)
		if grown := d.B.Memory().Live - before.Live; (grown >= 1<<20) != d.B.OwnMemory() || (before.Total > 0) != d.B.OwnMemory() {
			t.Errorf("a tensor of a MiB takes %d bytes of %d", grown, before.Total)
		}
		x.Len()
	},
	"ResetPeak": func(t *testing.T, d Device) {
		d.B.ResetPeak()
		if use := d.B.Memory(); use.Peak != use.Held {
			t.Errorf("peak %d, held %d", use.Peak, use.Held)
		}
	},
	"LimitMemory": func(t *testing.T, d Device) {
		before := d.B.Memory().Total
		restore := d.B.LimitMemory(1 << 20)
		limited := d.B.Memory().Total
		restore()
		if after := d.B.Memory().Total; after != before || d.B.OwnMemory() && limited != 1<<20 {
			t.Errorf("total %d, limited %d, then %d", before, limited, after)
		}
	},
	"RoundsToBF16": func(t *testing.T, d Device) {
		w := d.B.Alloc(kernels.F32, 4, 4)
		if d.B.RoundsToBF16(1, w) || d.B.RoundsToBF16(1000, w) {
			t.Error("rounds rows for weights in float32")
		}
	},
	"TakesBias": func(t *testing.T, d Device) { // where it is nil, the tests of package kernels hold attention with biases against the reference
		if err := d.B.TakesBias(); (err != nil) != d.B.OwnMemory() {
			t.Errorf("biases: %v, memory of its own: %v", err, d.B.OwnMemory())
		}
	},
	"DrawsInPlace": func(t *testing.T, d Device) {
		if d.B.DrawsInPlace() && !d.B.OwnMemory() {
			t.Error("draws elsewhere than on the host")
		}
	},
	"NewGraph": func(t *testing.T, d Device) {
		if g := d.B.NewGraph(); (g != nil) != d.B.Traits().Graphs {
			t.Errorf("graphs: %v, one is there: %v", d.B.Traits().Graphs, g != nil)
		} else if g != nil {
			g.Close()
		}
	},
	"Selector": func(t *testing.T, d Device) { onlyDevices(t, d, d.B.Selector().OwnMemory()) },
	"HostSelector": func(t *testing.T, d Device) {
		if sel := d.B.HostSelector(); sel.OwnMemory() || sel.HostSelector().OwnMemory() {
			t.Error("what selects on the host has memory of its own")
		}
	},
}

func described(t *testing.T, d Device, text string) {
	if (text != "") != d.B.OwnMemory() {
		t.Errorf("described as %q", text)
	}
}

// onlyDevices have what is there.
func onlyDevices(t *testing.T, d Device, there bool) {
	if there != d.B.OwnMemory() {
		t.Errorf("is there: %v", there)
	}
}
