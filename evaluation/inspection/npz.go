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
//	kept    bool [layers, kvHeads, tokens]      what stays in the cache
//	counts  int32 [tokens]                      heads that keep the token
//	scores  float32 [layers, kvHeads, tokens]   absent where nothing was scored; NaN in layers that are left alone
//	model, policy                               names
func (x *Inspection) WriteNPZ(w io.Writer) error {
	layers, heads, n := len(x.kept()), x.Model.Config.KVHeads, len(x.IDs)
	kept := make([]bool, layers*heads*n)
	var scores []float32
	for l, layer := range x.kept() {
		for h, positions := range layer {
			for _, p := range positions {
				kept[(l*heads+h)*n+int(p)] = true
			}
			switch all := x.Session.Scores(); {
			case all == nil:
			case all[l] == nil: // a layer that the policy leaves alone
				scores = append(scores, slices.Repeat([]float32{float32(math.NaN())}, n)...)
			default:
				scores = append(scores, all[l][h]...)
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
	a.Text("model", x.Model.Name)
	a.Text("policy", x.Policy)
	return a.Close()
}
