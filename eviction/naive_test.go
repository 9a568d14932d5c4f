package eviction_test

import (
	"cmp"
	"math"
	"slices"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
)

// naive is a Llama forward pass in float64, written from the formulas, with every
// attention probability kept. The policies' second implementations are made of it.
type naive struct {
	c         *model.Config
	embedding matrix
	layers    []naiveLayer
	norm      []float64
	head      matrix
	// choose, where it is set, restricts a row's attention in a KV head: it gets the
	// queries of the group and the visible entries and returns the indices attended
	// to, and what then becomes of each query's output (nil: nothing).
	choose func(layer, head int, queries [][]float64, visible []pair) (idx []int, after func(query int, out []float64) []float64)
}

type naiveLayer struct {
	attentionNorm, mlpNorm []float64
	linear                 map[model.Module]matrix
}

type matrix [][]float64 // [row][column]

func toMatrix(t *kernels.Tensor) matrix {
	flat, w := t.Float64s(), t.Width()
	m := make(matrix, t.Dim0())
	for i := range m {
		m[i] = flat[i*w : (i+1)*w]
	}
	return m
}

// times is m · x.
func (m matrix) times(x []float64) []float64 {
	y := make([]float64, len(m))
	for o, row := range m {
		for i, w := range row {
			y[o] += w * x[i]
		}
	}
	return y
}

func newNaive(m *model.Model) *naive {
	n := &naive{c: &m.Config, embedding: toMatrix(m.Network.Embedding), norm: m.Network.FinalNorm.Weight.Float64s(), head: toMatrix(m.Network.Head.Weight)}
	for i := range m.Network.Layers {
		l := &m.Network.Layers[i]
		layer := naiveLayer{l.AttentionNorm.Weight.Float64s(), l.MLPNorm.Weight.Float64s(), make(map[model.Module]matrix)}
		for _, module := range model.Modules {
			layer.linear[module] = toMatrix(l.Linear(module).Weight)
		}
		n.layers = append(n.layers, layer)
	}
	return n
}

// pair is a key, rotated, and its value.
type pair struct{ k, v []float64 }

// pairs is a cache: [layer][kvHead][entry].
type pairs [][][]pair

func (m *naive) empty() pairs {
	p := make(pairs, m.c.Layers)
	for l := range p {
		p[l] = make([][]pair, m.c.KVHeads)
	}
	return p
}

// only is the cache of the kept entries.
func (p pairs) only(keep [][][]int32) pairs {
	out := make(pairs, len(p))
	for l := range p {
		out[l] = make([][]pair, len(p[l]))
		for h := range p[l] {
			for _, j := range keep[l][h] {
				out[l][h] = append(out[l][h], p[l][h][j])
			}
		}
	}
	return out
}

// pass is what rows did: the attention of every row and head, [layer][head][row]
// [column], columns being the entries before the rows and then the rows
// themselves up to the row's own; the rows' queries and pairs; and their logits.
type pass struct {
	attention [][][][]float64
	inputs    []matrix        // [layer][row], that queries, keys and values are made of
	queries   [][][][]float64 // [layer][head][row]
	own       pairs           // [layer][kvHead][row]
	logits    matrix          // [row]
}

// embed is the input of tokens.
func (m *naive) embed(tokens []int32) matrix {
	x := make(matrix, len(tokens))
	for i, id := range tokens {
		x[i] = m.embedding[id]
	}
	return x
}

