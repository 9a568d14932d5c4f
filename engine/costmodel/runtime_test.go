package costmodel_test

import (
	"math"
	"os"
	"slices"
	"testing"

	"glimpse/engine/costmodel"
	"glimpse/eviction"
	_ "glimpse/gates"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
	_ "glimpse/softtokens"
)

// counting is the backend cpu that counts the operations of products and attention.
type counting struct {
	kernels.Decomposed
	deep
}

// deep hides what Decomposed has, too.
type deep struct{ kernels.Backend }

// counted are the floating-point operations so far, of the one goroutine that runs them.
var counted float64

func init() {
	kernels.Backends.Add("counting", func() (kernels.Backend, error) {
		cpu, err := kernels.Open("cpu")
		b := &counting{deep: deep{cpu}}
		b.Decomposed = kernels.Decompose(b)
		return b, err
	})
}

// recurrences are the operations that a row has cost which goes through an output matrix, before it does.
var recurrences = map[*kernels.Tensor]float64{}

func (b *counting) Name() string { return "counting" }

func (b *counting) Linear(y, x, w, bias *kernels.Tensor, alpha, beta float64) {
	counted += 2*float64(x.Dim0())*float64(w.Len()) + recurrences[w]*float64(x.Dim0())
	b.Backend.Linear(y, x, w, bias, alpha, beta)
}

// products counts n products of every query and each of the keys that it sees.
func products(n int, a *kernels.Attend) {
	pastProducts(n, a)
	for r := range a.Rows() {
		from, to := a.VisibleOwn(r)
		counted += float64(2 * n * a.Heads() * (to - from) * a.HeadDim())
	}
}

// pastProducts is products of the keys that the cache has.
func pastProducts(n int, a *kernels.Attend) {
	for g := range a.Past {
		for r := range a.Rows() {
			from, to := a.Visible(g, r)
			counted += float64(2 * n * a.Group() * (to - from) * a.HeadDim())
		}
	}
}

func (b *counting) Attention(out, lse *kernels.Tensor, a *kernels.Attend) {
	products(1, a)
	if out != nil {
		products(1, a)
	}
	b.Backend.Attention(out, lse, a)
}

func (b *counting) ObservedScores(logScore, lse *kernels.Tensor, a *kernels.Attend) {
	products(1, a)
	b.Backend.ObservedScores(logScore, lse, a)
}

// ObservedPeaks reads the rows' own keys for nothing.
func (b *counting) ObservedPeaks(logScore, lse *kernels.Tensor, a *kernels.Attend, temp kernels.Allocator) {
	pastProducts(1, a)
	b.Backend.ObservedPeaks(logScore, lse, a, temp)
}

// ObserveAttention is one pass over the keys.
func (b *counting) ObserveAttention(out, lse, logScore *kernels.Tensor, a *kernels.Attend) {
	products(1, a)
	if out != nil {
		products(1, a)
	}
	b.Backend.ObserveAttention(out, lse, logScore, a)
}

