//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// partsCase is two layers, of which each scores, selects, and attends to what it has
// selected, with products before, between and after.
type partsCase struct {
	d         kernelstest.Device
	x, weight *kernels.Tensor
	log       []*kernels.Tensor // by layer
	y, copies []*kernels.Tensor
	past      [][]kernels.KV
	entries   [][]int
	budget    int
}

const partsHeads, partsKVHeads, partsDim, partsRoom = 4, 2, 8, 90

func newPartsCase(d kernelstest.Device, seed uint64) *partsCase {
	rng := rand.New(rand.NewPCG(seed, 11))
	c := &partsCase{d: d, x: d.Tensor(kernelstest.Random(rng, partsHeads*partsDim, 1), 1, partsHeads, partsDim), weight: d.Weight(rng, kernels.BF16, partsHeads*partsDim, partsHeads*partsDim)}
	for range 2 {
		c.log = append(c.log, d.Tensor(kernelstest.Random(rng, partsHeads*partsRoom, 3), partsHeads, partsRoom))
		c.y, c.copies = append(c.y, d.Tensor(kernelstest.Random(rng, partsHeads*partsDim, 1), 1, partsHeads*partsDim)), append(c.copies, d.Garbage(1, partsHeads*partsDim))
		c.past = append(c.past, nil)
		c.entries = append(c.entries, make([]int, partsKVHeads))
	}
	return c
}

// draw changes what is in lists: the entries of all heads, and where their pairs lie.
func (c *partsCase) draw(rng *rand.Rand) {
	for l := range c.past {
		c.past[l] = nil
		for h := range partsKVHeads {
			n := partsRoom - rng.IntN(25) // of as many threads
			c.entries[l][h] = n
			c.past[l] = append(c.past[l], kernels.KV{K: c.d.Tensor(kernelstest.Random(rng, n*partsDim, 1), n, partsDim), V: c.d.Tensor(kernelstest.Random(rng, n*partsDim, 1), n, partsDim)})
		}
	}
}

// dense computes the queries of a layer from what the layer before has left.
func (c *partsCase) dense(b kernels.Backend, l int) {
	b.Linear(c.x.Reshape(1, c.x.Len()), c.y[1-l], c.weight, nil, 0.5, 0)
}

// layer is one segment; outside of a preparation it begins with its dense one.
func (c *partsCase) layer(b kernels.Backend, l int) error {
	if b == c.d.B {
		c.dense(b, l)
	}
	sel := b.Selector()
	scores := b.Alloc(kernels.F32, partsKVHeads, partsRoom)
	sel.Scores(scores, c.entries[l], []kernels.ScoreTerm{{LogScore: c.log[l], Kernel: 3}}, false)
	s := sel.Select(scores, c.entries[l], slices.Repeat([]int{c.budget}, partsKVHeads), 1, 2)
	b.AttentionSelected(c.y[l], nil, &kernels.Attend{Q: c.x, Past: c.past[l], Scale: 0.4}, s, nil)
	b.Copy(c.copies[l], c.y[l])
	return nil
}

func (c *partsCase) check(t *testing.T, name string, want *partsCase) {
	t.Helper()
	for l := range 2 {
		compare.Close(t, fmt.Sprintf("%s layer %d", name, l), c.copies[l].Float64s(), want.copies[l].Float64s(), 0)
	}
	compare.Close(t, name+": queries", c.x.Float64s(), want.x.Float64s(), 0)
}

