package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// TestMTBenchPrompts: the prompts of the judge are those of MT-Bench, to the byte
// (lab/golden/mtbench_prompts.py).
func TestMTBenchPrompts(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "mtbench_prompts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) != 4 {
		t.Fatalf("%d prompts, want 4", len(want))
	}
	for category, names := range map[string][2]string{"writing": {"single-v1", "single-v1-multi-turn"}, "math": {"single-math-v1", "single-math-v1-multi-turn"}} {
		q := mtQuestion{id: "1", category: category, turns: []string{"Q1 {answer}?", "Q2?"}}
		prompts, err := q.judge([]string{"A1\n", "A2"}, []string{"R1", "R2"})
		if err != nil || len(prompts) != 2 {
			t.Fatalf("%d prompts, %v", len(prompts), err)
		}
		for i, p := range prompts {
			sum := sha256.Sum256([]byte(p.System + "\x00" + p.User))
			if got := hex.EncodeToString(sum[:]); got != want[names[i]] {
				t.Errorf("%s: SHA-256 %s, want %s: %q", names[i], got, want[names[i]], p)
			}
		}
	}
}

// TestMTBench: two turns, the second after the model's own answer; a bad row fails alone.
func TestMTBench(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "question.jsonl"), `{"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Now another."]}
{"question_id": 82, "category": "writing", "turns": []}
{"question_id": 83, "turns": ["x"]}
`)
	for name, m := range textModels(t) {
		s := setting(t, m, "mtbench", "system=Be brief.")
		system := m.HasChatTemplate()
		if name == "mistral_v3" { // whose template puts it before the last message
			s, system = setting(t, m, "mtbench"), false
		}
		s.Data, s.Samples = dir, 0
		samples, all := makeAll(t, "mtbench", "", s)
		if len(all) != 3 || samples.Metric != evaluation.Agreement || all[0].id != "81" || all[0].err != nil {
			t.Fatalf("%s: %d samples, metric %s, first %v", name, len(all), samples.Metric, all[0])
		}
		sample := all[0].sample
		if sample.Score != nil || sample.Groups[0] != (evaluation.Group{Key: "category", Value: "writing"}) || sample.Turns[0].MaxNew != mtMaxNew {
			t.Errorf("%s: %+v", name, sample)
		}
		_, first := promptText(t, m, sample)
		ids, _, err := sample.Turns[1].Prompt(t.Context(), []evaluation.Output{{Text: "\n\nRoses are red. \n"}})
		if err != nil {
			t.Fatal(err)
		}
		second, err := m.Tokenizer.Decode(ids, true)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(first, "Write a poem.") || strings.Contains(first, "Be brief.") != system || !strings.Contains(second, "Now another.") || strings.Contains(second, "Roses") || strings.Contains(second, "poem") {
			t.Errorf("%s: turns %q and %q", name, first, second)
		}
		for i, want := range map[int]string{1: `question.jsonl:2: field "turns": got 0 turns`, 2: `question.jsonl:3: field "category": missing`} {
			if all[i].err == nil || !strings.Contains(all[i].err.Error(), want) {
				t.Errorf("%s: error %v, want it to say %q", name, all[i].err, want)
			}
		}
	}
}
