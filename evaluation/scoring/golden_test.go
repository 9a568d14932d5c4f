package scoring

import (
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation/scoring/jieba/jiebatest"
	"glimpse/internal/compare"
)

// golden is what lab/golden/golden_scoring.py wrote with the Python packages that the
// metrics name, and with their official rules.
type golden struct {
	Cases []struct {
		P string
		A []string
		W []string
		C []int              // indices of Classes
		S map[string]float64 // by metric
	}
	Chinese []map[string]float64 // of the pairs of texts of package jieba
	Classes []string
	Stems   map[string]string
}

func readGolden(t *testing.T) golden {
	t.Helper()
	f, err := os.Open("testdata/golden.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

// Every metric equals Python's on at least 200 random pairs.
func TestMetricsEqualPython(t *testing.T) {
	g := readGolden(t)
	cases := map[string]int{}
	distinct := map[string]map[float64]bool{}
	check := func(name, prediction string, ref Reference, want float64) {
		metric, err := Metrics.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := metric.Score(prediction, ref)
		if err != nil {
			t.Fatalf("%s(%q, %q): %v", name, prediction, ref.Answers, err)
		}
		if err := compare.Compare([]float64{got}, []float64{want}, compare.Floor(1)).Within(1e-8); err != nil {
			t.Errorf("%s(%q, %q): %v", name, prediction, ref.Answers, err)
		}
		if cases[name]++; distinct[name] == nil {
			distinct[name] = map[float64]bool{}
		}
		distinct[name][want] = true
	}
	for _, c := range g.Cases {
		ref := Reference{Answers: c.A, Wrong: c.W}
		for _, i := range c.C {
			ref.Classes = append(ref.Classes, g.Classes[i])
		}
		for name, want := range c.S {
			check(name, c.P, ref, want)
		}
	}

	texts := jiebatest.Read(t, "jieba")
	t.Setenv(JiebaVariable, texts.Dir)
	for i, scores := range g.Chinese {
		prediction, answer := strings.Join(texts.Texts[2*i], ""), strings.Join(texts.Texts[2*i+1], "")
		for name, want := range scores {
			check(name, prediction, Reference{Answers: []string{answer}}, want)
		}
	}

	for _, name := range Metrics.Names() {
		if cases[name] < 200 {
			t.Errorf("%s: %d cases, want at least 200", name, cases[name])
		}
		if len(distinct[name]) < 2 {
			t.Errorf("%s: all cases have the same score", name)
		}
	}
}

func TestStemsEqualNLTK(t *testing.T) {
	stems := readGolden(t).Stems
	if len(stems) < 300 {
		t.Fatalf("%d words", len(stems))
	}
	for _, word := range slices.Sorted(maps.Keys(stems)) {
		if got := porterStem(word); got != stems[word] {
			t.Errorf("the stem of %s is %s, want %s", word, got, stems[word])
		}
	}
}
