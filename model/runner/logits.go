package runner

import (
	"fmt"
	"math"
	"slices"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
)

// Logits are the logits [vocab] of one row, in the memory where they were computed. A
// device that samples keeps them; the host then sees ids alone, unless it asks.
type Logits struct {
	host   []float32
	device *kernels.Tensor // [1, vocab]; nil where they are on the host
	model  *model.Model
	best   int32  // one more than the id of the largest, 0 where it is not known
	drawn  *int32 // what the device has drawn already; else nil
}

// HostLogits wraps logits on the host, which must be finite.
func HostLogits(x []float32) *Logits { return &Logits{host: x} }

// Float32s are the logits on the host, read from the device at the first call. NaN and
// infinities are an error.
func (l *Logits) Float32s() (_ []float32, err error) {
	defer kernels.CatchDevice(&err)
	if l.host == nil {
		host := l.device.Float32s()
		if err := checkLogits(l.model, host); err != nil {
			return nil, err
		}
		l.host = host
	}
	return l.host, nil
}

// CheckFinite waits for the logits; NaN and infinities are an error.
func (l *Logits) CheckFinite() (err error) {
	if l.host != nil || l.best > 0 || l.drawn != nil {
		return nil
	}
	defer kernels.CatchDevice(&err)
	ids, err := drawOnDevice(l.model, l.device, []kernels.Draw{{}})
	if err == nil {
		l.best = ids[0] + 1
	}
	return err
}

// LogProb is a token and the natural logarithm of its probability.
type LogProb struct {
	ID      int32
	LogProb float64
}

// LogProbs is the natural logarithm of the probability of a token, log softmax in float64:
// finite, or an error. The sum is in the order of ids. top are the n likeliest tokens, of equal
// ones the lower ids first.
func (l *Logits) LogProbs(id int32, n int) (_ float64, top []LogProb, err error) {
	x, err := l.Float32s()
	if err != nil {
		return 0, nil, err
	}
	if id < 0 || int(id) >= len(x) {
		return 0, nil, fmt.Errorf("log probability: token id %d, want 0 to %d", id, len(x)-1)
	}
	most, sum := float64(simd.Max(x)), 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - most)
	}
	total := most + math.Log(sum)
	for i, v := range x {
		at := len(top)
		for at > 0 && float64(v)-total > top[at-1].LogProb {
			at--
		}
		if at < n {
			top = slices.Insert(top[:min(len(top), n-1)], at, LogProb{int32(i), float64(v) - total})
		}
	}
	return float64(x[id]) - total, top, nil
}

// drawToken draws the token that follows, with the sampler's next random number.
func (l *Logits) drawToken(s *sampler) (id int32, err error) {
	if l.device == nil || s.onHost() {
		host, err := l.Float32s()
		if err != nil {
			return 0, err
		}
		return s.drawToken(host)
	}
	if l.drawn != nil {
		return *l.drawn, nil
	}
	if s.Temperature == 0 && l.best > 0 {
		return l.best - 1, nil
	}
	defer kernels.CatchDevice(&err)
	ids, err := drawOnDevice(l.model, l.device, []kernels.Draw{s.drawSettings()})
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// drawOnDevice samples on the device.
func drawOnDevice(m *model.Model, logits *kernels.Tensor, draws []kernels.Draw) ([]int32, error) {
	ids := m.End().Draw(logits, draws)
	for _, id := range ids {
		if id < 0 {
			return nil, m.ExplainNonFinite()
		}
	}
	return ids, nil
}

// drawnRow is a row of several logits; err is of numbers that are not finite.
type drawnRow struct {
	*Logits
	err error
}

// drawRows takes apart the logits [at least samplers, vocab] of a step. A device draws the
// tokens of all samplers at once that need no logits on the host; nil draws none.
func drawRows(m *model.Model, y *kernels.Tensor, samplers []*sampler) []drawnRow {
	n, vocab := len(samplers), m.Config.Vocab
	rows := make([]drawnRow, n)
	if !samplesOnDevice(m) {
		host := y.Rows(0, n).Float32s()
		for i := range rows {
			row := host[i*vocab:][:vocab]
			rows[i] = drawnRow{HostLogits(row), checkLogits(m, row)}
		}
		return rows
	}
	draws := make([]kernels.Draw, n)
	for i, s := range samplers {
		if s != nil && !s.onHost() {
			draws[i] = s.drawSettings()
		}
	}
	for i, id := range m.End().Draw(y.Rows(0, n), draws) {
		rows[i].Logits = &Logits{device: y.Rows(i, i+1), model: m, drawn: &id}
		if id < 0 {
			rows[i].err = m.ExplainNonFinite()
		}
	}
	return rows
}

// headLogits writes the logits of normalised rows h to y on b.
func headLogits(m *model.Model, b kernels.Backend, y, h *kernels.Tensor) {
	b.Linear(y, h, m.Network.Head.Weight, m.Network.Head.Bias, m.Config.LogitFactor(), 0)
	if limit := m.Config.LogitCap; limit > 0 {
		b.SoftCap(y, y, limit)
	}
}

func checkLogits(m *model.Model, logits []float32) error {
	if !finite(logits) {
		return m.ExplainNonFinite()
	}
	return nil
}

// samplesOnDevice tells that tokens are drawn where the logits lie.
func samplesOnDevice(m *model.Model) bool {
	return m.End().DrawsInPlace()
}
