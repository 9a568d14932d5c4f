package evaluation

import "testing"

// One sample tells nothing of the error of its score.
func TestErrorOfOneSample(t *testing.T) {
	for samples, want := range map[int]string{1: "100.0 ±–", 4: "100.0 ±12.0"} {
		m := meanByPolicy([]Row{{Policy: "snapkv", Task: "copy", Samples: samples, Score: 1, StdErr: 0.12}})
		if got := m[0].percent(); got != want {
			t.Errorf("%d samples: %q, want %q", samples, got, want)
		}
	}
}
