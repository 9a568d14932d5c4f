package eviction

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// accumulated is the attention probability of every entry in the cache, summed
// over all rows so far and averaged over the heads of the group (D2O, arXiv:2406.13035, eq. 6):
// [layer][kvHead][entry].
type accumulated [][][]float32

// newAccumulated starts from the scores of a prompt, which are such sums.
func newAccumulated(s *Session) accumulated {
	kept, scores := s.Kept(), rowsOf(unpooled(s.scores))
	a := make(accumulated, len(kept))
	for l := range a {
		a[l] = make([][]float32, len(kept[l]))
		for h, idx := range kept[l] {
			for _, j := range idx {
				a[l][h] = append(a[l][h], scores[l][h][j])
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

// deviceSums are accumulated sums in a device's memory, by layer.
type deviceSums struct {
	layers []*layerScores
	spare  *kernels.Tensor // for what is kept of a layer; the layers take turns

	// joint holds the sums of all layers, where these are its rows; jointSpare is for
	// what is kept of them.
	joint, jointSpare *kernels.Tensor
	rows              []*kernels.Tensor // of joint, by layer
}

// newDeviceSums starts as newAccumulated does; nil where the prompt was scored on the
// host.
func newDeviceSums(s *Session) *deviceSums {
	d := deviceOf(s.Cache)
	if d == nil || len(s.scores) == 0 || s.scores[0].device == nil {
		return nil
	}
	out := new(deviceSums)
	for l, scores := range unpooled(s.scores) {
		sums := &layerScores{}
		for h := range s.kept[l].Heads() {
			sums.entries = append(sums.entries, s.kept[l].Len(h))
		}
		sums.device = d.Alloc(kernels.F32, len(sums.entries), slices.Max(sums.entries)+sumsRoom)
		d.PickScores(sums.device, scores.device, s.kept[l])
		out.layers = append(out.layers, sums)
	}
	return out
}

// sumsRoom is by how many columns full sums grow.
const sumsRoom = 16

// Capture asks for the attention of every decoding step.
func (*deviceSums) Capture() model.Capture { return model.Capture{Windows: []int{1}} }

// Step implements DecodeState for caches of other memory, which there are none of.
func (*deviceSums) Step(*model.Observation) ([][]int32, error) {
	panic("eviction: a step of sums on a device")
}

// add takes in a decoding step and returns the layer's sums.
func (a *deviceSums) add(d kernels.Selector, o *model.Observation) *layerScores {
	sums, entries := a.layers[o.Layer], entriesOf(o)
	if most := slices.Max(entries); most > sums.device.Width() {
		wide := d.Alloc(kernels.F32, len(entries), most+sumsRoom)
		all := make([][]int32, len(entries))
		for h, n := range sums.entries {
			all[h] = upTo(0, n)
		}
		d.PickScores(wide, sums.device, kernels.HostSelection(all))
		sums.device = wide
	}
	d.AddScores(sums.device, entries, sums.entries, o.Windows[0])
	sums.entries = entries
	return sums
}

// addAll is add of all layers at once, which then lie in one tensor.
func (a *deviceSums) addAll(d kernels.Selector, scores *kernels.Tensor, entries []int) {
	heads := len(entries) / len(a.layers)
	var known []int
	joined := a.joint != nil && a.joint.Width() >= slices.Max(entries)
	for l, sums := range a.layers {
		known = append(known, sums.entries...)
		joined = joined && a.rows[l] == sums.device
	}
	if !joined {
		joint := d.Alloc(kernels.F32, len(entries), slices.Max(entries)+sumsRoom)
		for l, sums := range a.layers {
			all := make([][]int32, heads)
			for h, n := range sums.entries {
				all[h] = upTo(0, n)
			}
			d.PickScores(joint.Rows(l*heads, (l+1)*heads), sums.device, kernels.HostSelection(all))
		}
		a.setJoint(joint)
	}
	d.AddScores(a.joint, entries, known, scores)
	for l, sums := range a.layers {
		sums.entries = entries[l*heads : (l+1)*heads]
	}
}

func (a *deviceSums) setJoint(joint *kernels.Tensor) {
	a.joint, a.rows = joint, nil
	heads := joint.Dim0() / len(a.layers)
	for l, sums := range a.layers {
		sums.device = joint.Rows(l*heads, (l+1)*heads)
		a.rows = append(a.rows, sums.device)
	}
}

// keepAll leaves what was selected of all layers, after addAll.
func (a *deviceSums) keepAll(d kernels.Selector, s *kernels.Selection) {
	to := a.jointSpare
	if to == nil || !slices.Equal(to.Shape, a.joint.Shape) {
		to = d.Alloc(kernels.F32, a.joint.Shape...)
	}
	d.PickScores(to, a.joint, s)
	a.jointSpare = a.joint
	a.setJoint(to)
	for l, sums := range a.layers {
		sums.entries = make([]int, len(sums.entries))
		for h := range sums.entries {
			sums.entries[h] = s.Len(l*len(sums.entries) + h)
		}
	}
}

// keep leaves what was selected.
func (a *deviceSums) keep(d kernels.Selector, layer int, s *kernels.Selection) {
	sums := a.layers[layer]
	to := a.spare
	if to == nil || !slices.Equal(to.Shape, sums.device.Shape) {
		to = d.Alloc(kernels.F32, sums.device.Shape...)
	}
	d.PickScores(to, sums.device, s)
	a.spare, sums.device = sums.device, to
	sums.entries = slices.Clone(sums.entries)
	for h := range sums.entries {
		sums.entries[h] = s.Len(h)
	}
}

// Carry implements Carrier for scores on the host, which it never meets.
func (*deviceSums) Carry(Prompt, *model.Observation, [][]float32, [][]float32) {
	panic("eviction: sums on a device carried to the host")
}

// carryOn implements deviceCarrier.
func (a *deviceSums) carryOn(d kernels.Selector, _ Prompt, o *model.Observation, s *layerScores) {
	d.CarryScores(s.device, a.layers[o.Layer].device, a.layers[o.Layer].entries)
}
