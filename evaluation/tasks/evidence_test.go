package tasks

import (
	"slices"
	"testing"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/model"
)

// TestEvidenceOfTexts: with every tokenizer the tokens of the evidence say the answers, no
// other tokens do, and none is there twice.
func TestEvidenceOfTexts(t *testing.T) {
	for name, m := range textModels(t) {
		for _, task := range []struct{ name, subtask, option string }{
			{"niah", "", "depths=0,0.5"}, {"ruler", "niah_multivalue", ""}, {"ruler", "niah_single_3", ""}, {"ruler", "vt", ""},
		} {
			var set []string
			if task.option != "" {
				set = append(set, task.option)
			}
			s := setting(t, m, task.name, set...)
			s.Tokens = 1500
			if task.subtask == "niah_multivalue" || task.name == "niah" || name == "bytes" {
				s.Tokens = 3000
			}
			_, all := makeAll(t, task.name, task.subtask, s)
			for _, a := range all {
				if a.err != nil {
					t.Fatalf("%s: %s: %v", name, task, a.err)
				}
				ids, _ := promptText(t, m, a.sample)
				at := a.sample.Evidence
				if len(at) == 0 || !slices.IsSorted(at) || len(slices.Compact(slices.Clone(at))) != len(at) || len(at) > len(ids)/4 {
					t.Fatalf("%s: %v: evidence %v of %d tokens", name, task, at, len(ids))
				}
				var said, rest []int32
				for i, id := range ids {
					if slices.Contains(at, int32(i)) {
						said = append(said, id)
					} else {
						rest = append(rest, id)
					}
				}
				told, left := decoded(t, m, said), decoded(t, m, rest)
				if got := scoreOf(t, a.sample, metricOf(a.sample, t), told); got != 1 {
					t.Errorf("%s: %v: the evidence says %q, which is not the answer", name, task, told)
				}
				if got := scoreOf(t, a.sample, metricOf(a.sample, t), left); got != 0 {
					t.Errorf("%s: %v: the rest of the prompt says the answer, too", name, task)
				}
			}
		}
	}
}

func decoded(t *testing.T, m *model.Model, ids []int32) string {
	t.Helper()
	text, err := m.Tokenizer.Decode(ids, true)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// metricOf is the only metric that a sample is scored with.
func metricOf(s *evaluation.Sample, t *testing.T) string {
	t.Helper()
	scores, err := s.Score(t.Context(), []evaluation.Output{{}})
	if err != nil || len(scores) != 1 {
		t.Fatalf("%v, %v", scores, err)
	}
	for name := range scores {
		return name
	}
	return ""
}

// TestEvidenceOfSyntheticTasks: a word of every answer stands where the evidence says, in all tasks.
func TestEvidenceOfSyntheticTasks(t *testing.T) {
	m, err := model.OpenShapes("", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	m.ReadTokenizer()
	for _, task := range datasets.Tasks.Names() {
		stream, err := datasets.NewStream([]string{task}, datasets.Test, 256, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			e, err := stream.At(i)
			if err != nil {
				t.Fatal(err)
			}
			s := syntheticSample(m, e)
			if len(s.References) != 1+len(e.Turns) || slices.Contains(s.References, "") {
				t.Errorf("task %s: references %q, want one for each turn", task, s.References)
			}
			words := slices.Clone(e.Answer)
			for _, turn := range e.Turns {
				words = append(words, turn.Answer...)
			}
			var got []int32
			for _, at := range s.Evidence {
				got = append(got, e.Prompt[at])
			}
			for _, w := range words {
				if !slices.Contains(got, w) {
					t.Errorf("%s: word %d of the answer stands at none of %v", task, w, s.Evidence)
				}
			}
			if slices.ContainsFunc(got, func(w int32) bool { return !slices.Contains(words, w) }) {
				t.Errorf("%s: evidence %v has a word that is not the answer's", task, s.Evidence)
			}
		}
	}
}
