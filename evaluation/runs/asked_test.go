package runs

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// TestPredictionsHoldPromptAndReference: beside every answer stands what was asked and what is right, of own data,
// of a benchmark's file and of prompts that are made, of one turn and of several.
func TestPredictionsHoldPromptAndReference(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"notes.jsonl": `{"text": "anna calls bruno", "answers": ["lamp", "anna"]}` + "\n" + `{"text": "anna calls"}` + "\n" + `{"prompt_ids": [11, 12], "answer": "bruno"}` + "\n" + `{"text": 5}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	j := small(t.TempDir())
	j.Policies, j.Samples = Names{"full,snapkv"}, 0
	j.Tasks = []Task{{Task: "data", Shared: Shared{Data: filepath.Join(dir, "notes.jsonl"), MaxNew: 4}}, {Task: "section,turns_section", Shared: Shared{Samples: 1}}}
	if _, err := j.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	all, err := readFinished(filepath.Join(j.Out, PredictionsFile))
	if err != nil {
		t.Fatal(err)
	}
	check := func(p *evaluation.Prediction, prompt string, references ...string) {
		t.Helper()
		if !strings.Contains(p.Prompt, prompt) || !slices.Equal(p.References, references) {
			t.Errorf("%s %s, %s: prompt %q, references %q, want %q, %q", p.Task, p.Sample, p.Policy, p.Prompt, p.References, prompt, references)
		}
	}
	for _, p := range all {
		switch {
		case p.Error != "":
			check(p, "")
		case p.Sample == "notes.jsonl:1":
			check(p, "anna calls bruno", "lamp", "anna")
		case p.Sample == "notes.jsonl:2":
			check(p, "anna calls")
		case p.Sample == "notes.jsonl:3":
			check(p, " ", "bruno")
		default:
			turns := len(p.Answers)
			if p.Prompt == "" || len(p.References) != turns || slices.Contains(p.References, "") {
				t.Errorf("%s %s: prompt %q, references %q of %d turns", p.Task, p.Sample, p.Prompt, p.References, turns)
			}
			if p.Policy == "full" && p.Measures[p.Metric] == 1 && p.Answers[0] != p.References[0] {
				t.Errorf("%s: the right answer is %q, the reference %q", p.Task, p.Answers, p.References)
			}
		}
	}
	if len(all) != 3*3+1+2*3 {
		t.Errorf("%d predictions", len(all))
	}
	stored, err := Read(t.Context(), j.Out, 1, j.S3) // of the first sample alone, as reports want it
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range stored.Predictions {
		if has := p.Prompt != ""; has != (p.Index == 0) {
			t.Errorf("%s %d: prompt %q", p.Task, p.Index, p.Prompt)
		}
	}
}
