// Package inspection shows what a policy keeps of a prompt, as rows, as a page and as arrays.
package inspection

import (
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

// Counts is the number of heads, of all layers, that keep each of so many tokens; kept has
// the positions by layer and KV head.
func Counts(kept [][][]int32, tokens int) []int {
	out := make([]int, tokens)
	for _, layer := range kept {
		for _, positions := range layer {
			for _, p := range positions {
				out[p]++
			}
		}
	}
	return out
}

// Heads lists the heads of all layers.
func (x *Inspection) Heads() []Head {
	var rows []Head
	for layer := range x.Session.Kept() {
		for h := range x.Session.Kept()[layer] {
			r := Head{Layer: layer, KVHead: h, Positions: x.Session.Kept()[layer][h], Scores: []float32{}}
			if x.Session.Scores() != nil {
				r.Scores = x.Session.Scores()[layer][h]
			}
			rows = append(rows, r)
		}
	}
	return rows
}
