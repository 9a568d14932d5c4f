package evaluation

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPredictionTellsWhatWasAsked: a short prompt is there whole, a long one with its ends and the hash of all
// of it, by characters and not bytes; references are cut, and too many are left out.
func TestPredictionTellsWhatWasAsked(t *testing.T) {
	for _, n := range []int{0, 1, 999, 1000, 1001, 5000} {
		prompt := strings.Repeat("é", n/2) + strings.Repeat("z", n-n/2)
		p := &Prediction{Task: "t", Policy: "full", Cells: 1}
		p.about(prompt, nil)
		want, hash := prompt, ""
		if n > 1000 {
			want = strings.Repeat("é", 500) + fmt.Sprintf(" […%d characters…] ", n-1000) + strings.Repeat("z", 500)
			hash = fmt.Sprintf("%x", sha256.Sum256([]byte(prompt)))
		}
		if p.Prompt != want || p.PromptSHA256 != hash || p.References != nil {
			t.Errorf("%d characters: %q, %s, want %q, %s", n, p.Prompt, p.PromptSHA256, want, hash)
		}
	}
	p := &Prediction{Task: "t", Policy: "full", Cells: 1}
	p.about("", append([]string{"Paris", strings.Repeat("ü", 1001)}, make([]string, 30)...))
	if len(p.References) != 20 || p.References[0] != "Paris" || p.References[1] != strings.Repeat("ü", 1000)+"…" {
		t.Errorf("references %q", p.References)
	}
	line, err := p.encodeLine()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodePrediction(line)
	if err != nil || !slices.Equal(back.References, p.References) {
		t.Errorf("%+v, %v", back, err)
	}
	if back.Shorten(); back.References != nil || back.Prompt != "" {
		t.Errorf("%+v: want no texts", back)
	}
}
