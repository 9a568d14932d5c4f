package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// scored are predictions of a task with these scores; NaN is a sample without one.
func scored(policy, budget, task, metric string, scores ...float64) (out []*evaluation.Prediction) {
	for i, s := range scores {
		p := &evaluation.Prediction{Task: task, Index: i, Sample: fmt.Sprint(i), Model: "m", Policy: policy, Budget: budget, Metric: metric, PromptTokens: 8, Cells: 1,
			Measures: evaluation.Measures{evaluation.MeasureKept: 64, evaluation.MeasureFull: 128}}
		if s == s {
			p.Measures[metric] = s
		} else {
			p.Groups = []evaluation.Group{{Key: "kind", Value: "open"}}
		}
		out = append(out, p)
	}
	return out
}

func rowsOf(t *testing.T, predictions ...[]*evaluation.Prediction) []evaluation.Row {
	t.Helper()
	var all []*evaluation.Prediction
	for _, p := range predictions {
		all = append(all, p...)
	}
	rows, err := evaluation.RowsOf(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func asJSON(t *testing.T, rows []evaluation.Row) string {
	t.Helper()
	var out bytes.Buffer
	if err := evaluation.WriteJSON(&out, rows); err != nil {
		t.Fatal(err)
	}
	again, err := readRows(out.Bytes())
	if err != nil || len(again) != len(rows) {
		t.Fatalf("read back: %d rows, %v", len(again), err)
	}
	return out.String()
}

// TestErrorOfOneSample: one sample tells nothing of the error of its score, right, wrong, graded or
// of running text; two do.
func TestErrorOfOneSample(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		metric string
		scores []float64
		known  bool
	}{
		"right":                    {"em", []float64{1}, false},
		"wrong":                    {"em", []float64{0}, false},
		"graded":                   {"f1", []float64{0.4}, false},
		"of a text":                {evaluation.MetricInversePerplexity, []float64{0.05}, false},
		"one of three":             {"f1", []float64{nan, 0.4, nan}, false},
		"two":                      {"f1", []float64{0.4, 0.6}, true},
		"two right":                {"em", []float64{1, 1}, true},
		"two texts":                {evaluation.MetricInversePerplexity, []float64{0.05, 0.04}, true},
		"two scored among several": {"em", []float64{1, nan, 0}, true},
	} {
		rows := evaluation.Overall(rowsOf(t, scored("tova", "16", "a", c.metric, c.scores...)))
		if text := asJSON(t, rows); strings.Contains(text, `"stderr":null`) == c.known {
			t.Errorf("%s: %s", name, text)
		}
		out := table(t, rows, TableOptions{})
		if strings.Contains(out, "±–") == c.known || strings.Contains(out, "NaN") {
			t.Errorf("%s:\n%s", name, out)
		}
		m := meansOf(rows)[0]
		if low, high := m.Spread(); (low < m.Shown() || high > m.Shown()) != c.known {
			t.Errorf("%s: from %v to %v around %v", name, low, high, m.Shown())
		}
	}
}

// TestUnscored: samples without a score are told of in table and JSON, and count in the other measures.
func TestUnscored(t *testing.T) {
	nan := math.NaN()
	rows := rowsOf(t,
		scored("tova", "16", "a", "f1", 0.5, 0.7, 0.6, nan, nan, nan, nan, nan), scored("tova", "16", "b", "f1", 0.5, 0.7),
		scored("snapkv", "16", "a", "f1", 0.5, 0.8, 0.8, nan, nan, nan, nan, nan), scored("snapkv", "16", "b", "f1", 0.5, 0.9))
	var open, whole int
	for _, r := range rows {
		switch {
		case len(r.Groups) > 0:
			open++
			if r.Score != nil || r.Samples != 5 || r.Scored() != 0 || r.KeptBytes != 64 {
				t.Errorf("five samples without a score: %+v", r)
			}
		case r.Task == "a":
			whole++
			if r.Samples != 8 || r.Unscored != 5 || math.Abs(*r.Score-map[string]float64{"tova": 0.6, "snapkv": 0.7}[r.Policy]) > 1e-12 {
				t.Errorf("three of eight: %+v, score %v", r, *r.Score)
			}
		}
	}
	if open != 2 || whole != 2 {
		t.Fatalf("%d and %d rows, want 2 and 2", open, whole)
	}
	if text := asJSON(t, rows); !strings.Contains(text, `"samples":8,"unscored":5`) || !strings.Contains(text, `"samples":5,"unscored":5,"metric":"f1","score":null,"stderr":null`) {
		t.Errorf("JSON:\n%s", text)
	}
	if out := table(t, evaluation.Overall(rows), TableOptions{}); !strings.Contains(out, "n=3 n=2") {
		t.Errorf("no line of n in the heads:\n%s", out)
	}
	out := table(t, evaluation.Overall(rows), TableOptions{Markdown: true})
	for _, want := range []string{"| policy | a n=3 | b n=2 |", "(2–8 samples each, 2–3 scored)", "| snapkv | 70 | 70 |"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// A task without any score is no part of a mean.
	none := rowsOf(t, scored("tova", "16", "a", "f1", nan, nan), scored("tova", "16", "b", "f1", 0.5, 0.7))
	out = table(t, evaluation.Overall(none), TableOptions{Markdown: true})
	if !strings.Contains(out, "| tova | – | 60 | – |") {
		t.Errorf("a task without a score:\n%s", out)
	}
}

// TestMeasuredOfFew: a measure that some samples lack tells of how many it is the mean.
func TestMeasuredOfFew(t *testing.T) {
	all := scored("tova", "16", "a", "f1", 0.5, 0.7, 0.6, 0.5)
	for i, p := range all {
		if p.Measures["own"] = 1; i > 0 {
			p.Measures["f2"], p.Measures[evaluation.MeasureNLL], p.Measures[evaluation.Agreement] = 0.5, 1.5, 0.25
		}
	}
	rows := rowsOf(t, all)
	if text := asJSON(t, rows); !strings.Contains(text, `"measured":{"agreement_f1":3,"f2":3,"nll":3}`) {
		t.Errorf("JSON: %s", text)
	}
	var out bytes.Buffer
	if err := WriteMeasures(&out, rows, TableOptions{Markdown: true}); err != nil || !strings.Contains(out.String(), "| f2 n=3 | own |") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if out := table(t, rows, TableOptions{Markdown: true}); !strings.Contains(out, "| agree % n=3 | NLL nats n=3 |") {
		t.Errorf("no n of agreement:\n%s", out)
	}
}

// TestPerplexityIsShown: the table has the perplexity, its geometric mean over texts and the error
// of that, and lower ones stand first; with other tasks there is no mean.
func TestPerplexityIsShown(t *testing.T) {
	one := func(p ...float64) (out []float64) {
		for _, v := range p {
			out = append(out, 1/v)
		}
		return out
	}
	texts := func(policy, budget string, p ...float64) []*evaluation.Prediction {
		return scored(policy, budget, "perplexity", evaluation.MetricInversePerplexity, one(p...)...)
	}
	rows := rowsOf(t, texts("full", "", 16, 25), texts("worse", "16", 40, 90), texts("better", "16", 20, 45), texts("worse", "32", 27, 27), texts("better", "32", 18, 32))
	// √(20·45) = 30, and of two values s/√2 is half of their distance: ln(45/20)/2·30 = 12.16.
	out := table(t, rows, TableOptions{Markdown: true})
	for _, want := range []string{"| full | 20.00 | 20.00 ±4.46 |", "| better | 30.00 | 30.00 ±12.16 |", "| worse | 60.00 | 60.00 ±24.33 |", "| worse | 27.00 | 27.00 ±0.00 |",
		"**Perplexity, lower is better, prompts of 8 tokens**", "tasks: perplexity, lower is better"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "in %") || strings.Index(out, "| better | 30") > strings.Index(out, "| worse | 60") {
		t.Errorf("in %%, or the worse one first:\n%s", out)
	}
	if v := rows[0].Measures[evaluation.MeasurePerplexity]; math.Abs(v-20) > 1e-9 {
		t.Errorf("measure perplexity %v, want 20", v)
	}
	if got := meansOf(rowsOf(t, texts("tova", "16", 100, 225)))[0].FormatScore(); got != "150.0 ±60.8" { // ln(2.25)/2·150
		t.Errorf("a large one: %q", got)
	}
	mixed := rowsOf(t, texts("tova", "16", 20, 45), scored("tova", "16", "a", "f1", 0.5, 0.7))
	if out := table(t, mixed, TableOptions{Markdown: true}); !strings.Contains(out, "| tova | 30.00 | 60 | – |") {
		t.Errorf("a perplexity beside a share:\n%s", out)
	}
}
