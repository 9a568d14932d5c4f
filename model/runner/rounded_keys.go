package runner

import (
	"math"

	"glimpse/kernels"
)

// fewestRounded is the number of rows of a prompt from which on it shows what rounding does to its keys; of longer ones the last
// mostRounded are looked at.
const fewestRounded, mostRounded = 16, 256

// roundedKeys measures what rounding a prompt's keys k [rows, kvHeads, headDim] does to the attention of its last row, once in a layer of a model.
func (r *layerRows) roundedKeys(a *kernels.Attend, k, v *kernels.Tensor) {
	n := k.Dim0()
	if n < fewestRounded {
		return
	}
	types := r.Model.KeyTypes(r.l)
	if types == nil {
		return
	}
	if w := r.Model.Config.Window(r.l); w > 0 {
		n = min(n, w)
	}
	n = min(n, mostRounded)
	k, v = k.Rows(k.Dim0()-n, k.Dim0()), v.Rows(v.Dim0()-n, v.Dim0())
	last := a.Q.Rows(a.Rows()-1, a.Rows()).Float64s()
	computed := byHead(k)
	out := make([]float64, len(types))
	for i, t := range types {
		rounded := rounded(r.on, t, k, v)
		heads := a.Q.Shape[1]
		for h := range heads {
			q, g := last[h*a.HeadDim():][:a.HeadDim()], h/(heads/len(computed))
			out[i] += divergence(attention(a, q, computed[g]), attention(a, q, rounded[g])) / float64(heads)
		}
	}
	r.Model.KeysMeasured(r.l, out)
}

// byHead is k [rows, kvHeads, headDim] as [rows, headDim] of each head.
func byHead(k *kernels.Tensor) [][]float64 {
	rows, heads, dim := k.Shape[0], k.Shape[1], k.Shape[2]
	all, out := k.Float64s(), make([][]float64, heads)
	for i := range rows {
		for g := range heads {
			out[g] = append(out[g], all[(i*heads+g)*dim:][:dim]...)
		}
	}
	return out
}

// rounded are the keys [rows, headDim] of each head as a cache of the type holds them. In groups they are as when others
// have followed: none in BF16.
func rounded(on kernels.Backend, t kernels.DType, k, v *kernels.Tensor) [][]float64 {
	rows, heads, times := k.Dim0(), k.Shape[1], 1
	if t.Grouped() {
		times += (kernels.MostRecent + rows - 1) / rows
	}
	to, part := make([]kernels.KV, heads), make([]kernels.KV, heads)
	for g := range to {
		to[g] = kernels.KV{K: on.Alloc(t, rows*times, k.Shape[2]), V: on.Alloc(t.OfValues(), rows*times, v.Shape[2])}
	}
	for i := range times {
		for g := range part {
			part[g] = kernels.KV{K: to[g].K.Rows(i*rows, (i+1)*rows), V: to[g].V.Rows(i*rows, (i+1)*rows)}
		}
		on.CopyPairs(part, k, v)
	}
	out := make([][]float64, heads)
	for g := range out {
		out[g] = to[g].K.Rows(0, rows).Float64s()
	}
	return out
}

// attention are the logarithms of the probabilities with which query q attends to keys, without sinks.
func attention(a *kernels.Attend, q, keys []float64) []float64 {
	out := make([]float64, len(keys)/len(q))
	most, sum := math.Inf(-1), 0.0
	for i := range out {
		for c, x := range keys[i*len(q):][:len(q)] {
			out[i] += q[c] * x * a.Scale
		}
		if a.SoftCap > 0 {
			out[i] = a.SoftCap * math.Tanh(out[i]/a.SoftCap)
		}
		most = max(most, out[i])
	}
	for _, x := range out {
		sum += math.Exp(x - most)
	}
	for i := range out {
		out[i] -= most + math.Log(sum)
	}
	return out
}

// divergence is that of q from p, of logarithms of probabilities (Kullback and Leibler), in nats.
func divergence(p, q []float64) (d float64) {
	for i, x := range p {
		d += math.Exp(x) * (x - q[i])
	}
	return d
}
