package runs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"glimpse/evaluation"
	"glimpse/evaluation/judging"
	"glimpse/eviction"
)

// mtRun is a finished run over three questions, the second of which wants a reference, with
// the built-in model, whose words they are made of.
func mtRun(t *testing.T) (dir string) {
	t.Helper()
	data := t.TempDir()
	for name, text := range map[string]string{
		"question.jsonl": `{"question_id": 81, "category": "writing", "turns": ["anna calls bruno", "bruno calls anna"]}
{"question_id": 101, "category": "reasoning", "turns": ["lamp harbor", "harbor lamp"], "reference": ["old", "old"]}
{"question_id": 102, "category": "math", "turns": ["anna lamp"]}
`,
		"reference_answer/gpt-4.jsonl": `{"question_id": 101, "choices": [{"index": 0, "turns": ["first reference", "second reference"]}]}
{"question_id": 102, "choices": [{"index": 0, "turns": ["only reference"]}]}
`,
	} {
		path := filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	j := Default()
	j.Policies, j.Budgets = Names{"full,snapkv"}, []eviction.Budget{eviction.Pairs(3)}
	j.Tasks = []Task{{Task: "mtbench"}}
	j.Data, j.MaxNew, j.Out = data, 6, filepath.Join(t.TempDir(), "run")
	if _, err := j.Run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	return j.Out
}

// judgeServer rates by what the prompt is about; it fails while fail says so.
func judgeServer(t *testing.T, fail func(n int64) int) (Judging, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := fail(n.Add(1)); code != 0 {
			w.WriteHeader(code)
			return
		}
		var in struct {
			Messages []struct{ Role, Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		text := in.Messages[1].Content
		rating := "[[4]]"
		switch {
		case strings.Contains(text, "second reference"):
			rating = "[[9]]"
		case strings.Contains(text, "first reference"):
			rating = "[[6]]"
		case strings.Contains(text, "only reference"):
			rating = "I cannot say."
		case strings.Contains(text, "### User:"):
			rating = "[[8]]"
		}
		data, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": "Rating: " + rating}}}})
		w.Write(data)
	}))
	t.Cleanup(s.Close)
	return Judging{Judge: judging.Judge{URL: s.URL, Model: "judge-1", Attempts: 1}, Concurrency: 1}, &n
}

func never(int64) int { return 0 }

// TestJudgeRun: ratings become scores; what was judged is not judged again; another judge
// takes the place of the first.
func TestJudgeRun(t *testing.T) {
	dir := mtRun(t)
	o, n := judgeServer(t, never)
	var log strings.Builder
	out, err := JudgeRun(t.Context(), dir, o, &log)
	if err != nil {
		t.Fatal(err)
	}
	first := n.Load()
	if first < 5 || first > 10 { // 5 turns under two policies, fewer where these agree
		t.Errorf("%d judgements", first)
	}
	rows := evaluation.Overall(out.Rows)
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		// Question 81: 4 and 8; question 101: 6 and 9; question 102 has no rating.
		if want := (0.6 + 0.75) / 2; r.Metric != "mt_bench" || *r.Score < want-1e-12 || *r.Score > want+1e-12 {
			t.Errorf("%s: %s %v, want mt_bench %v", r.Policy, r.Metric, *r.Score, want)
		}
		if a, b := r.Measures["mt_bench_turn_1"], r.Measures["mt_bench_turn_2"]; a != 0.5 || b < 0.85-1e-12 || b > 0.85+1e-12 {
			t.Errorf("%s: turns %v and %v, want 0.5 and 0.85", r.Policy, a, b)
		}
	}
	if !strings.Contains(log.String(), "2 ratings are missing") {
		t.Errorf("log %q", log.String())
	}
	metrics, predictions := read(t, dir, MetricsFile), read(t, dir, PredictionsFile)
	if _, err := JudgeRun(t.Context(), dir, o, io.Discard); err != nil || n.Load() != first {
		t.Errorf("again: %v, %d judgements more", err, n.Load()-first)
	}
	if read(t, dir, MetricsFile) != metrics || read(t, dir, PredictionsFile) != predictions {
		t.Error("judged again, other files")
	}
	if !strings.Contains(metrics, `"writing"`) || strings.Count(predictions, `"mt_bench"`) < 4 {
		t.Errorf("metrics %s", metrics)
	}
	o.Judge.Model = "judge-2"
	if _, err := JudgeRun(t.Context(), dir, o, io.Discard); err != nil || n.Load() != 2*first {
		t.Errorf("another judge: %v, %d judgements, want %d", err, n.Load(), 2*first)
	}
}