// run runs rows with inputs x on past, the first of them at position next. low
// is the low-rank update of a module, nil for none.
func (m *naive) run(past pairs, x matrix, next int, low func(layer int, module model.Module) *model.LowRank) pass {
	c := m.c
	out := pass{own: m.empty()}
	x = slices.Clone(x)
	for l, layer := range m.layers {
		linear := func(module model.Module, h []float64) []float64 {
			y := layer.linear[module].times(h)
			if low == nil {
				return y
			}
			if u := low(l, module); u != nil {
				for i, v := range toMatrix(u.B).times(toMatrix(u.A).times(h)) {
					y[i] += u.Scale * v
				}
			}
			return y
		}
		attention, queries, inputs := make([][][]float64, c.Heads), make([][][]float64, c.Heads), make(matrix, len(x))
		for r := range x {
			h := rmsNorm(x[r], layer.attentionNorm, c.RMSNormEps)
			inputs[r] = h
			q, k, v := linear(model.QProj, h), linear(model.KProj, h), linear(model.VProj, h)
			for g := range c.KVHeads {
				at := g * c.HeadDim
				out.own[l][g] = append(out.own[l][g], pair{m.rotate(k[at:at+c.HeadDim], next+r), slices.Clone(v[at : at+c.HeadDim])})
			}
			mixed := make([]float64, 0, c.Heads*c.HeadDim)
			for head := range c.Heads {
				queries[head] = append(queries[head], m.rotate(q[head*c.HeadDim:(head+1)*c.HeadDim], next+r))
			}
			for g := range c.KVHeads {
				visible := slices.Concat(past[l][g], out.own[l][g])
				attended, after := visible, func(_ int, out []float64) []float64 { return out }
				if m.choose != nil {
					var group [][]float64
					for i := range c.Group() {
						group = append(group, queries[g*c.Group()+i][r])
					}
					idx, change := m.choose(l, g, group, visible)
					attended = nil
					for _, j := range idx {
						attended = append(attended, visible[j])
					}
					if change != nil {
						after = change
					}
				}
				for i := range c.Group() {
					head := g*c.Group() + i
					p := softmax(queries[head][r], attended)
					attention[head] = append(attention[head], p)
					o := make([]float64, c.HeadDim)
					for j, e := range attended {
						for i := range o {
							o[i] += p[j] * e.v[i]
						}
					}
					mixed = append(mixed, after(i, o)...)
				}
			}
			x[r] = plus(x[r], linear(model.OProj, mixed))
			h = rmsNorm(x[r], layer.mlpNorm, c.RMSNormEps)
			gate, up := linear(model.GateProj, h), linear(model.UpProj, h)
			for i := range gate {
				gate[i] = gate[i] / (1 + math.Exp(-gate[i])) * up[i]
			}
			x[r] = plus(x[r], linear(model.DownProj, gate))
		}
		out.attention, out.queries, out.inputs = append(out.attention, attention), append(out.queries, queries), append(out.inputs, inputs)
	}
	for r := range x {
		out.logits = append(out.logits, m.head.times(rmsNorm(x[r], m.norm, c.RMSNormEps)))
	}
	return out
}

// with is the cache after the rows were added to it.
func (p pairs) with(rows pass) pairs {
	out := make(pairs, len(p))
	for l := range p {
		for h := range p[l] {
			out[l] = append(out[l], slices.Concat(p[l][h], rows.own[l][h]))
		}
	}
	return out
}

func plus(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

func rmsNorm(x, w []float64, eps float64) []float64 {
	mean := 0.0
	for _, v := range x {
		mean += v * v / float64(len(x))
	}
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] / math.Sqrt(mean+eps) * w[i]
	}
	return out
}

// rotate applies RoPE in the half-split layout; angles are rounded to float32 as
// everywhere in this field.
func (m *naive) rotate(x []float64, pos int) []float64 {
	half := len(x) / 2
	out := make([]float64, len(x))
	for i := range half {
		angle := float64(float32(pos) * m.c.RoPEFreqs[i])
		re, im := x[i], x[i+half]
		out[i] = re*math.Cos(angle) - im*math.Sin(angle)
		out[i+half] = re*math.Sin(angle) + im*math.Cos(angle)
	}
	return out
}

