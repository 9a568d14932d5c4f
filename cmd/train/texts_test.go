package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrainsOnTexts: labels of contexts train on any texts, by both losses and with heads weighed as was learned; the same
// settings make the same adapter, a run goes on after its end, and what cannot be learned of texts is refused.
func TestTrainsOnTexts(t *testing.T) {
	dir := t.TempDir()
	text := writeFile(t, "text.txt", strings.Repeat("anna lamp harbor anna calls bruno\n", 600))
	run := func(out string, more ...string) error {
		_, _, err := execute(t, t.Context(), append([]string{"lookahead", "--data", text, "--label", "context", "--head-weights", "learned", "--steps", "2", "--batch", "1", "--rows", "2",
			"--shortest", "20", "--longest", "40", "--validate", "1", "--validate-budgets", "25%", "--out", filepath.Join(dir, out)}, more...)...)
		return err
	}
	for _, out := range []string{"one", "two"} {
		if err := run(out, "--checkpoint", filepath.Join(dir, out+".state")); err != nil {
			t.Fatal(err)
		}
	}
	const numbers = "lookahead_embeddings.safetensors"
	if readFile(t, filepath.Join(dir, "one", numbers)) != readFile(t, filepath.Join(dir, "two", numbers)) {
		t.Error("the same settings make another adapter")
	}
	mustExecute(t, "judgeq", "--data", text, "--label", "context-mean", "--steps", "1", "--batch", "1", "--rows", "2", "--shortest", "20", "--longest", "40", "--out", filepath.Join(dir, "soft"))
	restore := []string{"restore", "--data", text, "--label", "context-mean", "--steps", "1", "--batch", "1", "--shortest", "130", "--longest", "140", "--init-adapter", filepath.Join(dir, "one"), "--out", filepath.Join(dir, "stays")}
	mustExecute(t, append(restore, "--rows", "2")...)
	if _, _, err := execute(t, t.Context(), append(restore, "--rows", "3", "--replace")...); err == nil || !strings.Contains(err.Error(), "lookahead_embeddings: got [2 ") {
		t.Errorf("numbers of two rows for three: %v", err)
	}
	mustExecute(t, "plan", writeFile(t, "plan.yaml", "run: "+dir+"/run\ndata: ["+text+"]\nadapters: [{kind: judgeq, label: context, head_weights: learned, learning_rate: 0.01}]\n"))
	for want, more := range map[string][]string{
		"texts have no end":          {"--epochs", "2"},
		"want at least 16 tokens":    {"--shortest", "4"},
		"no such file":               {"--data", filepath.Join(dir, "none")},
		"unknown label":              {"--label", "contexts"},
		"this run texts of 20 to 50": {"--resume", "--checkpoint", filepath.Join(dir, "one.state"), "--longest", "50"},
	} {
		if err := run("refused", more...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to say %q", more, err, want)
		}
	}
}

// TestAnotherScorerOnResume: rows that stay are trained beside what an adapter selects. With other numbers in its folder a run does not go on.
func TestAnotherScorerOnResume(t *testing.T) {
	dir := t.TempDir()
	text := writeFile(t, "text.txt", strings.Repeat("anna lamp harbor anna calls bruno\n", 600))
	common := []string{"--data", text, "--label", "context-mean", "--batch", "1", "--rows", "2", "--shortest", "130", "--longest", "140"}
	scorer := filepath.Join(dir, "scorer")
	seed := func(seed, out string) {
		mustExecute(t, append([]string{"lookahead", "--steps", "1", "--seed", seed, "--out", filepath.Join(dir, out)}, common...)...)
	}
	rename := func(from, to string) {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(steps string, more ...string) error {
		_, _, err := execute(t, t.Context(), append(append([]string{"restore", "--scorer", scorer, "--steps", steps, "--out", filepath.Join(dir, "stays"), "--checkpoint", filepath.Join(dir, "state"), "--replace"}, common...), more...)...)
		return err
	}
	seed("1", "scorer")
	if err := run("1"); err != nil {
		t.Fatal(err)
	}
	rename("scorer", "first")
	seed("2", "scorer")
	if err := run("2", "--resume"); err == nil || !strings.Contains(err.Error(), "scorer "+scorer) {
		t.Errorf("another scorer: %v", err)
	}
	rename("scorer", "second")
	rename("first", "scorer")
	if err := run("2", "--resume"); err != nil {
		t.Errorf("the same scorer: %v", err)
	}
}
