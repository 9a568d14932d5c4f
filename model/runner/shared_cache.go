package runner

import (
	"fmt"

	"glimpse/kernels"
	"glimpse/model/kvcache"
)

// jointObservations are the observations of caches that several layers read (model.Config.KVLayer), until the last of them has run.
type jointObservations map[int]*jointObservation // by the layer that holds the cache

type jointObservation struct {
	Observation
	layers int // that are in it
}

// joinLayer takes in what was observed in a layer and returns what an observer is told: of a layer with a cache of its own that, of
// a shared one nil until all of its layers are in.
func (j *jointObservations) joinLayer(r *Runner, o *Observation) *Observation {
	c := &r.Model.Config
	layer := c.KVLayer(o.Layer)
	last := c.LastReader(layer)
	if last == layer {
		return o
	}
	if *j == nil {
		*j = make(jointObservations)
	}
	sum := (*j)[layer]
	if sum == nil {
		sum = &jointObservation{Observation: Observation{Layer: layer, Cache: o.Cache}}
		(*j)[layer] = sum
	}
	b := r.on
	join := func(to *[]*kernels.Tensor, from []*kernels.Tensor, merge func(sum, x *kernels.Tensor)) {
		if sum.layers > 0 && len(*to) != len(from) {
			panic(fmt.Sprintf("runner: %d observations of layer %d, want %d as of the layers before it that read the same cache", len(from), o.Layer, len(*to)))
		}
		for i, x := range from {
			if sum.layers == 0 {
				*to = append(*to, copied(b, x))
			} else {
				merge((*to)[i], x)
			}
		}
	}
	means := func(a, x *kernels.Tensor) { b.MergeScores(a, x, float64(sum.layers), 1) }
	join(&sum.Windows, o.Windows, means)
	join(&sum.Probes, o.Probes, means)
	for _, all := range []struct{ to, from **kernels.Tensor }{{&sum.AllRows, &o.AllRows}, {&sum.Squares, &o.Squares}} {
		if *all.from == nil {
			continue
		}
		if *all.to == nil {
			*all.to = copied(b, *all.from)
		} else {
			means(*all.to, *all.from)
		}
	}
	join(&sum.PeakWindows, o.PeakWindows, b.Selector().MaxScores)
	join(&sum.PeakProbes, o.PeakProbes, b.Selector().MaxScores)
	add := func(a, x *kernels.Tensor) { b.Add(a, a, x) }
	join(&sum.ProbeLSE, o.ProbeLSE, add)
	join(&sum.PeakProbeLSE, o.PeakProbeLSE, add)
	for _, q := range o.Queries {
		sum.Queries = append(sum.Queries, copied(b, q))
	}
	for _, q := range o.References {
		sum.References = append(sum.References, copied(b, q))
	}
	for _, scores := range o.Gates {
		sum.Gates = append(sum.Gates, copied(b, scores))
	}
	if o.Keys != nil {
		sum.Keys = copied(b, o.Keys)
	}
	if sum.layers++; o.Layer < last {
		return nil
	}
	delete(*j, layer)
	return &sum.Observation
}

// copied is x in memory of its own, which outlives the layer.
func copied(b kernels.Backend, x *kernels.Tensor) *kernels.Tensor {
	y := b.Alloc(x.DType, x.Shape...)
	b.Copy(y, x)
	return y
}

// sharedPairs are the keys and values [rows, kvHeads, headDim] of rows that leave no trace in the cache, by the layer that has
// computed them, for the layers after it that share its cache.
type sharedPairs map[int][2]*kernels.Tensor

// newSharedPairs makes room for the pairs of so many rows, which lives as long as the pass.
func (r *Runner) newSharedPairs(rows int) sharedPairs {
	c := &r.Model.Config
	if !c.SharesKV() || rows == 0 {
		return nil
	}
	out := make(sharedPairs)
	for l := range c.Layers {
		if from := c.KVLayer(l); from != l && out[from][0] == nil {
			kv := c.KV(from)
			out[from] = [2]*kernels.Tensor{r.alloc(rows, kv.Heads, kv.Dim), r.alloc(rows, kv.Heads, kv.Dim)}
		}
	}
	return out
}

// layerPairs keeps the pairs that a layer has computed, if others will read them, and returns what the layer reads.
func (s sharedPairs) layerPairs(r *Runner, layer int, k, v *kernels.Tensor) (_, _ *kernels.Tensor) {
	pairs, ok := s[r.Model.Config.KVLayer(layer)]
	switch {
	case !ok:
		return k, v
	case k == nil:
		return pairs[0], pairs[1]
	}
	r.on.Copy(pairs[0], k)
	r.on.Copy(pairs[1], v)
	return k, v
}

// needed are the chunks, or parts of them, that layer l has to run. Beyond the last layer with keys and values of its own those are
// the rows that are read at the end: the last one, and what is observed; nothing where only the cache is asked for. Their bits are those
// that they have among all rows.
func (p *prefillPass) needed(l int, chunks [][2]int) [][2]int {
	c, n := &p.Model.Config, len(p.pos)
	switch {
	case l <= c.LastHolder() || p.opt.Capture.AllRows || p.opt.Capture.Queries || p.opt.LogProbs != nil || chunks[len(chunks)-1][1] < n:
		return chunks
	case p.opt.CacheOnly && p.opt.Observe == nil:
		return nil
	}
	before, block := 0, kvcache.BlockRows(c)
	if p.opt.Prefix != nil {
		before = p.opt.Prefix.Len()
	}
	from := before + n - max(kvcache.MinRows, p.tail(&p.opt.Capture))
	from = max(0, from-from%block-before)
	var out [][2]int
	for _, chunk := range chunks {
		if chunk[1] > from {
			out = append(out, [2]int{max(chunk[0], from), chunk[1]})
		}
	}
	return out
}

// withoutLast is the pairs of heads without the last n of each.
func withoutLast(past []kernels.KV, n int) []kernels.KV {
	if n == 0 {
		return past
	}
	out := make([]kernels.KV, len(past))
	for h, kv := range past {
		out[h] = kv.First(max(0, kv.Entries()-n))
	}
	return out
}
