package model

import (
	"slices"

	"glimpse/kernels"
)

// Experts are a mixture of experts in the place of an MLP or beside one (Shazeer et al. 2017, arXiv:1701.06538): a router
// scores them for every row, and the row goes through the best of them alone.
type Experts struct {
	Router     *kernels.Tensor // [experts, hidden]
	RouterBias *kernels.Tensor // [experts], or nil
	Gate       kernels.Gate
	Correction *kernels.Tensor // [experts], added to scores where experts are chosen and not where they are weighed, or nil
	// Scales [experts] multiply the weights of the experts, after all else; nil: nothing does.
	Scales *kernels.Tensor
	// RouterNorm and Norm are of the rows that the router and the experts read, where these are given the residual stream.
	RouterNorm, Norm Norm
	Routing
	Each       []Expert
	few        func() *kernels.FewExperts // the same as few rows go through them; nil: rows are grouped by expert
	Shared     *Expert                    // that all rows go through, or nil
	SharedGate *kernels.Tensor            // [1, hidden]: its logistic function weighs Shared; nil: Shared counts in full
}

// Routing is how the scores of a router become weights of experts.
type Routing = kernels.Routing

// Expert is a gated MLP: down(gate · up).
type Expert struct {
	Gate, Up, Down Linear // [width, hidden] twice, [hidden, width]
}

func (e *Expert) linearLayers() []*Linear { return []*Linear{&e.Gate, &e.Up, &e.Down} }

func (e *Expert) weights() (n int64) {
	for _, lin := range e.linearLayers() {
		n += tensorBytes(lin.Weight) + tensorBytes(lin.Bias)
	}
	return n
}

// Weights is the number of weights of router and experts, and of those that one row goes through.
func (e *Experts) Weights() (all, active int64) {
	all = tensorBytes(e.Router) + tensorBytes(e.RouterBias) + tensorBytes(e.Correction) + tensorBytes(e.SharedGate) + tensorBytes(e.Scales) + tensorBytes(e.RouterNorm.Weight) + tensorBytes(e.Norm.Weight)
	active = all
	for i := range e.Each {
		n := e.Each[i].weights()
		all += n
		if i < e.TopK {
			active += n
		}
	}
	if e.Shared != nil {
		all, active = all+e.Shared.weights(), active+e.Shared.weights()
	}
	return all, active
}

// gradient is that of the router's outputs at a choice, from that of the weights.
func gradient(r *kernels.Routing, c kernels.Choice, dWeights []float64) []float64 {
	d := make([]float64, len(c.Scores)) // of the scores first
	mean := 0.0
	for i, e := range c.Experts {
		mean += dWeights[i] * c.Scores[e]
	}
	for i, e := range c.Experts {
		d[e] = r.Factor() * dWeights[i]
		if r.Normalise {
			d[e] = r.Factor() * (dWeights[i] - mean/c.Sum) / c.Sum
		}
	}
	if r.Logistic {
		for e, s := range c.Scores {
			d[e] *= s * (1 - s)
		}
		return d
	}
	sum := 0.0
	for e, s := range c.Scores {
		sum += d[e] * s
	}
	for e, s := range c.Scores {
		d[e] = s * (d[e] - sum)
	}
	return d
}

// share is the rows that go through one expert.
type share struct {
	*Expert
	number  int     // of the expert; -1 of the shared one
	rows    []int32 // ascending
	weights []float64
	at      []int // of the expert in the choices of its rows; nil of the shared one
}

// Pass is rows h [rows, hidden], in the compute type, that go through experts on a backend. The numbers of the router
// are read on the host, which decides. Temporary memory is taken from the arena and given back to it.
type Pass struct {
	On    kernels.Backend
	Arena *kernels.Arena
	H     *kernels.Tensor
	// Rows is how many rows count, the first ones; 0: all.
	Rows int
	// Least is the least number of rows of an expert's products, for what their bits depend on (SameRows of the backend).
	Least int
	// Low gives the low-rank updates that rows have of ExpertModules; nil: none.
	Low func(Module) []RowUpdate
}

func (p *Pass) count() int {
	if p.Rows > 0 {
		return p.Rows
	}
	return p.H.Dim0()
}

// norm is the rows through a norm, or, with the zero Norm, as they are.
func (p *Pass) norm(n Norm) *kernels.Tensor {
	if n.Weight == nil {
		return p.H
	}
	y := p.alloc(p.H.Shape...)
	p.On.Norm(y, p.H, nil, kernels.Norm(n))
	return y
}

