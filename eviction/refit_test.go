package eviction_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// naiveSolve is the solution [n, d] of (A + ridge)X = B for a symmetric A [n, n], by Gauss.
func naiveSolve(a, b [][]float64, ridge float64) [][]float64 {
	n := len(a)
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = slices.Concat(a[i], b[i])
		rows[i][i] += ridge
	}
	for k := range n {
		for i := range n {
			if f := rows[i][k] / rows[k][k]; i != k {
				for j := range rows[i] {
					rows[i][j] -= f * rows[k][j]
				}
			}
		}
	}
	for k := range n {
		for j := range rows[k][n:] {
			rows[k][n+j] /= rows[k][k]
		}
		rows[k] = rows[k][n:]
	}
	return rows
}

// naiveHead is Attention Matching of one head in plain loops.
type naiveHead struct {
	shares, target, v [][]float64
	ids               []int32
	held              []float64 // by query, the kept entries' part of the mass
	squares           float64   // of their shares, times that
}

func newNaiveHead(q, k, v [][]float64, bias []float64, ids []int32, scale, softCap float64) *naiveHead {
	m, n, dim := len(q), len(k), len(k[0])
	f := &naiveHead{shares: make([][]float64, m), target: make([][]float64, m), v: v, ids: ids}
	for i := range q {
		sum := 0.0
		f.shares[i], f.target[i] = make([]float64, n), make([]float64, dim)
		for j := range k {
			x := 0.0
			for c := range dim {
				x += q[i][c] * k[j][c] * scale
			}
			if softCap > 0 {
				x = softCap * math.Tanh(x/softCap)
			}
			if j < len(bias) {
				x += bias[j]
			}
			f.shares[i][j] = math.Exp(x)
			sum += f.shares[i][j]
		}
		for j := range k {
			f.shares[i][j] /= sum
			for c := range dim {
				f.target[i][c] += f.shares[i][j] * v[j][c]
			}
		}
		held := 0.0
		for _, id := range ids {
			held += f.shares[i][id]
		}
		for _, id := range ids {
			f.squares += held * held * f.shares[i][id] * f.shares[i][id]
		}
		f.held = append(f.held, held)
	}
	return f
}

// cost is how far factors are from the masses, and its slopes.
func (f *naiveHead) cost(w []float64) (cost float64, slopes []float64) {
	ridge := eviction.MassRidge * f.squares / float64(len(w))
	slopes = make([]float64, len(w))
	for i := range f.shares {
		r := -1.0
		for j, id := range f.ids {
			r += w[j] * f.shares[i][id]
		}
		r *= f.held[i]
		for j, id := range f.ids {
			slopes[j] += r * f.held[i] * f.shares[i][id]
		}
		cost += r * r
	}
	for j, x := range w {
		slopes[j] += ridge * (x - 1)
		cost += ridge * (x - 1) * (x - 1)
	}
	return cost, slopes
}

// least is the cost of the best factors, by projected gradients.
func (f *naiveHead) least() float64 {
	w := slices.Repeat([]float64{1}, len(f.ids))
	for range 100000 {
		_, slopes := f.cost(w)
		for j := range w {
			w[j] = min(max(w[j]-slopes[j]/(f.squares*(1+eviction.MassRidge)), math.Exp(-3)), math.Exp(3))
		}
	}
	cost, _ := f.cost(w)
	return cost
}

// values fits the values of kept entries to all queries, by the normal equations. w are the factors of their weights.
func (f *naiveHead) values(w []float64) []float64 {
	kept, dim := len(f.ids), len(f.v[0])
	gram, right, trace := make([][]float64, kept), make([][]float64, kept), 0.0
	for j := range gram {
		gram[j], right[j] = make([]float64, kept), make([]float64, dim)
	}
	for i := range f.shares {
		x, sum := make([]float64, kept), 0.0
		for j, id := range f.ids {
			x[j] = w[j] * f.shares[i][id]
			sum += x[j]
		}
		rest := slices.Clone(f.target[i])
		for c := range dim {
			rest[c] *= min(1, sum)
		}
		for j, id := range f.ids {
			x[j] /= max(1, sum)
			trace += x[j] * x[j]
			for c := range dim {
				rest[c] -= x[j] * f.v[id][c]
			}
		}
		for j := range x {
			for l := range x {
				gram[j][l] += x[j] * x[l]
			}
			for c := range dim {
				right[j][c] += x[j] * rest[c]
			}
		}
	}
	out := naiveSolve(gram, right, eviction.ValueRidge*trace)
	for j, id := range f.ids {
		for c := range dim {
			out[j][c] += f.v[id][c]
		}
	}
	return slices.Concat(out...)
}