// TestCUDASegments: segments of a graph that are prepared before every replay compute what the
// same calls compute without, whatever lists they bring; they serve again while nothing
// but lists differs, and are recorded anew where more does.
func TestCUDASegments(t *testing.T) {
	d := openCUDA(t)
	warnings, restore := cuda.CatchWarnings(d.B)
	defer restore()
	before := cuda.InUse(d.B)
	func() {
		g := d.B.NewGraph()
		defer g.Close()
		b, c, plain := g.Backend(), newPartsCase(d, 1), newPartsCase(d, 1)
		for i, budget := range []int{9, 9, 9, 30, 30, 9, 9} {
			for _, c := range []*partsCase{c, plain} {
				if c.budget = budget; i != 2 { // then the same lists once more
					c.draw(rand.New(rand.NewPCG(uint64(i), 12)))
				}
			}
			for l := range 2 {
				if err := errors.Join(plain.layer(d.B, l), g.Prepare(l, func() error { return c.layer(b, l) })); err != nil {
					t.Fatal(err)
				}
			}
			if anew := i == 0 || i == 3 || i == 5; g.Prepared() == anew {
				t.Errorf("round %d: what is recorded serves: %v", i, anew)
			}
			if !g.Prepared() && (!g.Record(func() {
				for l := range 2 {
					c.dense(b, l)
					g.Segment(l)
				}
			}) || !g.Prepared()) {
				t.Fatal("nothing was recorded that serves")
			}
			g.Replay()
			c.check(t, fmt.Sprint("round ", i), plain)
		}
		// The graph keeps nothing that only lists name.
		held, pairs := cuda.InUse(d.B), int64(0)
		for _, c := range []*partsCase{c, plain} {
			for l := range c.past {
				for _, kv := range c.past[l] {
					pairs += int64(kv.K.Bytes() + kv.V.Bytes())
				}
				c.past[l] = nil
			}
		}
		if left := cuda.InUse(d.B); left > held-pairs {
			t.Errorf("%d bytes are in use without the pairs, with them %d, of which they are %d", left, held, pairs)
		}
		// Without a graph.
		c.draw(rand.New(rand.NewPCG(1, 13)))
		plain.draw(rand.New(rand.NewPCG(1, 13)))
		for l := range 2 {
			if err := errors.Join(plain.layer(d.B, l), g.Prepare(l, func() error { return c.layer(b, l) })); err != nil {
				t.Fatal(err)
			}
		}
		for l := range 2 {
			c.dense(b, l)
			g.Segment(l)
		}
		c.check(t, "without a graph", plain)
	}()
	if after := cuda.InUse(d.B); after != before {
		t.Errorf("%d bytes are in use, %d before", after, before)
	}
	if len(*warnings) > 0 {
		t.Errorf("warnings %q", *warnings)
	}
}

// TestCUDASegmentsRefuse: what cannot be prepared is an error that names the operation.
func TestCUDASegmentsRefuse(t *testing.T) {
	d := openCUDA(t)
	g, c := newGraph(t, d), newPartsCase(d, 2)
	for want, f := range map[string]func(b kernels.Backend){
		"Linear: products cannot be prepared": func(b kernels.Backend) { // one of few rows is a launch like any other
			b.Linear(b.Alloc(kernels.F32, 9, c.weight.Dim0()), b.Alloc(kernels.F32, 9, c.weight.Width()), c.weight, nil, 1, 0)
		},
		"SumSquares: waits for the device":     func(b kernels.Backend) { b.SumSquares(c.x) },
		"write: writes device memory from the": func(b kernels.Backend) { b.Place(kernels.NewTensor(kernels.I32, 3)) },
		"read: reads device memory": func(b kernels.Backend) {
			b.Selector().Select(c.log[0], []int{9, 9, 9, 9}, []int{1, 1, 1, 1}, 0, 0).Indices()
		},
	} {
		err := func() (err error) {
			defer kernels.CatchDevice(&err)
			return g.Prepare(0, func() error { f(g.Backend()); return nil })
		}()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		x := g.Backend().Alloc(kernels.F32, 3) // outside of a segment, all is as before
		kernels.Convert(x, kernels.FromF64([]float64{1, 2, 3}, 3))
		compare.Close(t, "afterwards", x.Float64s(), []float64{1, 2, 3}, 0)
	}
	if err := g.Prepare(0, func() error { return errOwn }); !errors.Is(err, errOwn) {
		t.Errorf("error %v", err)
	}
}

