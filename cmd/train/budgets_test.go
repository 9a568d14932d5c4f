package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/eviction"
)

// TestBudgets: budgets of heads are learned of samples by either label, the same again, and leave nothing but their file; what
// cannot be learned of is refused before, and samples of another model too.
func TestBudgets(t *testing.T) {
	dir := t.TempDir()
	samples, out := filepath.Join(dir, "samples.jsonl"), filepath.Join(dir, "budgets.json")
	mustExecute(t, "generate", "--samples", "4", "--tokens", "64", "--out", samples)
	written := make(map[string]string)
	for _, label := range []string{"context", "response", "context"} {
		text, _ := mustExecute(t, "budgets", "--data", samples, "--label", label, "--samples", "3", "--budgets", "7%,25%", "--out", out, "--replace")
		raw, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		b, err := eviction.ParseHeadBudgets(raw)
		if err != nil || b.Samples != 3 || b.Tokens != 3*64 || len(b.Budgets) != 2 || b.Label != label || !strings.Contains(text, "at 7%: a tenth") {
			t.Errorf("%s: %+v, %v, %q", label, b, err, text)
		}
		if was, ok := written[label]; ok && was != string(raw) {
			t.Errorf("%s: learned again they are others", label)
		}
		written[label] = string(raw)
	}
	if written["context"] == written["response"] {
		t.Error("both labels learn the same")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%d files, %v, want the samples and the budgets", len(left), err)
	}
	other := writeFile(t, "other.jsonl", strings.Replace(readFile(t, samples), `"weights_sha256":"`, `"weights_sha256":"00000000`, 1))
	for _, c := range []struct{ want, args string }{
		{"--data is missing", "--out " + out},
		{"--out is missing", "--data " + samples},
		{"write over it with --replace", "--data " + samples + " --out " + out},
		{"want at most the 4 of", "--replace --samples 5 --data " + samples + " --out " + out},
		{"want shares below 100% that ascend", "--replace --budgets 10%,5% --data " + samples + " --out " + out},
		{"it shares its budget out itself", "--replace --label h2o --data " + samples + " --out " + out},
		{"weights_sha256", "--replace --data " + other + " --out " + out},
		{"no such file", "--replace --data no/such --out " + out},
	} {
		if _, _, err := execute(t, t.Context(), append([]string{"budgets"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.args, err, c.want)
		}
	}
	if got := readFile(t, out); got != written["context"] {
		t.Error("a refused run has changed the file")
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestDrawnShares: a line for each KV head, a character for each layer, a blank for one that nothing is decided about.
func TestDrawnShares(t *testing.T) {
	got := drawnShares(eviction.HeadShares{Heads: [][]float64{{0, 1}, nil, {0.5, 0.06}, {0.0624, 0.9376}}}, 2)
	if want := "head 0   · ▄·\nhead 1   █ ·█\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