// TestFitHead holds the fit of a head against plain loops, with fewer queries than entries and with more, and of entries that have biases already.
func TestFitHead(t *testing.T) {
	for _, c := range []struct {
		name             string
		queries, n, kept int
		biased           int
		softCap          float64
	}{{"more queries", 40, 60, 9, 0, 0}, {"fewer queries", 6, 60, 20, 0, 0}, {"one entry", 12, 30, 1, 0, 0}, {"a second turn", 24, 40, 10, 25, 0}, {"soft cap", 24, 40, 10, 0, 2}} {
		rng := rand.New(rand.NewPCG(7, 3))
		const dim, scale = 8, 0.4
		rows := func(n int) (flat []float32, rows [][]float64) {
			for range n {
				var row []float64
				for range dim {
					x := float32(rng.NormFloat64())
					flat, row = append(flat, x), append(row, float64(x))
				}
				rows = append(rows, row)
			}
			return flat, rows
		}
		q, wideQ := rows(c.queries)
		k, wideK := rows(c.n)
		v, wideV := rows(c.n)
		kv := kernels.KV{K: kernels.FromF32(k, c.n, dim), V: kernels.FromF32(v, c.n, dim)}
		var bias []float64
		if c.biased > 0 {
			all := make([]float32, c.biased)
			for i := range all {
				all[i] = float32(rng.NormFloat64())
				bias = append(bias, float64(all[i]))
			}
			kv.Bias = kernels.FromF32(all, c.biased)
		}
		var ids []int32
		for _, i := range rng.Perm(c.n)[:c.kept] {
			ids = append(ids, int32(i))
		}
		slices.Sort(ids)
		for _, biased := range []bool{false, true} {
			values, biases, err := eviction.FitHead(kv, q, ids, scale, c.softCap, biased)
			if err != nil {
				t.Fatal(err)
			}
			f, w := newNaiveHead(wideQ, wideK, wideV, bias, ids, scale, c.softCap), slices.Repeat([]float64{1}, c.kept)
			for j, b := range biases {
				if w[j] = float64(b); int(ids[j]) < len(bias) {
					w[j] -= bias[ids[j]]
				}
				w[j] = math.Exp(w[j])
			}
			compare.CloseToScale(t, c.name+": values", values, f.values(w), 1e-2)
			if len(biases) != map[bool]int{true: c.kept}[biased] {
				t.Fatalf("%s: %d biases of %d entries, want some: %v", c.name, len(biases), c.kept, biased)
			}
			if !biased {
				continue
			}
			cost, _ := f.cost(w)
			unfitted, _ := f.cost(slices.Repeat([]float64{1}, c.kept))
			if least := f.least(); cost > least+0.01*(unfitted-least) {
				t.Errorf("%s: masses cost %v, want at most 1%% of the way from %v to %v", c.name, cost, least, unfitted)
			}
		}
	}
}

