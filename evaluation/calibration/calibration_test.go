package calibration

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/eviction"
)

func budget(t *testing.T, text string) eviction.Budget {
	t.Helper()
	b, err := eviction.ParseBudget(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func promise(loss string, epsilon float64) Promise {
	return Promise{eviction.Promise{Loss: eviction.Loss{Name: loss, Clip: 2}, Epsilon: epsilon, Confidence: 0.95}}
}

// alike are n losses that are the same.
func alike(n int, loss float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = loss
	}
	return out
}

// TestCertify: budgets are tested from the largest down, whatever the order they come in, and not below the first that fails; the
// smallest one that is certified is chosen, of equals the one that loses less.
func TestCertify(t *testing.T) {
	cell := func(policy, text string, loss float64) Cell {
		return Cell{Policy: policy, Budget: budget(t, text), Losses: alike(300, loss), Prompts: 300}
	}
	for _, c := range []struct {
		name   string
		cells  []Cell
		want   string // verdicts in the order of the lines
		chosen string
		open   bool
	}{
		{"all are", []Cell{cell("a", "20%", 0), cell("a", "80%", 0)}, "yes yes", "a 20%", true},
		{"none is", []Cell{cell("a", "20%", 0), cell("a", "80%", 0.5)}, "no not tested", "", false},
		{"behind one that is not", []Cell{cell("a", "80%", 0), cell("a", "40%", 0.3), cell("a", "20%", 0)}, "yes no not tested", "a 80%", false},
		{"the smaller budget", []Cell{cell("a", "80%", 0), cell("a", "40%", 0.5), cell("b", "80%", 0.01), cell("b", "40%", 0.01)}, "yes no yes yes", "b 40%", true},
		{"the lower loss", []Cell{cell("a", "40%", 0.01), cell("b", "40%", 0)}, "yes yes", "b 40%", true},
		{"gains", []Cell{cell("a", "40%", -0.5)}, "yes", "a 40%", true},
	} {
		p := promise(eviction.LossNLL, 0.2) // 0.1 of the scale
		r := p.Certify(c.cells, 0)
		var got []string
		for _, l := range r.Lines {
			got = append(got, string(l.Verdict))
			upper := r.Upper(&l)
			if (l.Verdict == Certified) != (upper <= p.Epsilon) && l.Verdict != NotTested || math.Abs(l.Mean-2*l.Losses[0]) > 1e-9 {
				t.Errorf("%s: %s %v: mean %v, bound %v, %s", c.name, l.Label(), l.Budget, l.Mean, upper, l.Verdict)
			}
		}
		chosen := ""
		if r.Chosen != nil {
			chosen = fmt.Sprint(r.Chosen.Label(), " ", r.Chosen.Budget)
		}
		if strings.Join(got, " ") != c.want || chosen != c.chosen || r.Open() != c.open || r.Documents != 300 {
			t.Errorf("%s: %v, chosen %q, open %v; want %s, %q, %v", c.name, got, chosen, r.Open(), c.want, c.chosen, c.open)
		}
	}
}

// TestDocumentsNeeded: so many documents certify, if nothing is lost, and one fewer does not, among any number of policies.
func TestDocumentsNeeded(t *testing.T) {
	for _, policies := range []int{1, 2, 5} {
		p := promise(eviction.LossNLL, 0.1)
		n := p.Documents(policies)
		for _, some := range []int{n, n - 1} {
			r := p.Certify([]Cell{{Policy: "a", Budget: budget(t, "50%"), Losses: make([]float64, some)}}, policies)
			if (r.Chosen != nil) != (some == n) {
				t.Errorf("%d policies: %d documents: chosen %v, and %d are needed", policies, some, r.Chosen, n)
			}
		}
	}
}

// TestFalseCertificates: where every budget but the largest loses more than was promised, by ever so little, one of them is certified in no
// more than 5% of calibrations, over several policies.
func TestFalseCertificates(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 300
	}
	const epsilon = 0.1
	p := promise(eviction.LossAgreement, epsilon)
	wrong, right := 0, 0
	for run := range runs {
		r := rand.New(rand.NewPCG(uint64(run), 66))
		var cells []Cell
		for _, policy := range []string{"a", "b", "c"} {
			for i, text := range []string{"80%", "40%", "20%"} {
				losses := make([]float64, 200)
				for k := range losses {
					if i == 0 { // its mean is 0.03
						losses[k] = 0.06 * r.Float64()
					} else if r.Float64() < epsilon+0.001*float64(i) {
						losses[k] = 1
					}
				}
				cells = append(cells, Cell{Policy: policy, Budget: budget(t, text), Losses: losses})
			}
		}
		switch result := p.Certify(cells, 0); {
		case result.Chosen == nil:
		case result.Chosen.Budget == budget(t, "80%"):
			right++
		default:
			wrong++
		}
	}
	if most := 0.05 + 3*math.Sqrt(0.05*0.95/float64(runs)); float64(wrong)/float64(runs) > most {
		t.Errorf("%d of %d calibrations are wrong, want at most %.3f", wrong, runs, most)
	}
	if right < runs*9/10 {
		t.Errorf("the budget that keeps the promise is found in %d of %d", right, runs)
	}
}

