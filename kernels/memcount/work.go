package memcount

import "glimpse/kernels"

// Kind tells operations apart by what bounds their speed.
type Kind uint8

// The kinds of operations.
const (
	Product     Kind = iota // of rows and a weight
	Attention               // of queries, keys and values
	Elementwise             // norms, activations and sums
)

// Operation is what one operation computes and moves.
type Operation struct {
	Kind  Kind
	FLOPs float64 // floating-point operations; a multiply-add is two
	Bytes float64 // of the weight or the pairs that are read; of elementwise ones all that is read and written
}

// Work is operations, and how often each is run.
type Work map[Operation]float64

// FLOPs are the floating-point operations of all of them.
func (w Work) FLOPs() (sum float64) {
	for o, times := range w {
		sum += o.FLOPs * times
	}
	return sum
}

// Add adds other work so many times, which may be less than 0.
func (w Work) Add(other Work, times float64) {
	for o, n := range other {
		w[o] += n * times
	}
}

// CountWork counts the operations from now on into what it returns. Without it none are counted.
func (d *Counter) CountWork() Work {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.work = make(Work)
	return d.work
}

func (d *Counter) countOperation(kind Kind, flops, bytes float64) {
	if d.work == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.work[Operation{kind, flops, bytes}]++
}

// countWeights counts a product of rows and a weight, or some of its experts'.
func (d *Counter) countWeights(rows int, w *kernels.Tensor) {
	d.countOperation(Product, 2*float64(rows)*float64(w.Len()), float64(w.Bytes()))
}

// countElements counts an operation over all elements of tensors.
func (d *Counter) countElements(all ...*kernels.Tensor) {
	if d.work == nil {
		return
	}
	bytes := 0
	for _, t := range all {
		if t != nil {
			bytes += t.Bytes()
		}
	}
	d.countOperation(Elementwise, 0, float64(bytes))
}

// countAttention counts so many products of queries and the keys that they see.
func (d *Counter) countAttention(a *kernels.Attend, products int) {
	if d.work == nil {
		return
	}
	seen, bytes, alike := 0, 0, 0 // pairs of a row and a KV head, and those of the head before
	for g, kv := range a.Past {
		bytes += kv.K.Bytes() + kv.V.Bytes()
		if before := max(0, g-1); g == 0 || kv.Positions != nil || kv.Entries() != a.Past[before].Entries() {
			alike = 0
			for r := range a.Rows() {
				from, to := a.Visible(g, r)
				ownFrom, ownTo := a.VisibleOwn(r)
				alike += to - from + ownTo - ownFrom
			}
		}
		seen += alike
	}
	d.countOperation(Attention, 2*float64(products)*float64(seen)*float64(a.Group()*a.HeadDim()), float64(bytes*min(products, 2)/2))
}

// attentionProducts are the products of attention with an output or without.
func attentionProducts(out *kernels.Tensor) int {
	if out == nil {
		return 1
	}
	return 2
}