// TestRefitOfNothingLost: every entry that is evicted has a kept one with its key and value. The fit gives what the whole head gave, to
// queries that were no references, too.
func TestRefitOfNothingLost(t *testing.T) {
	const dim, kept, copies = 4, 5, 3
	rng := rand.New(rand.NewPCG(1, 3))
	draw := func(n int) (out []float32) {
		for range n * dim {
			out = append(out, float32(rng.NormFloat64()))
		}
		return out
	}
	k, v, q, asked := draw(kept), draw(kept), draw(50), draw(20)
	var allK, allV []float32
	for range copies {
		allK, allV = append(allK, k...), append(allV, v...)
	}
	whole := kernels.KV{K: kernels.FromF32(allK, kept*copies, dim), V: kernels.FromF32(allV, kept*copies, dim)}
	values, biases, err := eviction.FitHead(whole, q, []int32{0, 1, 2, 3, 4}, 1, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	b, err := kernels.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	attend := func(kv kernels.KV) (out, lse []float64) {
		y, z := kernels.NewTensor(kernels.F32, 20, dim), kernels.NewTensor(kernels.F32, 1, 20)
		own := kernels.NewTensor(kernels.F32, 20, 1, dim)
		b.Attention(y, z, &kernels.Attend{Q: kernels.FromF32(asked, 20, 1, dim), Past: []kernels.KV{kv}, K: own, V: own, Scale: 1})
		return y.Float64s(), z.Float64s()
	}
	wantOut, wantLSE := attend(whole)
	out, lse := attend(kernels.KV{K: kernels.FromF32(k, kept, dim), V: kernels.FromF32(values, kept, dim), Bias: kernels.FromF32(biases, kept)})
	compare.CloseToScale(t, "out", out, wantOut, 5e-2)
	compare.CloseToScale(t, "lse", lse, wantLSE, 5e-2)
}

// TestRefitKeepsTheSame: what is kept does not depend on whether it is refitted, and one that keeps everything is left as it is. A session and a study
// have the same caches.
func TestRefitKeepsTheSame(t *testing.T) {
	const n, budget = 80, 12
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32, MaxPositions: 400, Seed: 3}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 4, n)
	for _, name := range []string{"snapkv", "lookaheadkv", "kvzip", "laq++", "pyramidkv", "compose"} {
		plain := prefill(t, m, policy(t, m, name), tokens, budget)
		for _, how := range []string{"values", "matching"} {
			p := policy(t, m, name, name+".refit="+how)
			s := prefill(t, m, p, tokens, budget)
			if !sameKept(s.Kept(), plain.Kept()) {
				t.Errorf("%s: %s keeps other entries", name, how)
			}
			if s.Cache.Biased() != (how == "matching") || plain.Cache.Biased() {
				t.Errorf("%s: %s: biases: %v", name, how, s.Cache.Biased())
			}
			if a, b := s.Cache.View(1)[0], plain.Cache.View(1)[0]; !slices.Equal(a.K.F32(), b.K.F32()) || slices.Equal(a.V.F32(), b.V.F32()) {
				t.Errorf("%s: %s: want the same keys and other values", name, how)
			}
			study, err := eviction.NewRuntime(m).Study(context.Background(), []*eviction.Configured{policy(t, m, name), p}, eviction.Prompt{Tokens: tokens, MaxNew: 4}, []int{budget, n}, runner.GenerateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range map[int]*eviction.Session{0: plain, 2: s} {
				for range 2 {
					got, err := study.Session(study.Choices[i])
					if err != nil {
						t.Fatal(err)
					}
					for l := range m.Config.Layers {
						for h, kv := range got.Cache.View(l) {
							of := want.Cache.View(l)[h]
							if !slices.Equal(kv.V.F32(), of.V.F32()) || kv.Biased() != of.Biased() || kv.Biased() > 0 && !slices.Equal(kv.Bias.F32(), of.Bias.F32()) {
								t.Fatalf("%s: %s: choice %d of a study, layer %d head %d: another cache", name, how, i, l, h)
							}
						}
					}
				}
			}
			if whole := prefill(t, m, p, tokens, n); whole.Cache.Biased() {
				t.Errorf("%s: %s: biases where nothing is evicted", name, how)
			}
		}
	}
}

// TestRefitThroughTurns: a second turn selects among entries with biases, and its own refit goes on from them.
func TestRefitThroughTurns(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 32, MaxPositions: 400, Seed: 3}.Open(t, "cpu")
	s := prefill(t, m, policy(t, m, "snapkv", "snapkv.refit=matching"), modeltest.Tokens(m, 4, 60), 12)
	for turn := range 3 {
		if got := generate(t, s, 5); len(got) != 5 {
			t.Fatalf("turn %d: %d tokens", turn, len(got))
		}
		if err := s.Turn(background, eviction.Prompt{Tokens: modeltest.Tokens(m, uint64(5+turn), 30), MaxNew: 5}); err != nil {
			t.Fatal(err)
		}
		for l := range m.Config.Layers {
			for h, kv := range s.Cache.View(l) {
				if kv.Entries() != 12 || kv.Biased() != 12 {
					t.Errorf("turn %d: layer %d head %d: %d entries with %d biases, want 12", turn, l, h, kv.Entries(), kv.Biased())
				}
			}
		}
	}
}

// TestRefitIsRefused: by policies that choose while they decode or merge, stages, quantised caches and windows that are evicted.
func TestRefitIsRefused(t *testing.T) {
	for _, name := range []string{"h2o", "d2o", "quest", "rocketkv", "tova"} {
		overrides, err := eviction.ParseOverrides([]string{name + ".refit=values"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := eviction.New(name, 1, overrides, nil); err == nil || !strings.Contains(err.Error(), "option refit") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	overrides, err := eviction.ParseOverrides([]string{"snapkv.refit=matching"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eviction.New("snapkv:quest", 1, overrides, nil); err == nil || !strings.Contains(err.Error(), "refit=none") {
		t.Errorf("a stage: error %v", err)
	}
	m := modeltest.Llama{Layers: 2, HeadDim: 32, MaxPositions: 400, Seed: 3}.Open(t, "cpu")
	if err := policy(t, m, "snapkv", "snapkv.refit=matching", "snapkv.windows=evict").Fits(m); err == nil || !strings.Contains(err.Error(), "windows=evict") {
		t.Errorf("windows: error %v", err)
	}
	if err := m.SetCacheDType("q8_0"); err != nil {
		t.Fatal(err)
	}
	if err := policy(t, m, "snapkv", "snapkv.refit=values").Fits(m); err == nil || !strings.Contains(err.Error(), "q8_0") {
		t.Errorf("a quantised cache: error %v", err)
	}
}
