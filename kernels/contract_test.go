package kernels_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"glimpse/kernels"
)

// contract has what a backend is and what of it has no numbers to compare.
var contract = map[string]func(t *testing.T, d device){
	"Name": func(t *testing.T, d device) {
		if other := open(t, d.b.Name()); other.b.Name() != d.b.Name() {
			t.Errorf("%s opens %s", d.b.Name(), other.b.Name())
		}
	},
	"Device": func(t *testing.T, d device) {
		if other := open(t, d.b.Device()); other.b.Name() != d.b.Name() || other.b.Device() != d.b.Device() {
			t.Errorf("%s opens %s", d.b.Device(), other.b.Device())
		}
	},
	"Model":  func(t *testing.T, d device) { described(t, d, d.b.Model()) },
	"Driver": func(t *testing.T, d device) { described(t, d, d.b.Driver()) },
	"Compute": func(t *testing.T, d device) {
		if c := d.b.Compute(); c != kernels.F32 && c != kernels.F64 {
			t.Errorf("computes in %s", c)
		}
	},
	"Traits": func(t *testing.T, d device) {
		if d.b.Traits().Device != d.b.OwnMemory() {
			t.Errorf("a device: %v, memory of its own: %v", d.b.Traits().Device, d.b.OwnMemory())
		}
	},
	"PrefillChunk": func(t *testing.T, d device) {
		if few, many := d.b.PrefillChunk(1<<40), d.b.PrefillChunk(1); few > many || (many > 0) != d.b.OwnMemory() {
			t.Errorf("%d rows of a terabyte, %d of a byte", few, many)
		}
	},
	"Alloc": func(t *testing.T, d device) {
		x, y := d.b.Alloc(kernels.F32, 3, 5), d.b.Alloc(kernels.F32, 3, 5)
		d.b.Fill(y, 2)
		kernels.Convert(x, kernels.FromF64(make([]float64, 15), 3, 5))
		for _, v := range y.Float64s() {
			if v != 2 {
				t.Fatalf("a tensor has changed another: %v", y.Float64s())
			}
		}
	},
	"OwnMemory": func(t *testing.T, d device) {
		host := kernels.FromF32([]float32{1})
		if own := d.b.Place(host) != host; own != d.b.OwnMemory() {
			t.Errorf("a placed tensor is another: %v", own)
		}
	},
	"Place": func(t *testing.T, d device) {
		placed := d.b.Place(kernels.FromF32([]float32{1, -2, 3}, 3))
		if v := placed.Float32s(); placed.DType != kernels.F32 || len(v) != 3 || v[0] != 1 || v[1] != -2 || v[2] != 3 {
			t.Errorf("placed %v", v)
		}
	},
	"RoomFor": func(t *testing.T, d device) {
		for _, n := range []int{1, 7, 600, 12345} {
			room, more, just := d.b.RoomFor(kernels.BF16, n, 24), kernels.NewDry(d.b), kernels.NewDry(d.b)
			x, y := more.Alloc(kernels.BF16, room, 24), just.Alloc(kernels.BF16, n, 24)
			if room < n || room != more.RoomFor(kernels.BF16, n, 24) || more.Live() != just.Live() {
				t.Errorf("room for %d of %d rows: %d bytes and %d", room, n, more.Live(), just.Live())
			}
			runtime.KeepAlive([]*kernels.Tensor{x, y})
		}
	},
	"ArenaLayout": func(t *testing.T, d device) {
		layout, arena := d.b.ArenaLayout(), kernels.NewArena(d.b)
		for range 3 {
			if at := arena.Alloc(kernels.BF16, 3).Addr(); layout.Align < 16 || !layout.Apart && at%16 != 0 {
				t.Errorf("%+v: a tensor at %#x", layout, at)
			}
		}
		arena.Release(nil)
	},
	"Free": func(t *testing.T, d device) {
		d.b.Free(nil)
		if d.b.ArenaLayout().Apart {
			before := d.b.Memory().Live
			x := d.b.Alloc(kernels.F32, 1<<16)
			d.b.Free([]*kernels.Tensor{x})
			if after := d.b.Memory().Live; after != before {
				t.Errorf("%d bytes are in use, %d before", after, before)
			}
		}
	},
	"Wait": func(t *testing.T, d device) {
		x := d.garbage(5)
		d.b.Fill(x, 1)
		d.b.Wait()
		if x.At(4) != 1 {
			t.Errorf("after Wait: %v", x.Float64s())
		}
	},
	"Time": func(t *testing.T, d device) {
		refused := errors.New("refused")
		if _, err := d.b.Time(func() error { return refused }); !errors.Is(err, refused) {
			t.Errorf("error %v, want f's", err)
		}
		if took, err := d.b.Time(func() error { d.b.Fill(d.garbage(100), 1); return nil }); err != nil || took <= 0 || took > time.Minute {
			t.Errorf("took %v: %v", took, err)
		}
	},
	"Calls":     func(t *testing.T, d device) { counts(t, d, d.b.Calls) },
	"HostBytes": func(t *testing.T, d device) { counts(t, d, d.b.HostBytes) },
	"Memory": func(t *testing.T, d device) {
		before := d.b.Memory()
		x := d.b.Alloc(kernels.F32, 1<<18)
		if grown := d.b.Memory().Live - before.Live; (grown >= 1<<20) != d.b.OwnMemory() || (before.Total > 0) != d.b.OwnMemory() {
			t.Errorf("a tensor of a MiB takes %d bytes of %d", grown, before.Total)
		}
		x.Len()
	},
	"ResetPeak": func(t *testing.T, d device) {
		d.b.ResetPeak()
		if use := d.b.Memory(); use.Peak != use.Held {
			t.Errorf("peak %d, held %d", use.Peak, use.Held)
		}
	},
	"LimitMemory": func(t *testing.T, d device) {
		before := d.b.Memory().Total
		restore := d.b.LimitMemory(1 << 20)
		limited := d.b.Memory().Total
		restore()
		if after := d.b.Memory().Total; after != before || d.b.OwnMemory() && limited != 1<<20 {
			t.Errorf("total %d, limited %d, then %d", before, limited, after)
		}
	},
	"RoundsToBF16": func(t *testing.T, d device) {
		w := d.b.Alloc(kernels.F32, 4, 4)
		if d.b.RoundsToBF16(1, w) || d.b.RoundsToBF16(1000, w) {
			t.Error("rounds rows for weights in float32")
		}
	},
	"DrawsInPlace": func(t *testing.T, d device) {
		if d.b.DrawsInPlace() && !d.b.OwnMemory() {
			t.Error("draws elsewhere than on the host")
		}
	},
	"NewGraph": func(t *testing.T, d device) {
		if g := d.b.NewGraph(); (g != nil) != d.b.Traits().Graphs {
			t.Errorf("graphs: %v, one is there: %v", d.b.Traits().Graphs, g != nil)
		} else if g != nil {
			g.Close()
		}
	},
	"Stepper":  func(t *testing.T, d device) { onlyDevices(t, d, d.b.Stepper() != nil) },
	"Selector": func(t *testing.T, d device) { onlyDevices(t, d, d.b.Selector() != nil) },
}

func described(t *testing.T, d device, text string) {
	if (text != "") != d.b.OwnMemory() {
		t.Errorf("described as %q", text)
	}
}

// onlyDevices have what is there.
func onlyDevices(t *testing.T, d device, there bool) {
	if there != d.b.OwnMemory() {
		t.Errorf("is there: %v", there)
	}
}

// counts checks a count of work that only devices are given.
func counts(t *testing.T, d device, count func() int64) {
	before := count()
	d.garbage(3).Float64s()
	if after := count(); (after > before) != d.b.OwnMemory() {
		t.Errorf("counted %d, and %d before", after, before)
	}
}