// route decides which rows, as experts read them, go where.
func (e *Experts) route(p *Pass, rows *kernels.Tensor) (choices []kernels.Choice, shares []share, gates []float64) {
	n, experts := p.count(), len(e.Each)
	mark := p.Arena.Mark()
	defer p.Arena.Release(mark)
	logits := p.hostProduct(p.norm(e.RouterNorm), e.Router, e.RouterBias)
	var correction, scales []float64
	if e.Correction != nil {
		correction = e.Correction.Float64s()
	}
	if e.Scales != nil {
		scales = e.Scales.Float64s()
	}
	shares = make([]share, experts)
	for i := range shares {
		shares[i].Expert, shares[i].number = &e.Each[i], i
	}
	for row := range n {
		c := e.Choose(logits[row*experts:][:experts], correction)
		for at, i := range c.Experts {
			if scales != nil {
				c.Weights[at] *= scales[i]
			}
			s := &shares[i]
			s.rows, s.weights, s.at = append(s.rows, int32(row)), append(s.weights, c.Weights[at]), append(s.at, at)
		}
		choices = append(choices, c)
	}
	shares = slices.DeleteFunc(shares, func(s share) bool { return len(s.rows) == 0 })
	if e.Shared == nil {
		return choices, shares, nil
	}
	all := share{Expert: e.Shared, number: -1, rows: make([]int32, n), weights: make([]float64, n)}
	for row := range n {
		all.rows[row], all.weights[row] = int32(row), 1
	}
	if e.SharedGate != nil {
		gates = p.hostProduct(rows, e.SharedGate, nil)[:n]
		for row := range n {
			all.weights[row] = kernels.Logistic(gates[row])
		}
	}
	return choices, append(shares, all), gates
}

// hostProduct is rows times w, on the host.
func (p *Pass) hostProduct(rows, w, bias *kernels.Tensor) []float64 {
	mark := p.Arena.Mark()
	defer p.Arena.Release(mark)
	y := p.alloc(rows.Dim0(), w.Dim0())
	p.On.Linear(y, rows, w, bias, 1, 0)
	return y.Float64s()
}

func (p *Pass) alloc(shape ...int) *kernels.Tensor { return p.Arena.Alloc(p.On.Compute(), shape...) }

// gather is the given rows of x, and the first of them again up to the least number.
func (p *Pass) gather(x *kernels.Tensor, rows []int32) *kernels.Tensor {
	ids := rows
	for len(ids) < p.Least {
		ids = append(slices.Clip(ids), rows[0])
	}
	y := p.alloc(len(ids), x.Width())
	p.On.Gather(y, x, ids)
	return y
}

// low are the updates of a share's gate, up and down, of rows by their places in it.
func (p *Pass) low(e *Experts, s *share) (of [3][]RowUpdate) {
	if p.Low == nil || s.number < 0 {
		return of
	}
	for i, module := range ExpertModules {
		for _, u := range p.Low(module) {
			at := RowUpdate{LowRank: u.expert(s.number, len(e.Each)), To: len(s.rows)}
			if u.To > 0 {
				at.From, _ = slices.BinarySearch(s.rows, int32(u.From))
				at.To, _ = slices.BinarySearch(s.rows, int32(u.To))
			}
			if at.From < at.To {
				of[i] = append(of[i], at)
			}
		}
	}
	return of
}

// linear is scale times rows x through a linear layer with updates.
func (p *Pass) linear(y, x *kernels.Tensor, lin Linear, updates []RowUpdate, scale float64) {
	p.On.Linear(y, x, lin.Weight, lin.Bias, scale, 0)
	for _, u := range updates {
		p.On.AddLowRank(u.RowsOf(y), u.RowsOf(x), u.A, u.B, u.Scale*scale, p.Arena)
	}
}

// linearGrad adds the gradient of rows x to beta times dx, from dy, the gradient of linear's output for them, and writes the gradients
// of the factors.
func (p *Pass) linearGrad(dx, dy, x *kernels.Tensor, lin Linear, updates []RowUpdate, factors *LowRank, scale, beta float64) {
	p.On.MatMul(dx, dy, lin.Weight, scale, beta)
	for _, u := range updates {
		low, dLow := p.alloc(x.Dim0(), u.A.Dim0()), p.alloc(x.Dim0(), u.A.Dim0())
		p.On.Linear(low, x, u.A, nil, 1, 0)
		p.On.MatMul(dLow, dy, u.B, u.Scale*scale, 0)
		p.On.MatMul(dx, dLow, u.A, 1, 1)
		p.On.MatMulTA(factors.A, dLow, x, 1, 0)
		p.On.MatMulTA(factors.B, dy, low, u.Scale*scale, 0)
	}
}

