package eviction

// Traffic is memory traffic of the attention of decoding steps, in bytes over all
// layers and heads: of the keys and values that the steps attend to, their own
// included, and of all that was read to choose them.
type Traffic struct {
	Steps      int
	Bytes      int64 // in all
	Estimation int64 // of them, to choose
	Most       int64 // of any one step

	step int64
}

// PerStep is the mean over steps, 0 before the first.
func (t Traffic) PerStep() float64 { return float64(t.Bytes) / float64(max(1, t.Steps)) }

// Plus is the traffic of both.
func (t Traffic) Plus(other Traffic) Traffic {
	return Traffic{
		Steps: t.Steps + other.Steps, Bytes: t.Bytes + other.Bytes,
		Estimation: t.Estimation + other.Estimation, Most: max(t.Most, other.Most),
	}
}

// addReads takes in what a layer has read, the first one of a step or a later one.
func (t *Traffic) addReads(first bool, read, estimation int64) {
	if first {
		t.Steps++
		t.step = 0
	}
	t.step += read + estimation
	t.Bytes += read + estimation
	t.Estimation += estimation
	t.Most = max(t.Most, t.step)
}
