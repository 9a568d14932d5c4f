package model

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"glimpse/kernels"
)

// placedTokens are the tokens of the cache that counts when layers are shared out among
// devices, or the model's whole context where that is shorter. Layers are mostly alike,
// so it matters little how many these are.
const placedTokens = 16384

// place shares the layers out among devices: in order, each some that follow each other, so
// that the fullest device has as much room left as can be. bytes is the memory of a slot's
// weight, in the device's own type.
func (m *Model) place(devices []kernels.Backend, slots []slot, bytes func(s slot) int64) error {
	m.Backend = devices[0]
	if len(devices) == 1 {
		return nil
	}
	c := &m.Config
	for _, b := range devices[1:] {
		if b.Name() != devices[0].Name() {
			return fmt.Errorf("devices %s and %s: want devices of one kind, which compute alike", devices[0].Device(), b.Device())
		}
	}
	if len(devices) > c.Layers {
		return fmt.Errorf("%d devices for %d layers, want at least one layer on each", len(devices), c.Layers)
	}
	cache := int64(min(placedTokens, c.MaxPositions)) * c.CacheBytesPerToken(m.CacheDType()) / int64(c.Layers)
	need := make([]int64, c.Layers)
	for l := range need {
		need[l] = cache
	}
	var embedding int64
	for _, s := range slots {
		need[min(max(s.layer, 0), c.Layers-1)] += bytes(s)
		if s.layer < 0 {
			embedding += bytes(s)
		}
	}
	if c.TieEmbeddings && devices[0].OwnMemory() { // the head has a copy
		need[c.Layers-1] += embedding
	}
	rooms := make([]int64, len(devices))
	for i, b := range devices {
		if rooms[i] = 1; b.OwnMemory() {
			rooms[i] = max(1, b.Memory().Available)
		}
	}
	var all int64
	for _, n := range need {
		all += n
	}
	from := 0
	for i, to := range shareOut(need, rooms) {
		var own int64
		for _, n := range need[from:to] {
			own += n
		}
		m.stages = append(m.stages, Stage{devices[i], from, to, float64(own) / float64(all)})
		from = to
	}
	m.DeviceChoice = m.Placement()
	return nil
}

// shareOut cuts layers that need so much memory into as many parts as there are rooms, none
// of them empty, and returns their ends: those for which the largest share of a room
// that is needed is least, and of equal ones the earliest.
func shareOut(need, rooms []int64) []int {
	layers := len(need)
	sums := make([]int64, layers+1)
	for l, n := range need {
		sums[l+1] = sums[l] + n
	}
	// worst[to] is the least largest share of the parts so far that end at layer to.
	worst, ends := make([]float64, layers+1), make([][]int, len(rooms))
	for to := range worst[1:] {
		worst[to+1] = math.Inf(1)
	}
	for i, room := range rooms {
		next, from := make([]float64, layers+1), make([]int, layers+1)
		for to := range next {
			next[to] = math.Inf(1)
			for f := range to {
				if w := max(worst[f], float64(sums[to]-sums[f])/float64(room)); w < next[to] {
					next[to], from[to] = w, f
				}
			}
		}
		worst, ends[i] = next, from
	}
	out, to := make([]int, len(rooms)), layers
	for i := range slices.Backward(ends) {
		out[i] = to
		to = ends[i][to]
	}
	return out
}

// deviceOf is where a slot's weight lies.
func (m *Model) deviceOf(s slot) kernels.Backend {
	switch {
	case s.layer < 0:
		return m.Backend
	case s.layer >= m.Config.Layers:
		return m.End()
	}
	return m.On(s.layer)
}

// placeHead gives the head a copy of its weights on its device where they are the
// embedding, or of another model's head.
func (m *Model) placeHead(from kernels.Backend) {
	if to := m.End(); to != from && to.OwnMemory() {
		n := m.Network
		for _, t := range []**kernels.Tensor{&n.FinalNorm.Weight, &n.FinalNorm.Bias, &n.Head.Weight, &n.Head.Bias} {
			if *t != nil {
				*t = to.Place((*t).OnHost())
			}
		}
	}
}

// Placement says which layers are on which device; empty for one.
func (m *Model) Placement() string {
	var parts []string
	for _, s := range m.stages {
		parts = append(parts, fmt.Sprintf("layers %d to %d on %s", s.From, s.To-1, s.On.Device()))
	}
	return strings.Join(parts, ", ")
}