// TestPromiseErrors: what no budget keeps, or every one, is no promise.
func TestPromiseErrors(t *testing.T) {
	for _, c := range []struct {
		loss          string
		clip, epsilon float64
		confidence    float64
		want          string
	}{
		{"nll", 1, 0.05, 0.95, ""},
		{"accuracy", 0, 0.05, 0.95, ""},
		{"perplexity", 1, 0.05, 0.95, "perplexity"},
		{"nll", 0, 0.05, 0.95, "clip"},
		{"nll", 1, 0, 0.95, "epsilon: got 0"},
		{"nll", 1, 1, 0.95, "epsilon: got 1"},
		{"nll", 2, 1, 0.95, ""},
		{"agreement", 0, 1.5, 0.95, "epsilon: got 1.5"},
		{"agreement", 0, math.NaN(), 0.95, "epsilon"},
		{"agreement", 0, 0.1, 1, "confidence: got 1"},
		{"agreement", 0, 0.1, 0, "confidence: got 0"},
	} {
		p := eviction.Promise{Loss: eviction.Loss{Name: c.loss, Clip: c.clip}, Epsilon: c.epsilon, Confidence: c.confidence}
		if err := p.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", p, err, c.want)
		}
	}
}

// TestMeasure: losses are against the full cache's line of the same prompt, in the direction that a loss has; prompts of one document are
// averaged; prompts that fail with the full cache count nowhere, and answers that fail under eviction alone are lost.
func TestMeasure(t *testing.T) {
	line := func(index int, policy string, nll, f1, score float64) *evaluation.Prediction {
		b := "50%"
		if policy == "full" {
			b = ""
		}
		return &evaluation.Prediction{Task: "t", Index: index, Sample: fmt.Sprint(index), Model: "m", Policy: policy, Budget: b, Metric: "qa_f1", Cells: 2,
			Measures: evaluation.Measures{evaluation.MeasureNLL: nll, evaluation.Agreement: f1, "qa_f1": score, evaluation.MeasureAnswered: 5}}
	}
	failed := line(4, "a", 0, 0, 0)
	failed.Error, failed.Measures = "out of memory", nil
	all := []*evaluation.Prediction{
		line(0, "full", 1, 1, 0.5), line(0, "a", 1.4, 0.75, 0.25),
		line(1, "full", 1, 1, 1), line(1, "a", 1, 1, 1),
		line(2, "full", 1, 1, 0), line(2, "a", 0.8, 0.5, 0.5),
		{Task: "t", Index: 3, Sample: "3", Model: "m", Error: "too long", Cells: 1},
		line(4, "full", 1, 1, 1), failed,
		line(5, "full", 1, 1, 1), line(5, "a", 50, 0, 0),
	}
	document := func(_ string, index int) int { return []int{0, 0, 1, 1, 2, 3}[index] }
	for loss, want := range map[string][]float64{
		eviction.LossNLL:       {0.1, -0.1, 1, 1}, // clipped at 2
		eviction.LossAgreement: {0.125, 0.5, 1, 1},
		eviction.LossAccuracy:  {0.125, -0.5, 1, 1},
	} {
		m, err := promise(loss, 0.1).Measure(all, document)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Cells) != 1 || m.Failed != 1 || m.Lost != 1 || m.Prompts != 5 || m.Cells[0].Prompts != 5 {
			t.Fatalf("%s: %+v", loss, m)
		}
		for i, x := range m.Cells[0].Losses {
			if math.Abs(x-want[i]) > 1e-9 {
				t.Errorf("%s: losses %v, want %v", loss, m.Cells[0].Losses, want)
				break
			}
		}
	}
	none := line(0, "full", 1, 1, 1)
	none.Metric = evaluation.Agreement
	if _, err := promise(eviction.LossAccuracy, 0.1).Measure([]*evaluation.Prediction{none, line(0, "a", 1, 1, 1)}, document); err == nil || !strings.Contains(err.Error(), "no reference answer") {
		t.Errorf("accuracy without references: %v", err)
	}
}

