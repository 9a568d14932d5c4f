package inspection

import (
	"io"
	"math"
	"slices"

	"glimpse/evaluation/inspection/npz"
	"glimpse/eviction"
)

// WriteNPZ writes for numpy.load:
//
//	ids     int32 [tokens]                      the prompt
//	kept    bool [layers, kvHeads, tokens]      what stays in the cache; layers with fewer heads keep nothing in the others
//	counts  int32 [tokens]                      heads that keep the token
//	scores  float32 [layers, kvHeads, tokens]   absent where nothing was scored; NaN in layers that are left alone, and of heads that they lack
//	model, policy                               names
func (x *Inspection) WriteNPZ(w io.Writer) error {
	layers, heads, n := len(x.kept()), 0, len(x.IDs)
	for _, layer := range x.kept() {
		heads = max(heads, len(layer))
	}
	kept := make([]bool, layers*heads*n)
	scores := slices.Repeat([]float32{float32(math.NaN())}, len(kept))
	for l, layer := range x.kept() {
		for h, positions := range layer {
			for _, p := range positions {
				kept[(l*heads+h)*n+int(p)] = true
			}
			if all := x.Session.Scores(); all != nil && all[l] != nil { // none of a layer that the policy leaves alone
				copy(scores[(l*heads+h)*n:][:n], all[l][h])
			}
		}
	}
	counts := make([]int32, n)
	for i, c := range eviction.KeptCounts(x.kept(), n) {
		counts[i] = int32(c)
	}
	a := npz.NewWriter(w)
	a.Int32("ids", x.IDs, n)
	a.Bool("kept", kept, layers, heads, n)
	a.Int32("counts", counts, n)
	if x.Session.Scores() != nil {
		a.Float32("scores", scores, layers, heads, n)
	}
	a.AddText("model", x.Model.Name)
	a.AddText("policy", x.Policy)
	return a.Close()
}
