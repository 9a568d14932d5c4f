package costmodel

import (
	"math"

	"glimpse/kernels"
	"glimpse/model"
)

// shape is what the costs of a model depend on.
type shape struct {
	layers  []layer
	head    float64 // weights of the LM head
	weight  float64 // bytes of a weight of the layers, on average
	weights float64 // bytes of all weights
}

type layer struct {
	modules   []module
	window    int        // sliding window, 0 for none
	queries   float64    // numbers of a row's queries
	keys      float64    // numbers of its keys
	pair      float64    // bytes of the keys and values of one entry, in all KV heads, that it reads
	held      float64    // likewise, that it holds
	from      int        // the layer whose keys and values it reads, itself or one before
	until     int        // the last layer that reads its own
	recurrent *recurrent // in the place of attention, whose numbers are 0 then; or nil
}

// recurrent is a state that rows move on one after the other.
type recurrent struct {
	bytes float64
	row   float64 // operations of a row
}

// recurrence is the cost of so many rows of each of so many sequences.
func (m Model) recurrence(l, rows, sequences int) Cost {
	r := m.layers[l].recurrent
	return m.chip.operation(r.row*float64(rows*sequences), 2*r.bytes*float64(sequences))
}

// states are the bytes of all states.
func (s *shape) states() (bytes float64) {
	for _, l := range s.layers {
		if l.recurrent != nil {
			bytes += l.recurrent.bytes
		}
	}
	return bytes
}

type module struct {
	name    model.Module // "": none that an adapter attaches to
	weights float64      // in · out, of experts those that a row goes through
	experts *model.Experts
}

// through is the cost of so many rows that go through a module.
func (m Model) through(mod module, rows int) Cost {
	return m.chip.operation(2*mod.weights*float64(rows), mod.weightsRead(rows)*m.weight)
}

// weightsRead are the weights that so many rows read. Of experts it is what is expected where a router prefers none.
func (m module) weightsRead(rows int) float64 {
	if m.experts == nil {
		return m.weights
	}
	all, active := m.experts.Weights()
	share := float64(m.experts.TopK) / float64(len(m.experts.Each))
	routed := float64(all-active) / (1 - share) // of all experts that a router chooses from
	if share == 1 {
		return m.weights
	}
	return float64(all) - routed*math.Pow(1-share, float64(rows))
}

// shapeOf reads the shapes of a model, whose weights need not be there.
func shapeOf(m *model.Model) shape {
	c := &m.Config
	s := shape{
		head:    float64(c.Vocab) * float64(c.Hidden),
		weights: float64(m.WeightBytes()),
	}
	bytes, weights := 0, 0 // a GGUF file mixes types
	for l := range c.Layers {
		kv := c.KV(l)
		at := layer{
			window: c.Window(l), queries: float64(c.Heads * kv.Dim), keys: float64(kv.Heads * kv.Dim), pair: float64(2 * kv.Heads * m.CacheDType().Bytes(kv.Dim)), from: c.KVLayer(l),
		}
		if c.HoldsKV(l) {
			at.held, at.until = at.pair, c.LastReader(l)
		}
		for _, name := range model.Modules {
			if lin := m.Network.Layers[l].Linear(name); lin != nil {
				at.modules = append(at.modules, module{name: name, weights: float64(lin.Weight.Len())})
				bytes, weights = bytes+lin.Weight.Bytes(), weights+lin.Weight.Len()
			}
		}
		beside := []*kernels.Tensor{m.Network.Layers[l].OutputGate.Weight}
		if r := m.Network.Layers[l].Recurrent; r != nil {
			beside = r.Matrices()
			at.queries, at.keys, at.pair = 0, 0, 0
			at.recurrent = &recurrent{float64(model.StateBytes(r, m.Backend.Compute())), r.Operations()}
		}
		if in := m.Network.Layers[l].Input; in != nil {
			beside = append(beside, in.Projection, m.Network.Layers[l].Linear(model.InputGate).Weight, m.Network.Layers[l].Linear(model.InputProj).Weight)
		}
		for _, w := range beside {
			if w != nil {
				at.modules = append(at.modules, module{weights: float64(w.Len())})
				bytes, weights = bytes+w.Bytes(), weights+w.Len()
			}
		}
		if e := m.Network.Layers[l].Experts; e != nil {
			all, active := e.Weights()
			at.modules = append(at.modules, module{name: model.DownProj, weights: float64(active), experts: e})
			bytes, weights = bytes+e.Each[0].Up.Weight.DType.Bytes(int(all)), weights+int(all)
		}
		s.layers = append(s.layers, at)
	}
	s.weight = float64(bytes) / float64(weights)
	return s
}

// pairsSeen is the number of query-key pairs of n rows that stand after past entries and see
// these, and each other up to their own: under a sliding window no more than so many each.
func pairsSeen(n, past, window int) float64 {
	if window <= 0 || past+n <= window {
		return float64(n)*float64(past) + float64(n)*float64(n+1)/2
	}
	short := max(0, window-past) // rows that see all there is
	return float64(short)*float64(past) + float64(short)*float64(short+1)/2 + float64(n-short)*float64(window)
}
