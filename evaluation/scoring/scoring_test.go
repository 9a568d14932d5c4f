package scoring

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"glimpse/evaluation/scoring/jieba"
)

func Example() {
	metric, err := Metrics.Lookup("qa_f1")
	if err != nil {
		panic(err)
	}
	score, err := metric.Score("in Paris, France", Reference{Answers: []string{"Lyon", "Paris"}})
	fmt.Printf("%.2f %v\n", score, err)
	// Output: 0.50 <nil>
}

func TestMetricsAreDocumented(t *testing.T) {
	for _, name := range Metrics.Names() {
		metric, _ := Metrics.Lookup(name)
		if metric.About == "" || metric.Source == "" || metric.Score == nil {
			t.Errorf("%s: %+v, want all of About, Source and Score", name, metric)
		}
		if strings.Contains(metric.About, "\n") {
			t.Errorf("%s: more than one line", name)
		}
	}
}

// What Python's normalize_answer gives, whose word boundaries are Unicode's.
func TestNormalized(t *testing.T) {
	cases := map[string]string{
		"éa theé the thé an àthe": "éa theé thé àthe",
		"The “A” a-b, an_x":       "“ ” ab anx",
		"A. An! THE?":             "",
		" x\x1cy\u3000z\u00a0 ":   "x y z",
		"ΟΔΟΣ İ":                  "οδος i̇",
	}
	for text, want := range cases {
		if got := Normalized(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// LongBench skips the class after one that it removes: of a, ab and abc, a is removed and
// ab is not looked at.
func TestClassificationSkipsAfterARemoval(t *testing.T) {
	metric, _ := Metrics.Lookup("classification")
	ref := Reference{Answers: []string{"abc"}, Classes: []string{"a", "ab", "abc"}}
	if score, err := metric.Score("abc", ref); score != 0.5 || err != nil {
		t.Errorf("%v, %v, want 0.5", score, err)
	}
}

func TestReferencesThatLackSomething(t *testing.T) {
	one := []string{"Paragraph 3"}
	cases := []struct {
		metric string
		ref    Reference
		want   string
	}{
		{"classification", Reference{Answers: one}, "without classes"},
		{"bleu_acc", Reference{Answers: one}, "without false answers"},
		{"retrieval", Reference{Answers: []string{"3"}}, `reference "3"`},
		{"retrieval_zh", Reference{Answers: one}, `reference "Paragraph 3"`},
	}
	for _, c := range cases {
		metric, _ := Metrics.Lookup(c.metric)
		if _, err := metric.Score("Paragraph 3", c.ref); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.metric, err, c.want)
		}
	}
	for _, name := range Metrics.Names() {
		metric, _ := Metrics.Lookup(name)
		if metric.Prepare != nil {
			continue
		}
		ref := Reference{Classes: one, Wrong: one}
		if _, err := metric.Score("text", ref); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: error %v, want %v", name, err, ErrNoAnswer)
		}
	}
}

func TestChineseWithoutADictionary(t *testing.T) {
	t.Setenv(JiebaVariable, "")
	defer func(before func() (*jieba.Segmenter, error)) { chinese = before }(chinese)
	chinese = openDictionary
	if err := chineseReady(); !errors.Is(err, ErrNoDictionary) {
		t.Errorf("error %v, want %v", err, ErrNoDictionary)
	}
	if _, err := bestChinese(qaF1Chinese)("北京", Reference{Answers: []string{"北京"}}); !errors.Is(err, ErrNoDictionary) {
		t.Errorf("error %v, want %v", err, ErrNoDictionary)
	}
	dir := t.TempDir()
	t.Setenv(JiebaVariable, dir)
	if err := chineseReady(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v, want one about %s", err, dir)
	}
}

// No prediction of a model is an error, and no score leaves [0, 1].
func FuzzMetrics(f *testing.F) {
	for _, s := range []string{"", "the Paris", "```tsv\na\tb\n\"1\t2", `\boxed{\frac12`, "Paragraph 3", "\xff\x1c.", "İ ΟΔΟΣ", "#### -,."} {
		f.Add(s, "Paragraph 3")
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, prediction, answer string) {
		if len(prediction)*len(answer) > 1e6 {
			t.Skip("the longest common subsequence takes the product of the lengths")
		}
		ref := Reference{Answers: []string{answer, "Paragraph 1"}, Wrong: []string{"x"}, Classes: []string{answer, "x"}}
		for _, name := range Metrics.Names() {
			metric, _ := Metrics.Lookup(name)
			if metric.Prepare != nil {
				continue
			}
			ref := ref
			if strings.HasPrefix(name, "retrieval") {
				ref.Answers = []string{"Paragraph 3段落3"}
			}
			score, err := metric.Score(prediction, ref)
			if err != nil || math.IsNaN(score) || score < 0 || score > 1 {
				t.Errorf("%s(%q, %q) = %v, %v", name, prediction, answer, score, err)
			}
		}
	})
}