// configured is a policy with resources of m's size.
func configured(t *testing.T, m *model.Model, name string) *eviction.Configured {
	t.Helper()
	needs, err := eviction.NeedsOf(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	var r eviction.Resources
	if kind, err := model.RowsKinds.Lookup(needs.Adapter); err == nil {
		c := model.AdapterConfig{Rows: 5, InitToken: -1, InitNoise: 1}
		if needs.Adapter == "lookaheadkv" {
			c.Rank, c.Alpha, c.Modules = 2, 4, model.Modules
		}
		if r.Adapter, err = kind.New(m, c); err != nil {
			t.Fatal(err)
		}
	} else if needs.Adapter != "" {
		kind, err := model.AdapterKinds.Lookup(needs.Adapter)
		if err != nil {
			t.Fatal(err)
		}
		if r.Adapter, err = kind.Usual(m); err != nil {
			t.Fatal(err)
		}
	}
	if needs.Draft {
		if r.Draft, err = m.Cut(1); err != nil {
			t.Fatal(err)
		}
	}
	if needs.Pattern {
		r.Pattern = &eviction.Pattern{Heads: slices.Repeat([][]float64{make([]float64, m.Config.KVHeads)}, m.Config.Layers)}
	}
	p, err := eviction.NewWith(name, 0, nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// weightsRead are the bytes of the weights that a decoding step reads.
func weightsRead(m *model.Model) float64 {
	bytes := m.Network.Head.Weight.Bytes()
	for l := range m.Network.Layers {
		for _, name := range model.Modules {
			if lin := m.Network.Layers[l].Linear(name); lin != nil {
				bytes += lin.Weight.Bytes()
			}
		}
		if g := m.Network.Layers[l].OutputGate.Weight; g != nil {
			bytes += g.Bytes()
		}
		if in := m.Network.Layers[l].Input; in != nil {
			bytes += in.Projection.Bytes() + m.Network.Layers[l].Linear(model.InputGate).Weight.Bytes() + m.Network.Layers[l].Linear(model.InputProj).Weight.Bytes()
		}
		if r := m.Network.Layers[l].Recurrent; r != nil {
			for _, w := range r.Matrices() {
				bytes += w.Bytes()
			}
			bytes += 2 * int(model.StateBytes(r, m.Backend.Compute()))
		}
		if e := m.Network.Layers[l].Experts; e != nil {
			_, active := e.Weights()
			bytes += e.Router.DType.Bytes(int(active))
		}
	}
	return float64(bytes)
}

// TestRuntimeCounts: what a session of every policy computes before the first token, counted
// as it runs, is what the cost model says, to the operation; so is a decoding step of the
// policies whose steps read all that is kept. Families differ in their modules, experts and sliding
// windows.
func TestRuntimeCounts(t *testing.T) {
	some := []string{"full", "snapkv", "h2o", "speckv", "laq", "lookaheadkv", "tova"}
	models := map[string]*model.Model{
		"llama": modeltest.Llama{Layers: 3, MaxPositions: 256}.Open(t, "counting"),
	}
	for _, name := range []string{"mistral-window", "falcon", "phi4-mini", "qwen2-moe", "olmo3", "qwen3-next", "qwen3.5", "lfm2", "gemma4-e2b"} {
		m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, name).Folder), "counting")
		models[name] = m
		for l := range m.Network.Layers {
			switch r := m.Network.Layers[l].Recurrent.(type) {
			case *model.DeltaNet: // decay, product with the key, correction and reading of a state
				recurrences[r.Out] = float64(7 * r.ValueHeads * r.KeyDim * r.ValueDim)
			case *model.ShortConv: // two gates, and products and sums of the rows that are seen
				recurrences[r.Out] = float64((2*r.Kernel + 1) * r.Width)
			}
		}
	}
	const tokens, budget, maxNew = 90, 24, 5
	for at, m := range models {
		m.Config.EOS = nil // drafts are as long as they may be
		names := some
		if at == "llama" {
			names = eviction.Policies.Names()
		}
		costs := costmodel.New(m, costmodel.H100PCIe, costmodel.Runtime)
		for _, name := range names {
			t.Run(at+"/"+name, func(t *testing.T) {
				p := configured(t, m, name)
				e := costs.Estimate(p, costmodel.Run{Tokens: tokens, Budget: budget, MaxNew: maxNew})
				off := 0.0
				if name == "d2o" { // whose layer budgets, and so what is merged, depend on the prompt
					off = 1e-3
				}
				rt := eviction.NewRuntime(m)
				counted = 0
				s, err := rt.Prefill(t.Context(), p, eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens), MaxNew: maxNew, Budget: budget, Response: make([]int32, maxNew)})
				if err != nil {
					t.Fatal(err)
				}
				if want := e.TTFT.FLOPs; math.Abs(counted-want) > off*want {
					t.Errorf("%.0f operations before the first token, the cost model has %.0f, of it %.0f of the prompt", counted, want, e.Plain.FLOPs)
				}
				held := 0.0 // and states
				if slices.ContainsFunc(m.Config.Mixers, func(x model.Mixer) bool { return x.Recurrence != nil }) {
					held = float64(m.Config.CacheBytes(0, m.CacheDType()))
				}
				for l := range s.Cache.Layers() {
					for h := range s.Cache.LayerKVHeads(l) {
						held += float64(s.Cache.Entries(l, h)) * float64(s.Cache.LayerPairBytes(l))
					}
				}
				// Heads and layers whose shares are rounded down leave entries unused.
				if held > e.HeldBytes || held < 0.9*e.HeldBytes {
					t.Errorf("%.0f bytes held, the cost model has %.0f", held, e.HeldBytes)
				}
				counted = 0
				if _, _, err := s.Generate(t.Context(), runner.GenerateOptions{MaxNew: maxNew, IgnoreEnd: true}); err != nil {
					t.Fatal(err)
				}
				// Bytes per step: the weights, the step's own pairs, and what attention reads.
				read := e.Step.Bytes - weightsRead(m) - float64(s.Cache.TokenBytes())
				w := p.Workload(&m.Config, tokens, budget, maxNew)
				sparse, least := w.Read > 0, 0.97*read
				if sparse || m.Config.HasWindows() { // pages are whole, and windows leave some of the kept entries
					least = 0.5 * read
				}
				if got := s.Traffic.PerStep(); !w.Merges && (got > read*(1+1e-9) || got < least) {
					t.Errorf("attention reads %.0f bytes per step, the cost model has %.0f", got, read)
				}
				if sparse {
					return
				}
				// Entries left unused are not read.
				if got, want := counted/(maxNew-1), e.Step.FLOPs; got > want || got < 0.97*want {
					t.Errorf("%.0f operations per step, the cost model has %.0f", got, want)
				}
			})
		}
	}
}
