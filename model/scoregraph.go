package model

import "glimpse/autodiff"

// ScoreGraph adds to g the pass of learned rows through the frozen network, on
// top of the sample's prompt, and returns every layer's scores: the graph twin of
// Runner.Probe. rows is [n, hidden]; lora gives the trainable update of a module,
// nil for none.
func (m *Model) ScoreGraph(g *autodiff.Graph, s *autodiff.Sample, rows autodiff.Node, lora func(layer int, module Module) *autodiff.LoRA) []autodiff.Node {
	c := &m.Config
	scores := make([]autodiff.Node, c.Layers)
	x := rows
	for l := range m.Network.Layers {
		layer := &m.Network.Layers[l]
		heads := autodiff.Heads{Query: c.Heads, KV: c.KVHeads, Dim: c.HeadDim, Window: c.Window(l)}
		norm := func(x autodiff.Node, n Norm) autodiff.Node {
			switch {
			case n.Weight == nil:
				return x
			case n.Bias != nil:
				return g.LayerNorm(x, n.Weight, n.Bias, c.RMSNormEps)
			}
			return g.RMSNorm(x, n.Weight, c.RMSNormEps)
		}
		linear := func(module Module, x autodiff.Node) autodiff.Node {
			lin := layer.Linear(module)
			return g.Linear(x, lin.Weight, lin.Bias, lora(l, module))
		}
		h := norm(x, layer.AttentionNorm)
		q, k := norm(linear(QProj, h), layer.QueryNorm), norm(linear(KProj, h), layer.KeyNorm)
		if c.Rotates(l) {
			q, k = g.RoPE(q, s, c.Heads, c.HeadDim), g.RoPE(k, s, c.KVHeads, c.HeadDim)
		}
		if l == c.Layers-1 {
			scores[l] = g.Scores(q, k, s, l, heads)
			break
		}
		var attention autodiff.Node
		attention, scores[l] = g.Attention(q, k, linear(VProj, h), s, l, heads)
		before := x
		x = g.Add(x, g.Scale(linear(OProj, attention), scaleOr1(c.BlockScale)))
		switch {
		case !layer.Parallel:
			h = norm(x, layer.MLPNorm)
		case !layer.shared():
			h = norm(before, layer.MLPNorm)
		}
		var act autodiff.Node
		if up := linear(UpProj, h); layer.Linear(GateProj) != nil {
			act = g.SiLUMul(linear(GateProj, h), up)
		} else {
			act = g.GELU(up)
		}
		x = g.Add(x, g.Scale(linear(DownProj, act), scaleOr1(c.BlockScale)))
	}
	return scores
}

// SampleOf is what ScoreGraph's rows run on: the cache as it is and the positions
// that follow it. Targets are the caller's.
func (m *Model) SampleOf(cache *Cache, rows int) autodiff.Sample {
	s := m.rowsAfter(cache.next, rows, cache.long)
	for l := range cache.heads {
		s.Past = append(s.Past, cache.View(l))
	}
	return s
}

// RowsAfter is the part of a sample that places rows after a prompt of next tokens.
func (m *Model) RowsAfter(next int32, rows int) autodiff.Sample {
	return m.rowsAfter(next, rows, m.Config.long(int(next)))
}

func (m *Model) rowsAfter(next int32, rows int, long bool) autodiff.Sample {
	s := autodiff.Sample{Positions: positions(next, rows)}
	s.RoPE = m.rope(s.Positions, long)
	return s
}
