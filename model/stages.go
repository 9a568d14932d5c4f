package model

import (
	"math"
	"strings"

	"glimpse/kernels"
)

// Stage is consecutive layers [from, to) of a model on one device. A model has one or
// several, in the order of its layers: the first holds the embedding, too, the last the final
// norm and the head. The residual stream goes from device to device; keys, values and
// whatever else belongs to a layer stay where its weights are.
type Stage struct {
	On       kernels.Backend
	From, To int
	share    float64 // of the memory that a run needs
}

// Stages are the stages; a model that was not placed otherwise has one.
func (m *Model) Stages() []Stage {
	if m.stages == nil {
		return []Stage{{m.Backend, 0, m.Config.Layers, 1}}
	}
	return m.stages
}

// StageOf is the index of the stage of a layer.
func (m *Model) StageOf(layer int) int {
	for i, s := range m.stages {
		if layer < s.To {
			return i
		}
	}
	return 0
}

// On is the device of a layer: of its weights, of its part of caches, and of the low-rank
// updates that act in it.
func (m *Model) On(layer int) kernels.Backend {
	if m.stages == nil {
		return m.Backend
	}
	return m.stages[m.StageOf(layer)].On
}

// End is the device of the final norm and the head, where tokens are drawn.
func (m *Model) End() kernels.Backend {
	if m.stages == nil {
		return m.Backend
	}
	return m.stages[len(m.stages)-1].On
}

// Leaves tells that what layer l leaves is read on another device.
func (m *Model) Leaves(l int) bool {
	return l+1 < m.Config.Layers && m.StageOf(l) != m.StageOf(l+1)
}

// room is how much a run may need in all until one of the devices has no more than free says:
// each needs its share of it.
func (m *Model) room(free func(b kernels.Backend) int64) int64 {
	least := int64(math.MaxInt64)
	for _, s := range m.Stages() {
		least = min(least, int64(float64(free(s.On))/s.share))
	}
	return least
}

// Devices are the devices of the model in the order of its layers.
func (m *Model) Devices() []kernels.Backend {
	var out []kernels.Backend
	for _, s := range m.Stages() {
		out = append(out, s.On)
	}
	return out
}

// DeviceName is what the model computes on: cuda:0, cpu, and of several devices a list.
func (m *Model) DeviceName() string {
	var names []string
	for _, b := range m.Devices() {
		names = append(names, b.Device())
	}
	return strings.Join(names, ",")
}
