package eviction

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model/runner"
)

// roomOption is that of policies that keep the prompt while decoding.
var roomOption = Option{Name: "room", Default: 0.25, Min: 0, Max: 1, Doc: "share of the budget that the response has in any case while decoding: a longer prompt gives up entries until then"}

// keptPrompt says which entries may go while decoding: the response's own. A prompt that leaves the response less than its room
// gives up entries first.
type keptPrompt struct {
	limits func(layer int) []int // entries that every head holds at most
	start  int32                 // position of the response's first token
	room   float64               // share of a head's limit
	recent int                   // last entries of the response that stay
	stay   func(layer int) *staying
}

// keepPrompt is the rule for the response that a session is about to decode.
func keepPrompt(s *Session, room float64, recent int) keptPrompt {
	limits := func(layer int) []int { return s.headLimits(layer, s.Prompt.Budget) }
	return keptPrompt{limits: limits, start: s.Cache.Next(), room: room, recent: recent, stay: s.staying}
}

// candidates are the entries [from, to), at least one, that may go of a head that holds more than limit. Its positions ascend.
func (k keptPrompt) candidates(positions []int32, limit int) (from, to int) {
	prompt, _ := slices.BinarySearch(positions, k.start)
	response := len(positions) - prompt
	if prompt > 0 && response <= max(1, int(math.Ceil(k.room*float64(limit)))) {
		return 0, prompt
	}
	return prompt, len(positions) - min(k.recent, response-1)
}

// evict takes one entry from every head of a layer that holds more than its limit: the one that choose names among the candidates
// [from, to) of the head's entries, whose positions it gets. Nil where all heads are within their limits.
func (k keptPrompt) evict(o *runner.Observation, choose func(head int, positions []int32, from, to int) int) *kernels.Selection {
	keep, stay, evicts := make([][]int32, o.Cache.KVHeads()), k.stay(o.Layer), false
	for h, limit := range k.limits(o.Layer) {
		n := o.Cache.Entries(o.Layer, h)
		if n <= limit {
			keep[h] = upTo(0, n)
			continue
		}
		positions := o.Cache.Positions(o.Layer, h)
		from, to := k.candidates(positions, limit)
		if stay != nil && stay.all(h, from, to) { // the response gives up entries instead
			from = to
			to = max(from+1, n-k.recent)
		}
		out := choose(h, positions, from, to)
		if stay != nil {
			out = stay.next(h, out, from, to)
		}
		keep[h], evicts = append(upTo(0, out), upTo(out+1, n)...), true
	}
	if !evicts {
		return nil
	}
	return kernels.HostSelection(keep)
}

// newest is the position of the last row that has run.
func newest(positions []int32) int { return int(positions[len(positions)-1]) }
