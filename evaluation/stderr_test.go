package evaluation

import (
	"testing"

	"glimpse/internal/compare"
)

// TestStandardErrors: of samples that all score alike no table claims that there is no error, whatever they score.
func TestStandardErrors(t *testing.T) {
	for _, c := range []struct {
		name         string
		values       []float64
		mean, stdErr float64
	}{
		{"the full cache against itself", []float64{1, 1}, 1, 1.0 / 6},
		{"graded, alike", []float64{0.25, 0.25}, 0.25, 1.0 / 6},
		{"graded, alike, more of them", []float64{0.4, 0.4, 0.4, 0.4}, 0.4, 0.1},
		{"none right", []float64{0, 0, 0, 0}, 0, 0.1},
		{"half right", []float64{0, 1, 0, 1}, 0.5, 0.25},
		{"graded", []float64{0.2, 0.4}, 0.3, 0.1},
	} {
		mean, stdErr := score(c.values, Unit{})
		compare.Close(t, c.name, []float64{mean, stdErr}, []float64{c.mean, c.stdErr}, 1e-12, compare.Floor(0))
	}
}