// TestDocuments: rows are one document by a field, or where they begin alike for half of the shorter one, but for what all begin with.
func TestDocuments(t *testing.T) {
	long := strings.Repeat("the lamp is red. ", 20)
	for _, c := range []struct {
		name, field string
		rows        []string
		want        string // document of each row, by the first row that has it
		by, err     string
	}{
		{"different", "", []string{`{"text": "anna calls"}`, `{"text": "bruno hides"}`, `{"text": "karl runs"}`}, "0 1 2", "", ""},
		{"half is shared", "", []string{`{"text": "x ` + long + `who?"}`, `{"text": "other"}`, `{"text": "x ` + long + `when, and why?"}`}, "0 1 0", "", ""},
		{"less than half", "", []string{`{"text": "abcd ` + long + `"}`, `{"text": "abcd never away"}`, `{"text": "z"}`}, "0 1 2", "", ""},
		{"instructions that all have", "", []string{`{"text": "` + long + `anna"}`, `{"text": "` + long + `bruno"}`, `{"text": "` + long + `karl"}`}, "0 1 2", "", ""},
		{"linked", "", []string{`{"text": "aaaabbbbcccc"}`, `{"text": "aaaabbbbdddddddd"}`, `{"text": "aaaab"}`, `{"text": "zz"}`}, "0 0 0 3", "", ""},
		{"messages", "", []string{`{"messages": [{"role": "user", "content": "` + long + `a"}]}`, `{"messages": [{"role": "user", "content": "` + long + `b"}]}`, `{"messages": [{"role": "user", "content": "q"}]}`}, "0 0 2", "", ""},
		{"ids", "", []string{`{"prompt_ids": [1, 2, 3, 4]}`, `{"prompt_ids": [1, 2, 3, 5]}`, `{"prompt_ids": [9, 9]}`}, "0 0 2", "", ""},
		{"a usual field", "", []string{`{"text": "a", "document": "x"}`, `{"text": "b", "document": "y"}`, `{"text": "c", "document": "x"}`}, "0 1 0", "document", ""},
		{"a field that is named", "file", []string{`{"text": "a", "file": 1}`, `{"text": "b", "file": 1}`, `{"text": "c", "file": 2}`}, "0 0 2", "file", ""},
		{"a usual field that some lack", "", []string{`{"text": "anna", "document": "x"}`, `{"text": "bruno"}`}, "0 1", "", ""},
		{"a named field that some lack", "file", []string{`{"text": "a", "file": 1}`, `{"text": "b"}`}, "", "", `1 of 2 rows have the field "file"`},
		{"a row that cannot be used", "", []string{`{"text": "anna"}`, `{"text": 5}`, `{"text": "bruno"}`}, "0 -2 2", "", ""},
		{"none can", "", []string{`{"text": 5}`}, "", "", "none of the rows"},
	} {
		path := filepath.Join(t.TempDir(), "p.jsonl")
		if err := os.WriteFile(path, []byte(strings.Join(c.rows, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := ReadDocuments(t.Context(), []string{path}, nil, c.field, 0)
		if c.err != "" || err != nil {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		first := make(map[int]int)
		var got []string
		for i := range c.rows {
			n := d.Of(0, i)
			if _, ok := first[n]; !ok {
				first[n] = i
			}
			if n == -1 { // no prompt
				got = append(got, "-2")
			} else {
				got = append(got, fmt.Sprint(first[n]))
			}
		}
		if strings.Join(got, " ") != c.want || d.By != c.by {
			t.Errorf("%s: documents %v by %q, want %s by %q", c.name, got, d.By, c.want, c.by)
		}
	}
}

// TestStages: a second pass is made where it costs less than what it may save.
func TestStages(t *testing.T) {
	budgets, err := eviction.ParseBudgets("5%,80%,40%,20%")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(Stages(budgets, 2, 400_000, 64)); got != "[[80% 40% 20% 5%]]" {
		t.Errorf("long prompts: %s", got)
	}
	if got := fmt.Sprint(Stages(budgets, 4, 400, 64)); got != "[[80% 40%] [80% 40% 20% 5%]]" {
		t.Errorf("short prompts, many policies: %s", got)
	}
	if got := fmt.Sprint(Stages(budgets[:1], 9, 0, 0)); got != "[[5%]]" {
		t.Errorf("one budget: %s", got)
	}
}