// TestCUDAStepsObserved: the scores of a recorded step are those of ObserveAttention bit
// for bit, of ragged heads and over more entries than there were when it was recorded; and
// a step that attends to nothing appends the same and copies the queries.
func TestCUDAStepsObserved(t *testing.T) {
	d := openCUDA(t)
	for i, s := range []struct {
		heads, kvHeads, dim int
		entries             []int // by KV head of two layers
		first               []int32
		pairs               kernels.DType
		cap                 float64
		sinks               bool
	}{
		{1, 1, 4, []int{0, 3}, nil, kernels.F32, 0, false},
		{6, 3, 8, []int{30, 250, 1, 0, 249, 5}, nil, kernels.F32, 0, false},
		{4, 2, 80, []int{33, 600, 270, 31}, []int32{0, 30, 9, 31}, kernels.BF16, 0, false},
		{4, 2, 80, []int{33, 600, 270, 31}, []int32{0, 30, 9, 31}, kernels.BF16, 1, true},
		{6, 3, 6, []int{30, 250, 1, 0, 249, 5}, nil, kernels.F32, 1, true},
		{70, 1, 8, []int{40, 63}, nil, kernels.BF16, 0, false},
	} {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		const layers, steps = 2, 3
		g := newGraph(t, d)
		b := g.Backend()
		q := d.Tensor(kernelstest.Random(rng, s.heads*s.dim, 1), 1, s.heads, s.dim)
		k, v := d.Tensor(kernelstest.Random(rng, s.kvHeads*s.dim, 1), 1, s.kvHeads, s.dim), d.Tensor(kernelstest.Random(rng, s.kvHeads*s.dim, 1), 1, s.kvHeads, s.dim)
		var past, appended [][]kernels.KV
		longest := slices.Max(s.entries) + steps
		var sinks *kernels.Tensor
		if s.sinks {
			sinks = d.Tensor(kernelstest.Random(rng, s.heads, 1), s.heads)
		}
		for l := range layers {
			past, appended = append(past, nil), append(appended, nil)
			for h := range s.kvHeads {
				n := s.entries[l*s.kvHeads+h] + steps
				x, y := kernelstest.Random(rng, n*s.dim, 1), kernelstest.Random(rng, n*s.dim, 1)
				past[l] = append(past[l], kernels.KV{K: d.Stored(s.pairs, x, n, s.dim), V: d.Stored(s.pairs, y, n, s.dim)})
				appended[l] = append(appended[l], kernels.KV{K: d.Stored(s.pairs, x, n, s.dim), V: d.Stored(s.pairs, y, n, s.dim)})
			}
		}
		views := func(past [][]kernels.KV, more int) (out [][]kernels.KV) {
			for l := range layers {
				out = append(out, nil)
				for h, kv := range past[l] {
					n := s.entries[l*s.kvHeads+h] + more
					out[l] = append(out[l], kernels.KV{K: kv.K.Rows(0, n), V: kv.V.Rows(0, n)})
				}
			}
			return out
		}
		state, other := b.NewSteps(1, layers, s.kvHeads), b.NewSteps(1, layers, s.kvHeads)
		out, copied := d.Garbage(layers, s.heads*s.dim), d.Garbage(1, s.heads, s.dim)
		scores := d.Garbage(layers*s.heads, kernels.EntryBucket(longest))
		if !g.Record(func() {
			b.StartStep(state, 1)
			b.StartStep(other, 1)
			for l := range layers {
				at := kernels.StepLayer{Layer: l, Pairs: s.pairs, Longest: []int{slices.Max(s.entries[l*s.kvHeads:(l+1)*s.kvHeads]) + steps}, Windowed: s.first != nil, Scale: 0.3, SoftCap: s.cap, Sinks: sinks, Scores: scores.Rows(l*s.heads, (l+1)*s.heads)}
				b.StepAttention(out.Rows(l, l+1), q, k, v, state, at)
				b.StepAttention(copied, q, k, v, other, kernels.StepLayer{Layer: l, Pairs: s.pairs})
			}
		}) {
			t.Fatal("nothing was recorded")
		}
		b.SetSteps(state, 0, 0, views(past, 0))
		b.SetSteps(other, 0, 0, views(appended, 0))
		for step := range steps {
			b.SetStep(state, nil, s.first)
			g.Replay()
			now := views(past, step+1)
			for l := range layers {
				name := fmt.Sprintf("case %d step %d layer %d", i, step, l)
				a := &kernels.Attend{Q: q, Past: now[l], Scale: 0.3, SoftCap: s.cap, Sinks: sinks}
				if s.first != nil { // as positions that a window cuts there
					a.Window, a.Positions = 1000, []int32{5000}
					for h := range a.Past {
						n := a.Past[h].K.Dim0()
						for j := range n {
							at := int32(4500 + j)
							if j < int(s.first[l*s.kvHeads+h]) {
								at = int32(j)
							}
							a.Past[h].Positions = append(a.Past[h].Positions, at)
						}
					}
				}
				wantOut, lse, want := d.Garbage(1, s.heads*s.dim), d.Garbage(s.heads, 1), d.Garbage(s.heads, longest)
				d.B.ObserveAttention(wantOut, lse, want, a)
				compare.Close(t, name+": output", out.Rows(l, l+1).Float64s(), wantOut.Float64s(), 0)
				got, w := scores.Rows(l*s.heads, (l+1)*s.heads).Float64s(), want.Float64s()
				for h := range s.heads {
					n := a.Past[h/(s.heads/s.kvHeads)].K.Dim0()
					compare.Close(t, fmt.Sprintf("%s head %d: scores", name, h), got[h*scores.Width():][:n], w[h*longest:][:n], 0, compare.EqualInf())
				}
				for h, kv := range views(appended, step+1)[l] {
					compare.Close(t, name+": keys", kv.K.Float64s(), now[l][h].K.Float64s(), 0)
					compare.Close(t, name+": values", kv.V.Float64s(), now[l][h].V.Float64s(), 0)
				}
			}
			compare.Close(t, "queries", copied.Float64s(), q.Float64s(), 0)
		}
	}
}

