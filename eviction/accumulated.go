package eviction

import (
	"math"

	"glimpse/kernels"
	"glimpse/model"
)

// accumulated is the attention probability of every entry in the cache, summed
// over all rows so far and averaged over the heads of the group (d2o.txt eq. 6):
// [layer][kvHead][entry].
type accumulated [][][]float32

// newAccumulated starts from the scores of a prompt, which are such sums.
func newAccumulated(s *Session) accumulated {
	a := make(accumulated, len(s.Kept))
	for l := range a {
		a[l] = make([][]float32, len(s.Kept[l]))
		for h, idx := range s.Kept[l] {
			for _, j := range idx {
				a[l][h] = append(a[l][h], s.Scores[l][h][j])
			}
		}
	}
	return a
}

// Capture asks for the attention of every decoding step.
func (accumulated) Capture() model.Capture { return model.Capture{Windows: []int{1}} }

// add takes in a decoding step.
func (a accumulated) add(o *model.Observation) {
	for g := range a[o.Layer] {
		for len(a[o.Layer][g]) < o.Cache.Entries(o.Layer, g) {
			a[o.Layer][g] = append(a[o.Layer][g], 0)
		}
	}
	addGroupMean(a[o.Layer], o.Windows[0])
}

// keep leaves the entries at ascending indices.
func (a accumulated) keep(layer, head int, idx []int32) {
	sums := a[layer][head]
	for to, from := range idx {
		sums[to] = sums[from]
	}
	a[layer][head] = sums[:len(idx)]
}

// Carry adds the sums of the turns before to those of a turn's prompt.
func (a accumulated) Carry(_ Prompt, o *model.Observation, scores, _ [][]float32) {
	for h, sums := range a[o.Layer] {
		for j, v := range sums {
			scores[h][j] += v
		}
	}
}

// addGroupMean adds to dst[kvHead] what groupMean would write.
func addGroupMean(dst [][]float32, logScores *kernels.Tensor) {
	heads, width := logScores.Dim0(), logScores.Width()
	group := heads / len(dst)
	host := logScores.Float32s()
	for g, d := range dst {
		for h := g * group; h < (g+1)*group; h++ {
			for j := range d {
				d[j] += float32(math.Exp(float64(host[h*width+j]))) / float32(group)
			}
		}
	}
}