// Forward writes to y [rows, hidden], where rows that do not count become 0, scale times what the experts
// give: of every row the sum over its experts in their order, the shared one last. Rows are grouped by expert, and only
// the weights of experts that a row has chosen are read.
func (e *Experts) Forward(y *kernels.Tensor, p Pass, scale float64) {
	whole := p.Arena.Mark()
	defer p.Arena.Release(whole)
	rows := p.norm(e.Norm)
	if few := e.fewRows(&p); few != nil {
		n := p.H.Dim0()
		logits, gates := p.alloc(n, len(e.Each)), (*kernels.Tensor)(nil)
		p.On.Linear(logits, p.norm(e.RouterNorm), e.Router, e.RouterBias, 1, 0)
		if e.SharedGate != nil {
			gates = p.alloc(n, 1)
			p.On.Linear(gates, rows, e.SharedGate, nil, 1, 0)
		}
		p.On.FewExperts(y, rows, logits, gates, few, p.count(), scale, p.Arena)
		return
	}
	_, shares, _ := e.route(&p, rows)
	p.On.Fill(y, 0)
	for _, s := range shares {
		mark := p.Arena.Mark()
		x, low := p.gather(rows, s.rows), p.low(e, &s)
		act, out := p.alloc(x.Dim0(), s.Up.Weight.Dim0()), p.alloc(x.Dim0(), y.Width())
		if e.Gate == kernels.SiLU && len(low[0])+len(low[1]) == 0 {
			p.On.GatedLinear(act, x, s.Gate.linearRows(), s.Up.linearRows(), p.Arena)
		} else {
			gate, up := p.alloc(act.Shape...), p.alloc(act.Shape...)
			p.linear(gate, x, s.Gate, low[0], 1)
			p.linear(up, x, s.Up, low[1], 1)
			p.On.GateMul(e.Gate, act, gate, up)
		}
		p.linear(out, act, s.Down, low[2], scale)
		p.On.AddRows(y, out.Rows(0, len(s.rows)), s.rows, s.weights)
		p.Arena.Release(mark)
	}
}

// fewRows are the experts as few rows go through them where they do; nil where rows are grouped by expert.
func (e *Experts) fewRows(p *Pass) *kernels.FewExperts {
	if p.Low != nil && slices.ContainsFunc(ExpertModules, func(m Module) bool { return len(p.Low(m)) > 0 }) || !e.OnDevice(p.On, p.H.Dim0()) {
		return nil
	}
	return e.few()
}

// OnDevice tells that so many rows go through the experts without the host.
func (e *Experts) OnDevice(on kernels.Backend, rows int) bool {
	return e.few != nil && e.Scales == nil && on.TakesExperts(rows, e.few())
}

// asFew is computed once the weights are there.
func (e *Experts) asFew() *kernels.FewExperts {
	few := &kernels.FewExperts{Routing: e.Routing, Act: e.Gate, Correction: e.Correction, Shared: e.Shared != nil}
	for i := range e.Each {
		few.Each = append(few.Each, e.Each[i].gatedRows())
	}
	if e.Shared != nil {
		few.Each = append(few.Each, e.Shared.gatedRows())
	}
	return few
}

// gatedRows are the layers without an output.
func (e *Expert) gatedRows() kernels.GatedRows {
	return kernels.GatedRows{Gate: e.Gate.linearRows(), Up: e.Up.linearRows(), Down: e.Down.linearRows()}
}