// TestCUDALayersTogether: means over the KV heads of every layer in turn are those of the
// layers by themselves, and so are parts of selections and joined ones.
func TestCUDALayersTogether(t *testing.T) {
	d, sel := openSelector(t)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 6))
		layers, kvHeads, n := 1+rng.IntN(4), 1+rng.IntN(3), 1+rng.IntN([]int{20, 600}[seed%2])
		width := n + rng.IntN(4)
		log := d.Tensor(kernelstest.Random(rng, layers*kvHeads*2*width, 1), layers*kvHeads*2, width)
		entries := slices.Repeat([]int{n}, layers*kvHeads)
		all := d.Garbage(layers*kvHeads, width)
		how := []kernels.Grouping{kernels.GroupMean, kernels.GroupLogMean}[seed/2%2]
		sel.Scores(all, entries, []kernels.ScoreTerm{{LogScore: log, Group: how}}, false)
		sel.MeanScores(all, entries, kvHeads, how == kernels.GroupLogMean)
		budget := 1 + rng.IntN(n)
		s := sel.Select(all, entries, slices.Repeat([]int{budget}, layers*kvHeads), 0, 0)
		var parts []*kernels.Selection
		for l := range layers {
			one := d.Garbage(kvHeads, width)
			sel.Scores(one, entries[:kvHeads], []kernels.ScoreTerm{{LogScore: log.Rows(2*l*kvHeads, 2*(l+1)*kvHeads), Group: how}}, true)
			got := all.Rows(l*kvHeads, (l+1)*kvHeads).Float64s()
			for h, w := range kernelstest.RowsOf(one, entries[:kvHeads]) {
				compare.Close(t, fmt.Sprintf("seed %d: layer %d head %d", seed, l, h), got[h*width:][:n], kernels.FromF32(w, n).Float64s(), 0)
			}
			part := sel.Select(one, entries[:kvHeads], slices.Repeat([]int{budget}, kvHeads), 0, 0)
			parts = append(parts, part)
			if of := s.HeadRange(l*kvHeads, (l+1)*kvHeads); !slices.EqualFunc(of.Indices(), part.Indices(), slices.Equal[[]int32]) {
				t.Errorf("seed %d: layer %d keeps %v, by itself %v", seed, l, of.Indices(), part.Indices())
			}
		}
		if joined := kernels.JoinSelections(d.B, parts); !slices.EqualFunc(joined.Indices(), s.Indices(), slices.Equal[[]int32]) {
			t.Errorf("seed %d: joined %v, want %v", seed, joined.Indices(), s.Indices())
		}
	}
	short := sel.Select(d.Garbage(1, 4), []int{4}, []int{2}, 0, 0)
	if kernels.JoinSelections(d.B, []*kernels.Selection{short, kernels.HostSelection([][]int32{{1, 2}})}) != nil {
		t.Error("a selection of the host was joined")
	}
}

// TestCUDAGraphsInArenas runs the tests of graphs once more on a device that hands out memory as
// it does for users: pieces of larger blocks, used again.
func TestCUDAGraphsInArenas(t *testing.T) {
	openCUDA(t)
	if os.Getenv("GLIMPSE_CUDA_EXACT") == "" {
		t.Skip("all tests run so")
	}
	cmd := exec.Command(os.Args[0], "-test.run", "TestCUDASegments|TestCUDASteps|TestCUDAGraphRuns")
	cmd.Env = append(os.Environ(), "GLIMPSE_CUDA_EXACT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