// softmax is the attention of a query on entries.
func softmax(q []float64, visible []pair) []float64 {
	p, top, sum := make([]float64, len(visible)), math.Inf(-1), 0.0
	for j, e := range visible {
		for i := range q {
			p[j] += q[i] * e.k[i] / math.Sqrt(float64(len(q)))
		}
		top = max(top, p[j])
	}
	for j := range p {
		p[j] = math.Exp(p[j] - top)
		sum += p[j]
	}
	for j := range p {
		p[j] /= sum
	}
	return p
}

// greedy generates tokens from the logits of the row before, each step on what
// evict leaves of the cache (nil: everything).
func (m *naive) greedy(past pairs, logits []float64, next, n int) (tokens []int32, steps []pass) {
	for {
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		tokens = append(tokens, int32(best))
		if len(tokens) == n {
			return tokens, steps
		}
		step := m.run(past, m.embed(tokens[len(tokens)-1:]), next, nil)
		past, logits, next = past.with(step), step.logits[0], next+1
		steps = append(steps, step)
	}
}

// meanScores is, per layer, KV head and entry below n, the mean over rows [from,
// to) and the heads of the group of the attention probabilities.
func (m *naive) meanScores(attention [][][][]float64, from, to, n int) [][][]float64 {
	out := make([][][]float64, m.c.Layers)
	for l := range out {
		out[l] = make([][]float64, m.c.KVHeads)
		for g := range out[l] {
			s := make([]float64, n)
			for h := range m.c.Heads {
				if h/m.c.Group() != g {
					continue
				}
				for r := from; r < to; r++ {
					for j, p := range attention[l][h][r] {
						if j < n {
							s[j] += p / float64(to-from) / float64(m.c.Group())
						}
					}
				}
			}
			out[l][g] = s
		}
	}
	return out
}

// pooled is every element's maximum over a window centred on it.
func pooled(x []float64, kernel int) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i]
		for j := range x {
			if j >= i-kernel/2 && j <= i+kernel/2 {
				out[i] = max(out[i], x[j])
			}
		}
	}
	return out
}

// pooledBefore pools what is before the last tail elements, which stay as they are.
func pooledBefore(x []float64, kernel, tail int) []float64 {
	end := max(0, len(x)-tail)
	return slices.Concat(pooled(x[:end], kernel), x[end:])
}

// naivePlan is what a policy's second implementation wants kept.
type naivePlan struct {
	scores       [][][]float64 // [layer][kvHead][entry]; nil: nothing is scored
	budgets      []int         // of every layer
	headBudgets  [][]int       // [layer][kvHead], where heads have their own
	sink, recent int
	// protected are further entries kept, whatever their scores; ties tells whether
	// two selections differ only by what almost equals, for plans that choose by more
	// than scores.
	protected [][][]int32
	ends      func(budget int) (sink, recent int) // instead of sink and recent, by the layer's budget
	chosen    [][][]int32                         // what is kept, where more than scores and budgets say it
	ties      func(l, h int, a, b []int32, tol float64) bool
	// rounded: scores that are equal by the formula differ by rounding, which then
	// decides between them.
	rounded bool
}

// apart tells whether two scores are too far apart, or too equal, to change places.
func (p naivePlan) apart(x, y, tol float64) bool {
	return x == y && !p.rounded || math.Abs(x-y) > tol*max(math.Abs(x), math.Abs(y))
}

// uniform is the same budget in every layer.
func (m *naive) uniform(budget int) []int {
	return slices.Repeat([]int{budget}, m.c.Layers)
}

// order is the unprotected entries of a head, best first: higher scores, then
// lower positions.
func (p naivePlan) order(l, h, n int) []int32 {
	var order []int32
	for j := p.sink; j < n-p.recent; j++ {
		order = append(order, int32(j))
	}
	if p.scores != nil {
		slices.SortStableFunc(order, func(a, b int32) int { return -cmp.Compare(p.scores[l][h][a], p.scores[l][h][b]) })
	}
	return order
}