// Backward writes to dh [rows, hidden] the gradient of the rows from that of Forward's sum, dy [rows, hidden], and to factors, by
// module, the gradients of the updates' A and B, which are of all rows and one of a module; of experts that no row has chosen they are 0. The
// weights of experts and router are constants; a row's choice is one, too, and the weights of its experts are not.
func (e *Experts) Backward(dh *kernels.Tensor, factors map[Module]*LowRank, p Pass, dy *kernels.Tensor, scale float64) {
	whole := p.Arena.Mark()
	defer p.Arena.Release(whole)
	rows := p.norm(e.Norm)
	choices, shares, gates := e.route(&p, rows)
	dWeights, dGates := make([][]float64, len(choices)), make([]float64, len(gates))
	for row, c := range choices {
		dWeights[row] = make([]float64, len(c.Experts))
	}
	p.On.Fill(dh, 0)
	for _, f := range factors {
		p.On.Fill(f.A, 0)
		p.On.Fill(f.B, 0)
	}
	dRows, dRouter := p.gradientOf(dh, e.Norm), p.gradientOf(dh, e.RouterNorm)
	for _, s := range shares {
		mark := p.Arena.Mark()
		x, dOut, low := p.gather(rows, s.rows), p.gather(dy, s.rows), p.low(e, &s)
		n, width := x.Dim0(), s.Up.Weight.Dim0()
		gate, up, act, out := p.alloc(n, width), p.alloc(n, width), p.alloc(n, width), p.alloc(n, dy.Width())
		p.linear(gate, x, s.Gate, low[0], 1)
		p.linear(up, x, s.Up, low[1], 1)
		p.On.GateMul(e.Gate, act, gate, up)
		p.linear(out, act, s.Down, low[2], scale)
		for i, dot := range rowDots(out, dOut) {
			switch row := s.rows[i]; {
			case s.at != nil:
				dWeights[row][s.at[i]] = dot
			case gates != nil:
				dGates[row] = dot * s.weights[i] * (1 - s.weights[i])
			}
		}
		dAct, dGate, dUp, dx := p.alloc(n, width), p.alloc(n, width), p.alloc(n, width), p.alloc(n, dy.Width())
		weights, of := s.weights, [3]*LowRank{}
		if len(low[0])+len(low[1])+len(low[2]) > 0 { // whose gradients are of weighted rows
			dOut, weights = p.weighted(dOut, s.weights), slices.Repeat([]float64{1}, len(s.rows))
			for i, module := range ExpertModules {
				if f := factors[module]; f != nil {
					of[i] = f.expert(s.number, len(e.Each))
				}
			}
		}
		p.linearGrad(dAct, dOut, act, s.Down, low[2], of[2], scale, 0)
		p.On.GateMulGrad(e.Gate, dGate, dUp, gate, up, dAct)
		p.linearGrad(dx, dGate, x, s.Gate, low[0], of[0], 1, 0)
		p.linearGrad(dx, dUp, x, s.Up, low[1], of[1], 1, 1)
		p.On.AddRows(dRows, dx, s.rows, weights)
		p.Arena.Release(mark)
	}
	var dLogits, scales []float64
	if e.Scales != nil {
		scales = e.Scales.Float64s()
	}
	for row, c := range choices {
		for at, i := range c.Experts {
			if scales != nil {
				dWeights[row][at] *= scales[i]
			}
		}
		dLogits = append(dLogits, gradient(&e.Routing, c, dWeights[row])...)
	}
	p.addProduct(dRouter, dLogits, e.Router)
	if gates != nil {
		p.addProduct(dRows, dGates, e.SharedGate)
	}
	p.addNormGradient(dh, dRows, e.Norm)
	p.addNormGradient(dh, dRouter, e.RouterNorm)
}

// gradientOf is where the gradient of rows through a norm is summed: apart from dh unless they are the pass's own.
func (p *Pass) gradientOf(dh *kernels.Tensor, n Norm) *kernels.Tensor {
	if n.Weight == nil {
		return dh
	}
	d := p.alloc(dh.Shape...)
	p.On.Fill(d, 0)
	return d
}

// addNormGradient adds to dh what the gradient of rows through a norm is before it.
func (p *Pass) addNormGradient(dh, d *kernels.Tensor, n Norm) {
	if n.Weight == nil {
		return
	}
	dx := p.alloc(dh.Shape...)
	p.On.NormGrad(dx, p.H, d, kernels.Norm(n))
	p.On.Add(dh, dh, dx)
}

// addProduct adds numbers [rows, out] of the host times w [out, hidden].
func (p *Pass) addProduct(dh *kernels.Tensor, numbers []float64, w *kernels.Tensor) {
	mark := p.Arena.Mark()
	defer p.Arena.Release(mark)
	d := p.alloc(dh.Dim0(), w.Dim0())
	kernels.Convert(d, kernels.FromF64(numbers, d.Shape...))
	p.On.MatMul(dh, d, w, 1, 1)
}

// weighted is the first rows of x times a weight each, and zeros.
func (p *Pass) weighted(x *kernels.Tensor, weights []float64) *kernels.Tensor {
	y, rows := p.alloc(x.Shape...), make([]int32, len(weights))
	for i := range rows {
		rows[i] = int32(i)
	}
	p.On.Fill(y, 0)
	p.On.AddRows(y, x, rows, weights)
	return y
}

// rowDots are the products of the rows of a and b.
func rowDots(a, b *kernels.Tensor) []float64 {
	x, y, dots := a.Float64s(), b.Float64s(), make([]float64, a.Dim0())
	for i := range x {
		dots[i/a.Width()] += x[i] * y[i]
	}
	return dots
}

// linearRows is the linear layer without an output.
func (l *Linear) linearRows() kernels.LinearRows {
	return kernels.LinearRows{Weight: l.Weight, Bias: l.Bias}
}
