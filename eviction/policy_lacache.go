package eviction

import (
	"slices"

	"glimpse/model/runner"
)

func init() {
	Policies.Add("lacache", Policy{
		Kind: "prefill", Doc: "ladder: of every group of entries the shallow layers keep the early and the deep layers the late ones", Source: "LaCache (Shi et al. 2025, arXiv:2507.14204) §3.2, §3.3",
		Options: []Option{
			{Name: "span", Default: 16, Min: 1, Max: 1 << 12, Whole: true, Doc: "layers that keep an entry S; at most half of all"},
			{Name: "overlap", Default: 0, Min: 0, Max: 1 << 12, Whole: true, Doc: "layers that two neighbouring steps of the ladder share O; below the span"},
			{Name: "variant", Choices: choices("paper", "code"), Doc: "ladders that descend through the layers, over old entries again and again; or those of the authors' code, which take turns from layer to layer and thin evenly"},
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept; at most half the budget"},
		},
		New: func(s Settings) (Method, error) {
			return lacache{s.Int("span"), s.Int("overlap"), s.Int("sink"), s.OptionText("variant") == "code"}, nil
		},
	})
}

// lacache (LaCache: Ladder-Shaped KV Caching for Efficient Long-Context Modeling of Large
// Language Models, Shi et al., ICML 2025, arXiv:2507.14204) keeps entries by their place
// alone. Of T consecutive entries, a ladder,
// entry j is kept by the S layers from j·(S−O) on, so that the first are kept by the
// shallow layers and the last by the deep ones; T = 1 + ⌈(L−S)/(S−O)⌉ reaches the
// last of L layers. Compaction is iterative (§3.3): entries come in one by one, and
// whenever a layer holds more than the budget it drops the next entry that its
// ladders do not keep, from the oldest on and then again from the start, so that
// old entries are thinned out more often than new ones.
type lacache struct {
	span, overlap, sink int
	code                bool // as the authors' code does it, see thinned
}

// Plan scores by 1 what is kept and by 0 the rest.
func (m lacache) Plan(p Prompt) Plan {
	return Plan{Score: func(s *Scores, o *runner.Observation) {
		s.FromHost(func(dst [][]float32) {
			var held []int32
			for h, d := range dst {
				if h == 0 || len(d) != len(dst[h-1]) {
					if m.code {
						held = m.thinned(p, p.rank(o.Layer), len(d))
					} else {
						held = m.climbed(p, p.rank(o.Layer), len(d))
					}
				}
				for _, j := range held {
					d[j] = 1
				}
			}
		})
	}}
}

// shape is a ladder's span, how far its steps are apart, and how many it has.
func (m lacache) shape(layers int) (span, stride, length int) {
	span = max(1, min(m.span, layers/2)) // a longer one would leave nothing to drop
	stride = span - min(m.overlap, span-1)
	return span, stride, max(2, 1+(layers-span+stride-1)/stride)
}

// ladderSteps tells for every step of a ladder whether the layer keeps it.
func (m lacache) ladderSteps(layer, layers int) []bool {
	span, stride, length := m.shape(layers)
	steps := make([]bool, length)
	for j := range steps {
		steps[j] = layer >= j*stride && layer < j*stride+span
	}
	return steps
}

// climbed is the entries that a layer keeps of n, as many as the budget.
func (m lacache) climbed(p Prompt, layer, n int) []int32 {
	steps := m.ladderSteps(layer, len(p.layers()))
	sink := min(m.sink, p.Budget/2)
	// The newest entries, as many as there are layers, wait for their first ladder.
	recent := max(1, min(len(p.layers()), p.Budget/2))
	held := upTo(0, min(p.Budget, n))
	at, step, dropped := sink, 0, true
	for j := len(held); j < n; j++ {
		held = append(held, int32(j))
		for len(held) > p.Budget {
			if at >= len(held)-recent { // start over, in step where the last round dropped nothing
				at = sink
				if dropped {
					step, dropped = 0, false
				}
			}
			if steps[step%len(steps)] {
				at++
			} else {
				held = slices.Delete(held, at, at+1)
				dropped = true
			}
			step++
		}
	}
	return held
}

// thinned is what the authors' code keeps of a prompt of n entries in one pass
// (GATECH-EIC/LaCache, kv_cache.py). Of every ladder of T entries a layer keeps
// A = ⌈S/(S−O)⌉ neighbours, from entry l mod (T−A+1) on, so that the layers take turns
// instead of descending. As many ladders as the cache has room for come first; where that
// is not enough, longer ladders then thin all that is left once more, evenly, as often
// as it takes. The code widens the cache by half of a ladder's drops, since its last
// ladder may drop too much; here the newest of that stay, and the budget is held.
func (m lacache) thinned(p Prompt, layer, n int) []int32 {
	span, stride, length := m.shape(len(p.layers()))
	kept := (span + stride - 1) / stride // A
	dropped := length - kept
	sink := min(m.sink, p.Budget/2)
	recent := min(len(p.layers()), max(0, p.Budget-sink-kept))
	room := max(1, (p.Budget-sink-recent)/kept) // in ladders
	held, over := upTo(0, n), n-p.Budget
	ladders := min(room, (over+dropped-1)/dropped)
	held = climb(held, sink, layer, length, kept, 1, ladders)
	if over -= ladders * dropped; over > 0 {
		rounds := (over + room*dropped - 1) / (room * dropped)
		length += (rounds - 1) * (length - 1)
		dropped = length - kept
		held = climb(held, sink, layer, length, kept, rounds, (over+dropped-1)/dropped)
	}
	for j := int32(n - 1); len(held) < p.Budget; j-- { // the newest that are missing
		if at, there := slices.BinarySearch(held, j); !there {
			held = slices.Insert(held, at, j)
		}
	}
	return held
}

// climb drops what is not on a layer's steps of so many ladders behind the sinks: each has
// length entries and keeps so many, apart entries from each other. Steps past a
// ladder's end are on the next one.
func climb(held []int32, sink, layer, length, kept, apart, ladders int) []int32 {
	stays := make([]bool, len(held))
	for at := range stays {
		stays[at] = at < sink || at >= sink+length*ladders
	}
	first := sink + layer%(length-kept+1)
	for i := range ladders {
		for k := range kept {
			if at := first + length*i + apart*k; at < len(stays) {
				stays[at] = true
			}
		}
	}
	var out []int32
	for at, j := range held {
		if stays[at] {
			out = append(out, j)
		}
	}
	return out
}