// kept is the indices that the plan keeps of n entries.
func (p naivePlan) kept(l, h, n int) []int32 {
	if p.chosen != nil {
		return p.chosen[l][h]
	}
	if p.ends != nil {
		p.sink, p.recent = p.ends(p.budgets[l])
	}
	budget := p.budgets[l]
	if p.headBudgets != nil {
		budget = p.headBudgets[l][h]
	}
	if n <= budget {
		p.sink = n
	}
	var keep []int32
	for j := range int32(n) {
		if j < int32(p.sink) || j >= int32(n-p.recent) || p.protected != nil && slices.Contains(p.protected[l][h], j) {
			keep = append(keep, j)
		}
	}
	if len(keep) < n {
		rest := slices.DeleteFunc(p.order(l, h, n), func(j int32) bool { return slices.Contains(keep, j) })
		keep = append(keep, rest[:budget-len(keep)]...)
	}
	slices.Sort(keep)
	return keep
}

// naiveCase is a prompt on which a second implementation plans.
type naiveCase struct {
	*naive
	tokens   []int32
	prompt   pass
	full     pairs // of the prompt
	budget   int
	option   func(name string) float64
	text     func(name string) string // of an option that is a choice
	response []int32
	maxNew   int
	// estimateFree gives a sparse policy's whole budget to attention.
	estimateFree bool

	resources eviction.Resources
	tol       float64 // of a backend that computes in float32; 0: of float64
	// stage changes the first selection of a policy that looks twice; nil leaves it.
	stage func(naivePlan) naivePlan
}

// tolerance is for what is compared with the second implementation, floor what keys and
// values are at least taken for.
func (c *naiveCase) tolerance() float64 { return max(1e-5, c.tol) }

func (c *naiveCase) floor() float64 { return max(1e-3, 100*c.tol) }

// first is the selection that a draft is decoded on.
func (c *naiveCase) first(p naivePlan) naivePlan {
	if c.stage == nil {
		return p
	}
	return c.stage(p)
}

// rows is the attention of one query head, row by row.
type rows [][]float64

// mean and most reduce rows [from, to) to one number per entry below n.
func (r rows) mean(from, to, n int) []float64 {
	out := make([]float64, n)
	for j := range out {
		for _, p := range r[from:to] {
			if j < len(p) {
				out[j] += p[j] / float64(to-from)
			}
		}
	}
	return out
}

func (r rows) most(from, to, n int) []float64 {
	out := make([]float64, n)
	for j := range out {
		for _, p := range r[from:to] {
			if j < len(p) {
				out[j] = max(out[j], p[j])
			}
		}
	}
	return out
}

// grouped reduces what of gives for every query head to KV heads, in the way that
// the option group says.
func (c *naiveCase) grouped(of func(layer, head int) []float64) [][][]float64 {
	out := make([][][]float64, c.c.Layers)
	for l := range out {
		out[l] = make([][]float64, c.c.KVHeads)
		for h := range c.c.Heads {
			g, s := h/c.c.Group(), of(l, h)
			if out[l][g] == nil {
				out[l][g] = make([]float64, len(s))
			}
			for j, v := range s {
				switch c.text("group") {
				case "mean":
					out[l][g][j] += v / float64(c.c.Group())
				case "sum":
					out[l][g][j] += v
				case "max":
					out[l][g][j] = max(out[l][g][j], v)
				}
			}
		}
	}
	return out
}

// naivePolicies are the second implementations by policy; the file of each
// policy's test adds its own. They plan for prompts longer than the budget.
var naivePolicies = map[string]func(c *naiveCase) naivePlan{}

// naiveWithin are those that choose within the budget, too.
var naiveWithin = map[string]bool{}

func (c *naiveCase) n() int { return len(c.tokens) }

func (c *naiveCase) int(name string) int { return int(c.option(name)) }

// probe runs rows after the prompt.
func (c *naiveCase) probe(x matrix, low func(int, model.Module) *model.LowRank) pass {
	return c.run(c.full, x, c.n(), low)
}
