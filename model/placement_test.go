package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
)

func TestShareOut(t *testing.T) {
	for name, c := range map[string]struct {
		need, rooms []int64
		want        []int
	}{
		"alike":             {[]int64{5, 5, 5, 5}, []int64{10, 10}, []int{2, 4}},
		"a large head":      {[]int64{5, 5, 5, 5, 16}, []int64{10, 10}, []int{4, 5}},
		"a small device":    {[]int64{5, 5, 5, 5}, []int64{30, 10}, []int{3, 4}},
		"none is empty":     {[]int64{1, 1, 1}, []int64{1 << 40, 1, 1}, []int{1, 2, 3}},
		"as many as layers": {[]int64{9, 1}, []int64{1, 1}, []int{1, 2}},
	} {
		if got := shareOut(c.need, c.rooms); !slices.Equal(got, c.want) {
			t.Errorf("%s: layers end at %v, want %v", name, got, c.want)
		}
	}
	// Against all ways to cut.
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		need, rooms := make([]int64, 3+rng.IntN(6)), make([]int64, 3)
		for _, x := range [][]int64{need, rooms} {
			for i := range x {
				x[i] = 1 + rng.Int64N(50)
			}
		}
		worst := func(a, b int) float64 {
			most, from := 0.0, 0
			for i, to := range []int{a, b, len(need)} {
				var sum int64
				for _, n := range need[from:to] {
					sum += n
				}
				most, from = max(most, float64(sum)/float64(rooms[i])), to
			}
			return most
		}
		ends := shareOut(need, rooms)
		got := worst(ends[0], ends[1])
		for a := 1; a < len(need)-1; a++ {
			for b := a + 1; b < len(need); b++ {
				if w := worst(a, b); w < got {
					t.Fatalf("%v on %v: ends %v need %v of a device, ends %d and %d %v", need, rooms, ends, got, a, b, w)
				}
			}
		}
	}
}

// TestRoomOfDevices: a run may need as much as leaves the fullest device full.
func TestRoomOfDevices(t *testing.T) {
	devices, err := kernels.OpenList("cpu,cpu")
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{stages: []Stage{{devices[0], 0, 3, 0.75}, {devices[1], 3, 4, 0.25}}}
	free := map[kernels.Backend]int64{devices[0]: 60, devices[1]: 40}
	if got := m.room(func(b kernels.Backend) int64 { return free[b] }); got != 80 {
		t.Errorf("room for %d, want 80: the first has 60 for three quarters", got)
	}
	free[devices[1]] = 10
	if got := m.room(func(b kernels.Backend) int64 { return free[b] }); got != 40 {
		t.Errorf("room for %d, want 40: the second has 10 for a quarter", got)
	}
}

func TestDeviceList(t *testing.T) {
	for names, want := range map[string][]string{
		"cpu": {"cpu"}, "cpu,cpu": {"cpu", "cpu"}, "cuda:1-3": {"cuda:1", "cuda:2", "cuda:3"}, "cuda:0, cuda:2": {"cuda:0", "cuda:2"}, "cuda:0-1,cuda:5": {"cuda:0", "cuda:1", "cuda:5"},
		"cuda:3-1": nil, "cuda:-1": nil, "cuda:0-": nil, "cuda:0-99": nil,
	} {
		got, err := kernels.DeviceList(names)
		if (err != nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%q is %v (%v), want %v", names, got, err, want)
		}
	}
}