// TestJudgeRunGoesOn: what a judge said before it broke, or before a line was cut, is kept,
// and the files of the run are not touched until all is there.
func TestJudgeRunGoesOn(t *testing.T) {
	dir := mtRun(t)
	before := read(t, dir, MetricsFile)
	for name, c := range map[string]struct {
		code    int
		want    string
		refused bool
	}{
		"broken": {503, "judgements could not be had; the same command asks for them again", false}, "refused": {401, "401 Unauthorized", true},
	} {
		if err := os.Remove(filepath.Join(dir, JudgementsFile)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		o, n := judgeServer(t, func(n int64) int {
			if n > 3 {
				return c.code
			}
			return 0
		})
		_, err := JudgeRun(t.Context(), dir, o, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, judging.ErrRefused) != c.refused {
			t.Fatalf("%s: error %v", name, err)
		}
		if c.refused && n.Load() != 4 {
			t.Errorf("%s: %d requests, want none after the refusal", name, n.Load())
		}
		lines := read(t, dir, JudgementsFile)
		if strings.Count(lines, "\n") != 3 || read(t, dir, MetricsFile) != before {
			t.Fatalf("%s: %d judgements kept, metrics changed %v", name, strings.Count(lines, "\n"), read(t, dir, MetricsFile) != before)
		}
		// The last line is cut: it is asked for again, the two before are not.
		if err := os.WriteFile(filepath.Join(dir, JudgementsFile), []byte(lines[:len(lines)-5]), 0o666); err != nil {
			t.Fatal(err)
		}
		o2, m := judgeServer(t, never)
		if name == "broken" { // leave the other case as it was
			continue
		}
		if _, err := JudgeRun(t.Context(), dir, o2, io.Discard); err != nil {
			t.Fatal(err)
		}
		whole := read(t, dir, JudgementsFile)
		if !strings.HasPrefix(whole, strings.Join(strings.SplitAfter(lines, "\n")[:2], "")) || int(m.Load()) != strings.Count(whole, "\n")-2 {
			t.Errorf("%d requests for %d lines of which two were there", m.Load(), strings.Count(whole, "\n"))
		}
		before = read(t, dir, MetricsFile)
	}
}

// TestJudgeRunRefuses what cannot be judged.
func TestJudgeRunRefuses(t *testing.T) {
	o, _ := judgeServer(t, never)
	other := t.TempDir()
	j := small(filepath.Join(other, "run"))
	j.Tasks, j.Samples = []Task{{Task: "section"}}, 1
	if _, err := j.Run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	for want, dir := range map[string]string{
		"want a finished run":            t.TempDir(),
		"has no answers that are judged": j.Out,
	} {
		if _, err := JudgeRun(t.Context(), dir, o, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
	dir := mtRun(t)
	config := read(t, dir, ConfigFile)
	if err := os.Remove(filepath.Join(dataOf(t, config), "reference_answer", "gpt-4.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := JudgeRun(t.Context(), dir, o, io.Discard); err == nil || !strings.Contains(err.Error(), "question 102: math is judged against a reference answer, of which there are 0 for 1 turns") {
		t.Errorf("without reference answers: %v", err)
	}
}

func dataOf(t *testing.T, config string) string {
	t.Helper()
	for line := range strings.SplitSeq(config, "\n") {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			return strings.Trim(path, `"'`)
		}
	}
	t.Fatalf("no data in %s", config)
	return ""
}
