package report

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/evaluation/runs"
)

// runOf is a run of policies on one task with these scores of theirs, at two budgets; NaN is a
// sample without one.
func runOf(task, metric string, scores map[string][]float64) *runs.Stored {
	s := &runs.Stored{Path: "out/one", Config: []byte("seed: 1\n"), Finished: true}
	for _, policy := range []string{"full", "snapkv", "tova", "h2o"} {
		for i, score := range scores[policy] {
			for _, budget := range []string{"16", "32"} {
				if policy == "full" {
					if budget = ""; len(s.Predictions) > 0 && s.Predictions[len(s.Predictions)-1].Index == i {
						continue
					}
				}
				p := predict(task, i, policy, "", budget, 0, "x")
				delete(p.Measures, p.Metric)
				if p.Metric = metric; score == score {
					p.Measures[metric] = score
				}
				s.Predictions = append(s.Predictions, p)
			}
		}
	}
	return s
}

// TestOneSampleHasNoError: neither in means nor in intervals, differences and tests, and no mark tells
// policies apart.
func TestOneSampleHasNoError(t *testing.T) {
	for name, c := range map[string]struct {
		scores map[string][]float64
		known  bool
	}{
		"one sample": {map[string][]float64{"full": {1}, "snapkv": {1}, "tova": {0}, "h2o": {0.5}}, false},
		"one scored": {map[string][]float64{"full": {1, math.NaN()}, "snapkv": {1, math.NaN()}, "tova": {0, math.NaN()}, "h2o": {0.5, math.NaN()}}, false},
		"two":        {map[string][]float64{"full": {1, 1}, "snapkv": {1, 0.5}, "tova": {0, 0.25}, "h2o": {0.5, 0.25}}, true},
	} {
		s := build(t, Options{Samples: 2}, runOf("one", "accuracy", c.scores)).Sections[0]
		mean := line(t, s.Overview, "h2o")[1]
		test := line(t, s.Tests[0].Table, "tova")
		if (mean.Error != absent) != c.known || (test[2].Text != absent) != c.known || (test[3].Bar != nil) != c.known {
			t.Errorf("%s: mean %+v, interval %+v, bar %+v", name, mean, test[2], test[3])
		}
		for i, want := range []bool{5: c.known, 8: c.known, 9: c.known, 10: c.known} {
			if i > 4 && i != 6 && i != 7 && (test[i].Text != absent) != want {
				t.Errorf("%s: column %d of the tests is %q", name, i, test[i].Text)
			}
		}
		if test[4].Text == absent || (test[6].Bar != nil) != c.known || test[7].Text == "" {
			t.Errorf("%s: difference %+v, %+v, won, tied and lost %+v", name, test[4], test[6], test[7])
		}
		if !c.known && !line(t, s.Overview, "tova")[1].Near {
			t.Errorf("%s: tova is told apart from the best by one sample", name)
		}
		for _, p := range s.Quality.Series[0].Points {
			if (p.Low != p.High) != c.known && s.Quality.Series[0].Name != "full" {
				t.Errorf("%s: %s has a bar from %v to %v", name, s.Quality.Series[0].Name, p.Low, p.High)
			}
		}
		if page := html(t, build(t, Options{Samples: 2}, runOf("one", "accuracy", c.scores))); strings.Contains(page, "NaN") {
			t.Errorf("%s: the page has a NaN", name)
		}
	}
}

// TestUnscoredIsTold: the report says how many samples have a score where not all have.
func TestUnscoredIsTold(t *testing.T) {
	nan := math.NaN()
	scores := map[string][]float64{"full": {1, 1, nan, nan}, "snapkv": {1, 0, nan, nan}, "tova": {0, 0, nan, nan}}
	text := markdownOf(t, build(t, Options{Samples: 2}, runOf("one", "accuracy", scores)))
	if !strings.Contains(text, "4 samples, 2 scored") || !strings.Contains(text, "%, n=2") {
		t.Errorf("the report does not tell that 2 of 4 samples are scored:\n%s", text)
	}
}

// TestPerplexity: the report shows perplexities, the lowest is the best, and differences are of
// the log-likelihood.
func TestPerplexity(t *testing.T) {
	one := func(p ...float64) (out []float64) {
		for _, v := range p {
			out = append(out, 1/v)
		}
		return out
	}
	s := build(t, Options{Samples: 2}, runOf("perplexity", evaluation.MetricInversePerplexity,
		map[string][]float64{"full": one(16, 25, 20), "snapkv": one(20, 45, 30), "tova": one(40, 90, 60)})).Sections[0]
	best, worse := line(t, s.Overview, "snapkv")[1], line(t, s.Overview, "tova")[1]
	if best.Text != "30.00" || best.Mark != Best || worse.Text != "60.00" || worse.Mark != Unmarked || s.Overview.Heads[1].Unit != "" {
		t.Errorf("means %+v and %+v in %q, want 30.00, the best, and 60.00", best, worse, s.Overview.Heads[1].Unit)
	}
	test := line(t, s.Tests[0].Table, "tova")
	if test[1].Text != "60.00" || test[2].Text != "40.00 … 90.00" || test[3].Bar != nil || test[4].Text != "−0.693" || test[5].Text != "−0.693 … −0.693" || test[7].Text != "0–0–3" {
		t.Errorf("test %+v, want a mean of 60 and ln 2 less", test)
	}
	if y := s.Quality.Series; y[0].Points[0].Y == y[1].Points[0].Y || !strings.HasPrefix(s.Intro, "Perplexity, lower is better; 3 samples") {
		t.Errorf("chart %+v, intro %q", y, s.Intro)
	}
	higher := map[string]float64{}
	for _, series := range s.Quality.Series {
		_, drawn, _ := strings.Cut(string(s.Quality.SVG()), `data-name="`+series.Name+`"`)
		_, drawn, _ = strings.Cut(drawn, ` cy="`)
		drawn, _, _ = strings.Cut(drawn, `"`)
		y, err := strconv.ParseFloat(drawn, 64)
		if err != nil {
			t.Error(err)
		}
		higher[series.Name] = y
	}
	if !(higher["tova"] < higher["snapkv"]) { // the larger value is further up
		t.Errorf("heights %v", higher)
	}
	for _, tab := range s.Costs {
		for _, c := range tab.Charts {
			for _, text := range strings.Split(string(c.SVG()), "</text>") {
				if strings.Contains(text, "(%)") && strings.Contains(text, "erplexity") {
					t.Errorf("axis %q", text)
				}
			}
		}
	}
}

// TestChartsOfFewMeans: without a mean over all tasks there is no chart of means, and long names leave a
// chart its room.
func TestChartsOfFewMeans(t *testing.T) {
	one, two := runOf("suite/a", "accuracy", map[string][]float64{"snapkv": {1, 0}}), runOf("suite/b", "accuracy", map[string][]float64{"tova": {1, 0}})
	one.Predictions = append(one.Predictions, two.Predictions...)
	if s := build(t, Options{Samples: 2}, one).Sections[0]; s.Quality != nil || s.Costs != nil {
		t.Errorf("charts of means %+v, costs %+v", s.Quality, s.Costs)
	}
	long := runOf("one", "accuracy", map[string][]float64{"snapkv": {1, 0}, "tova": {1, 0}})
	for _, p := range long.Predictions {
		p.Adapter = strings.Repeat("W", 64)
	}
	svg := string(build(t, Options{Samples: 2}, long).Sections[0].Quality.SVG())
	if !strings.Contains(svg, "WW…</text>") || strings.Contains(svg, "NaN") || strings.Contains(svg, `="-`) {
		t.Errorf("got\n%s", svg)
	}
}
