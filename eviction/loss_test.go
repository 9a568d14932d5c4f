package eviction

import (
	"math"
	"testing"
)

// TestLoss: losses are positive where eviction does worse, in [-1, 1], and in units of the scale.
func TestLoss(t *testing.T) {
	l := Loss{Name: LossNLL, Clip: 2}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"less likely", l.OfNLL(1.5, 1), 0.25},
		{"more likely", l.OfNLL(1, 1.5), -0.25},
		{"clipped", l.OfNLL(30, 1), 1},
		{"clipped below", l.OfNLL(0, 30), -1},
		{"a lost point", l.OfScore(0.25, 1), 0.75},
		{"a won point", l.OfScore(1, 0), -1},
		{"the same answer", l.OfAgreement(TokenF1([]int32{1, 2}, []int32{1, 2})), 0},
		{"half of it", l.OfAgreement(TokenF1([]int32{1, 2, 2}, []int32{1, 3, 2})), 1.0 / 3},
		{"nothing of it", l.OfAgreement(TokenF1([]int32{4}, nil)), 1},
		{"two that say nothing", TokenF1(nil, nil), 1},
		{"scale", l.Scale() + Loss{Name: LossAgreement}.Scale(), 3},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}
