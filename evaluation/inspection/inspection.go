// Package inspection shows what a policy keeps of a prompt, as rows, as a page and as arrays.
package inspection

import (
	"fmt"
	"slices"

	"glimpse/eviction"
	"glimpse/model"
)

// Head is what a policy keeps of one KV head.
type Head struct {
	Layer     int       `json:"layer"`
	KVHead    int       `json:"kv_head"`
	Positions []int32   `json:"positions"` // kept, ascending
	Scores    []float32 `json:"scores"`    // of every prompt position; empty where none was needed
}

// Inspection is a prompt after its eviction.
type Inspection struct {
	Model           *model.Model
	Policy, Adapter string
	Budget          eviction.Budget
	IDs             []int32 // of the prompt
	Session         *eviction.Session
}

// Summary is one line on how much is kept.
func (x *Inspection) Summary() string {
	heads := x.Heads()
	least, most, total := len(x.IDs), 0, 0
	for _, h := range heads {
		n := len(h.Positions)
		least, most, total = min(least, n), max(most, n), total+n
	}
	kept := fmt.Sprint(most)
	if least < most {
		kept = fmt.Sprintf("%d to %d", least, most)
	}
	return fmt.Sprintf("%s keeps %s of the prompt's %d KV entries per KV head, %.1f%% over %d KV heads of %d layers",
		x.Policy, kept, len(x.IDs), 100*float64(total)/float64(len(heads)*len(x.IDs)), len(heads), len(x.kept()))
}

// kept is what the session keeps, and what layers hold that the policy leaves alone.
func (x *Inspection) kept() [][][]int32 {
	kept := slices.Clone(x.Session.Kept())
	if x.Session.Context != nil {
		kept = make([][][]int32, x.Session.Cache.Layers())
	}
	for l := range kept {
		if kept[l] != nil {
			continue
		}
		for h := range x.Session.Cache.LayerKVHeads(l) {
			pos := x.Session.Cache.Positions(l, h)
			n, _ := slices.BinarySearch(pos, int32(len(x.IDs)))
			kept[l] = append(kept[l], slices.Clone(pos[:n]))
		}
	}
	return kept
}

// Heads lists the heads of all layers.
func (x *Inspection) Heads() []Head {
	var rows []Head
	for layer := range x.kept() {
		for h := range x.kept()[layer] {
			r := Head{Layer: layer, KVHead: h, Positions: x.kept()[layer][h], Scores: []float32{}}
			if all := x.Session.Scores(); all != nil && all[layer] != nil {
				r.Scores = x.Session.Scores()[layer][h]
			}
			rows = append(rows, r)
		}
	}
	return rows
}
