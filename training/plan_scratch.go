package training

import (
	"context"

	"glimpse/datasets"
	"glimpse/internal/collector"
	"glimpse/model"
)

// countedLayers are the layers of a model that countScratch runs at most: memory is
// linear in the layers from the second one on; the last one has less.
const countedLayers = 3

// countScratch is the scratch memory of one worker for the longest sample, in bytes. It
// is that of steps whose allocations are made on a model without numbers, of a few layers
// of full width and with all entries, continued to all layers.
func countScratch(ctx context.Context, m *model.Model, c Config, o PlanOptions) (int64, error) {
	c.Steps, c.Batch, c.Workers, c.Warmup = 2, 1, 1, 0 // the first one grows what the second one takes
	c.MaxResponse, c.CacheMemory, c.CacheDisk = o.Response, 0, 0
	c.Validation = ValidationConfig{}
	c.Adapters = drawn(c.Adapters)
	pair := datasets.Pair{ID: "count", PromptIDs: make([]int32, o.Prompt), ResponseIDs: make([]int32, o.Response)}
	// What is allocated here is small: collecting it often would take longest of all.
	defer collector.Seldom()()
	counted, counter := m.Counted()
	counter.SeekPeaks(false)
	count := func(layers int) (runner, graphs int64, err error) {
		cut, err := counted.Cut(layers)
		if err != nil {
			return 0, 0, err
		}
		t, err := New(cut, c, &Pairs{Pairs: []datasets.Pair{pair}, Name: "count"})
		if err != nil {
			return 0, 0, err
		}
		defer t.Close()
		if err := t.Run(ctx, nil); err != nil {
			return 0, 0, err
		}
		kept := int64(0) // by attention, for its gradient
		for _, a := range c.Adapters {
			kept += int64(layers) * m.Backend.KeptBytes(a.Rows, m.Config.Heads, m.Config.KVHeads, o.Prompt)
		}
		return t.workers[0].runner.ScratchBytes(), t.workers[0].graphBytes() + kept, nil
	}
	layers := min(m.Config.Layers, countedLayers)
	runner, graphs, err := count(layers)
	if err != nil || layers == m.Config.Layers {
		return runner + graphs, err
	}
	_, fewer, err := count(layers - 1)
	if err != nil {
		return 0, err
	}
	return runner + graphs + (graphs-fewer)*int64(m.Config.Layers-layers), nil
}

// drawn are adapters whose rows start from noise, as no token of a dummy means anything.
func drawn(adapters []AdapterConfig) []AdapterConfig {
	out := append([]AdapterConfig(nil), adapters...)
	for i := range out {
		out[i].InitToken = -1
	}
	return out
}

// graphBytes is the scratch memory of the worker's graphs.
func (w *worker) graphBytes() int64 {
	var n int64
	for _, s := range w.students {
		n += s.graph.ScratchBytes()
	}
	return n
}
