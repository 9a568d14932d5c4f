package tasks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/engine/costmodel"
	"glimpse/evaluation"
	"glimpse/evaluation/report"
	"glimpse/evaluation/runs"
	_ "glimpse/evaluation/tasks"
	"glimpse/eviction"
	_ "glimpse/gates"
	_ "glimpse/kernels/backends"
	_ "glimpse/lora"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
	_ "glimpse/softtokens"
)

// goldenModel is a random model with a tokenizer of bytes and a context of 256.
const goldenModel = "llama3.1"

// measure runs one task; folder "" is the built-in model.
func measure(t *testing.T, folder, task, policies, budgets string, change func(*runs.Job)) []evaluation.Row {
	t.Helper()
	rows, err := tryMeasure(t, folder, task, policies, budgets, change)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func tryMeasure(t *testing.T, folder, task, policies, budgets string, change func(*runs.Job)) ([]evaluation.Row, error) {
	t.Helper()
	j := runs.Default()
	j.Models = []runs.Subject{{Model: folder}}
	j.Policies, j.Tasks = runs.Names{policies}, []runs.Task{{Task: task}}
	j.Strict = true
	var err error
	if j.Budgets, err = eviction.ParseBudgets(budgets); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(j)
	}
	out, err := j.Run(t.Context(), io.Discard)
	if err != nil {
		return nil, err
	}
	return out.Rows, nil
}

// options are those of the only task.
func options(assignments ...string) func(*runs.Job) {
	return func(j *runs.Job) { j.Tasks[0].Options = assignments }
}

// rowOf finds the row of a policy at a budget and a group, "" for all samples.
func rowOf(t *testing.T, rows []evaluation.Row, policy, budget, group string) evaluation.Row {
	t.Helper()
	i := slices.IndexFunc(rows, func(r evaluation.Row) bool {
		return r.Policy == policy && (budget == "" || r.Budget.String() == budget) && evaluation.GroupsName(r.Groups) == group
	})
	if i < 0 {
		t.Fatalf("no row of %s at %q in group %q among %d", policy, budget, group, len(rows))
	}
	return rows[i]
}

// dataFile writes rows as JSONL.
func dataFile(t *testing.T, rows ...map[string]any) string {
	t.Helper()
	var out strings.Builder
	for _, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, string(line))
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLatency: what was taken is there, memory is what sessions hold, and the cost model's
// numbers are those of its estimate, on the built-in model and on a random one.
func TestLatency(t *testing.T) {
	const chip = "flops=1e12,bandwidth=1e11"
	for _, at := range []struct{ name, folder, policies string }{
		{"built-in", "", "full,snapkv,quest,lookaheadkv,laq"},
		{"golden", modeltest.GoldenNamed(t, goldenModel).Folder, "full,snapkv,quest,d2o"},
	} {
		t.Run(at.name, func(t *testing.T) {
			rows := measure(t, at.folder, "latency", at.policies, "16,25%", func(j *runs.Job) {
				options("lengths=96,160", "repeats=2", "chip="+chip)(j)
				j.MaxNew = 8
			})
			parsed, err := costmodel.ParseChip(chip)
			if err != nil {
				t.Fatal(err)
			}
			m, err := model.OpenShapes(at.folder, "cpu")
			if err != nil {
				t.Fatal(err)
			}
			costs := costmodel.New(m, parsed, costmodel.Runtime)
			for _, n := range []int{96, 160} {
				group := fmt.Sprintf("length=%d", n)
				for policy := range strings.SplitSeq(at.policies, ",") {
					for _, budget := range []string{"16", "25%"} {
						if policy == "full" {
							budget = ""
						}
						r := rowOf(t, rows, policy, budget, group)
						if r.TTFTMillis == nil || !(*r.TTFTMillis > 0) || !(*r.DecodeTokensPerSecond > 0) || (r.TTFTOverhead == nil) != (policy == "full") || !(r.Measures["plain_ttft_ms"] > 0) {
							t.Fatalf("%s at %s, %s: no times: %+v", policy, budget, group, r)
						}
						if r.Tokens != n || !(*r.Score > 0 && *r.Score < 1) {
							t.Errorf("%s: %d tokens, score %v", policy, r.Tokens, *r.Score)
						}
						switch policy {
						case "full":
							if r.KeptBytes < r.FullBytes {
								t.Errorf("the full cache keeps %d of %d bytes", r.KeptBytes, r.FullBytes)
							}
						case "snapkv":
							if r.KeptBytes >= r.FullBytes || *r.PeakCacheBytes <= r.KeptBytes {
								t.Errorf("snapkv keeps %d of %d bytes, at most %d", r.KeptBytes, r.FullBytes, *r.PeakCacheBytes)
							}
							fallthrough
						case "quest":
							if at.folder == "" { // whose policies have options of their own
								continue
							}
							b, _ := eviction.ParseBudget(budget)
							p, err := eviction.New(policy, 1, nil, nil)
							if err != nil {
								t.Fatal(err)
							}
							e := costs.Estimate(p, costmodel.Run{Tokens: n, Budget: b.Of(n), MaxNew: 8})
							if got, want := r.Measures["model_ttft_ms"], 1e3*e.TTFT.Seconds; math.Abs(got-want) > 1e-9*want {
								t.Errorf("%s at %s of %d: model_ttft_ms %v, want %v", policy, budget, n, got, want)
							}
							if got, want := r.Measures["model_decode_tokens_per_s"], 1/e.Step.Seconds; math.Abs(got-want) > 1e-9*want {
								t.Errorf("%s at %s of %d: model_decode_tokens_per_s %v, want %v", policy, budget, n, got, want)
							}
						}
					}
				}
			}
		})
	}
	for option, want := range map[string]string{
		"lengths=5000": "prompts of 5000 tokens", "lengths=x": `option lengths: got "x"`, "repeats=0": `option repeats: got "0"`, "chip=abacus": `unknown chip "abacus"`,
	} {
		if _, err := tryMeasure(t, "", "latency", "full", "16", options(option)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", option, err, want)
		}
	}
}

// TestThroughput: what fits a memory follows from what sessions hold in the end and at most
// before that, and as many as are allowed are decoded together.
func TestThroughput(t *testing.T) {
	const length, maxNew, most = 120, 9, 3
	folder := modeltest.GoldenNamed(t, goldenModel).Folder
	m, err := model.Open(folder, model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	held := func(policy string) (held, peak int64) {
		p, err := eviction.New(policy, 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		rt := eviction.NewRuntime(m)
		s, err := rt.Prefill(t.Context(), p, eviction.Prompt{Tokens: modeltest.Tokens(m, 1, length), Budget: 16})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Generate(t.Context(), runner.GenerateOptions{MaxNew: maxNew, IgnoreEnd: true}); err != nil {
			t.Fatal(err)
		}
		return s.Bytes(), s.PeakBytes
	}
	full, _ := held("full")
	memory := m.WeightBytes() + 2*full + full/2
	rows := measure(t, folder, "latency", "full,snapkv,streamingllm,quest", "16", func(j *runs.Job) {
		options("repeats=1", "most=3", fmt.Sprintf("memory=%dB", memory))(j)
		j.Tokens, j.MaxNew = length, maxNew
	})
	for _, r := range evaluation.Overall(rows) {
		bytes, peak := held(r.Policy)
		peak = max(peak, bytes)
		want := 0
		for n := int64(1); (n-1)*bytes+peak <= memory-m.WeightBytes(); n++ {
			want++
		}
		if got := int(r.Measures["largest_batch"]); got != want {
			t.Errorf("%s: %d sequences fit, want %d", r.Policy, got, want)
		}
		if got := int(r.Measures["batch"]); got != min(want, most) || !(r.Measures["batch_tokens_per_s"] > 0) || !(r.Measures["model_batch_tokens_per_s"] > 0) {
			t.Errorf("%s: %v, want a batch of %d", r.Policy, r.Measures, min(want, most))
		}
		// Memory of caches is taken in steps of some entries.
		if got := r.Measures["model_largest_batch"]; got < float64(want) || got > 2*float64(want)+1 {
			t.Errorf("%s: by the cost model %v fit, in fact %d", r.Policy, got, want)
		}
	}
	rows = measure(t, folder, "latency", "full", "16", func(j *runs.Job) {
		options("repeats=1", fmt.Sprintf("memory=%dB", m.WeightBytes()+full/2))(j)
		j.Tokens, j.MaxNew = length, maxNew
	})
	if r := rowOf(t, rows, "full", "", ""); r.Measures["batch"] != 0 || r.Measures["batch_tokens_per_s"] != 0 {
		t.Errorf("half a cache: %v, want that nothing fits", r.Measures)
	}
	for option, want := range map[string]string{"memory=lots": `option memory: got "lots"`, "most=0": `option most: got "0"`} {
		if _, err := tryMeasure(t, "", "latency", "full", "16", options(option)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", option, err, want)
		}
	}
}

// logProbOf is the log-probability of a text's token after those before it, by a prefill
// of these.
func logProbOf(t *testing.T, m *model.Model, ids []int32, at int) float64 {
	t.Helper()
	logits, err := runner.New(m).Prefill(t.Context(), kvcache.New(m), ids[:at], runner.PrefillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	most, sum := float64(slices.Max(logits)), 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - most)
	}
	return float64(logits[ids[at]]) - most - math.Log(sum)
}

// TestPerplexity: with nothing evicted the likelihood is that of prefills, whether the text is
// run as one answer or in strides; positions that are observed are scored under no policy;
// and memory stays bounded.
func TestPerplexity(t *testing.T) {
	folder := modeltest.GoldenNamed(t, goldenModel).Folder
	m, err := model.Open(folder, model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const length, start, stride, window = 120, 8, 24, 6
	text := strings.Repeat("the cat sat on 12 mats; ", 12)
	ids, err := m.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) < length {
		t.Fatalf("the text has %d tokens, want at least %d", len(ids), length)
	}
	path := filepath.Join(t.TempDir(), "book.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(j *runs.Job) {
		options("start=8", "stride=24", "window=6", "range=40")(j)
		j.Data, j.Tokens = path, length
	}
	sum, n := 0.0, 0
	var byRange [3]float64
	var inRange [3]int
	for at := start; at < length; at++ {
		if (at-start)%stride >= stride-window {
			continue
		}
		p := logProbOf(t, m, ids, at)
		sum, n = sum-p, n+1
		byRange[at/40], inRange[at/40] = byRange[at/40]-p, inRange[at/40]+1
	}
	rows := measure(t, folder, "perplexity", "full,snapkv,streamingllm,oracle", "120", set)
	for _, policy := range []string{"full", "snapkv", "streamingllm", "oracle"} {
		r := rowOf(t, rows, policy, "", "")
		near := func(name string, want float64) {
			t.Helper()
			if got, ok := r.Measures[name]; !ok || math.Abs(got-want) > 1e-4*want {
				t.Errorf("%s: %s of %v, want %v", policy, name, got, want)
			}
		}
		near("text_nll", sum/float64(n))
		near("perplexity", math.Exp(sum/float64(n)))
		near("nll_from_0", byRange[0]/float64(inRange[0]))
		near("nll_from_80", byRange[2]/float64(inRange[2]))
		near("nll_to_80", (byRange[0]+byRange[1])/float64(inRange[0]+inRange[1]))
		near("nll_to_120", sum/float64(n))
		if want := math.Exp(-sum / float64(n)); math.Abs(*r.Score-want) > 1e-4 || r.Tokens != length {
			t.Errorf("%s: score %v of %d tokens, want %v of %d", policy, *r.Score, r.Tokens, want, length)
		}
	}
	const budget = 16
	pair := float64(kvcache.New(m).LayerPairBytes(0) * int64(m.Config.Layers*m.Config.KVHeads))
	for _, r := range measure(t, folder, "perplexity", "full,snapkv,streamingllm,h2o,quest,rocketkv", "16", set) {
		held, most := r.Measures["most_held_bytes"]/pair, map[string]float64{"snapkv": budget + stride + 16, "streamingllm": 2 * budget, "h2o": 2 * budget}[r.Policy]
		if most > 0 && held > most {
			t.Errorf("%s holds %.0f entries, want at most %.0f", r.Policy, held, most)
		}
		if r.Policy == "full" && math.Abs(r.Measures["text_nll"]-sum/float64(n)) > 1e-4*sum {
			t.Errorf("full: text_nll %v, want %v", r.Measures["text_nll"], sum/float64(n))
		}
		if r.Policy != "full" && r.Measures["text_nll"] == sum/float64(n) {
			t.Errorf("%s at %d evicts nothing", r.Policy, budget)
		}
	}
	for option, want := range map[string]string{
		"start=0": `option start: got "0"`, "window=256": "option window: got 256, want less than the stride of 256",
	} {
		if _, err := tryMeasure(t, folder, "perplexity", "full", "16", func(j *runs.Job) { j.Data = path; options(option)(j) }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", option, err, want)
		}
	}
	if _, err := tryMeasure(t, folder, "perplexity", "full", "16", func(j *runs.Job) { j.Data, j.Tokens = path, 9 }); err == nil || !strings.Contains(err.Error(), "text of 9 tokens, want at least 34") {
		t.Errorf("a short text: error %v", err)
	}
}

// TestResponses: a response sampled at a temperature near zero is the greedy one, and implies
// the same scores; one of half the model does not, and its scores agree as two
// studies of the two responses do.
func TestResponses(t *testing.T) {
	folder := modeltest.GoldenNamed(t, goldenModel).Folder
	m, err := model.Open(folder, model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := modeltest.Tokens(m, 3, 80)
	path := dataFile(t, map[string]any{"prompt_ids": ids})
	rows := measure(t, folder, "responses", "oracle", "10", func(j *runs.Job) {
		options("temperatures=0.000001,2", "draft=layers:1")(j)
		j.Data, j.MaxNew = path, 12
	})
	same := rowOf(t, rows, "oracle", "10", "response=T=0.000001")
	if *same.Score != 1 || same.Measures["response_tau"] != 1 || same.Measures["response_prefix"] != 1 {
		t.Errorf("greedy and near zero: recall %v, %v", *same.Score, same.Measures)
	}
	if hot := rowOf(t, rows, "oracle", "10", "response=T=2"); !(*hot.Score < 1 && hot.Measures["response_tau"] < 1) {
		t.Errorf("temperature 2: recall %v, %v, want less than 1", *hot.Score, hot.Measures)
	}
	// The draft's by hand.
	oracle, err := eviction.New("oracle", 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	half, err := m.Cut(1)
	if err != nil {
		t.Fatal(err)
	}
	scores := func(by *model.Model) [][][]float32 {
		cache := kvcache.New(by)
		r := runner.New(by)
		logits, err := r.Forward(t.Context(), cache, ids, runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		response, err := r.Respond(t.Context(), cache, logits, runner.GenerateOptions{MaxNew: 12})
		if err != nil {
			t.Fatal(err)
		}
		s, err := eviction.NewRuntime(m).Prefill(t.Context(), oracle, eviction.Prompt{Tokens: ids, Budget: 10, Response: response})
		if err != nil {
			t.Fatal(err)
		}
		return s.Scores()
	}
	recalls, tau, ok := eviction.Agreement(scores(half), scores(m), 10)
	if !ok {
		t.Fatal("the draft ranks nothing")
	}
	recall := recalls[0]
	draft := rowOf(t, rows, "oracle", "10", "response=draft")
	if !(recall < 1) || math.Abs(*draft.Score-recall) > 1e-6 || math.Abs(draft.Measures["response_tau"]-tau) > 1e-6 {
		t.Errorf("the draft's: recall %v and τ %v, by hand %v and %v", *draft.Score, draft.Measures["response_tau"], recall, tau)
	}
	for _, r := range measure(t, "", "responses", "oracle", "16,50%", func(j *runs.Job) { j.Samples, j.Tokens = 2, 96 }) {
		if r.Samples < 2 || !(*r.Score > 0.5) || !(r.Measures["response_tau"] > 0.5) {
			t.Errorf("built-in model: %+v", r)
		}
	}
	for _, c := range []struct{ policies, option, want string }{
		{"oracle,snapkv", "temperatures=1", "policy snapkv: the task compares what the oracle would keep"},
		{"oracle", "temperatures=-1", `option temperatures: got "-1"`},
		{"oracle", "temperatures=", "no response to compare"},
		{"oracle", "draft=layers:9", "option draft"},
	} {
		if _, err := tryMeasure(t, "", "responses", c.policies, "16", func(j *runs.Job) { j.Samples, j.Tokens = 1, 64; options(c.option)(j) }); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.option, err, c.want)
		}
	}
}

// TestContinuation: a model that goes on with its full cache from the first part of its own
// answer writes the rest of it again, and the whole is what is scored; on the built-in
// model's task the reference is continued.
func TestContinuation(t *testing.T) {
	folder := modeltest.GoldenNamed(t, goldenModel).Folder
	m, err := model.Open(folder, model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const maxNew = 20
	problems := []string{"2 + 2 = ?", "Who are you"}
	var data []map[string]any
	tokens := 0
	for _, p := range problems {
		ids, err := m.Encode("Q: " + p)
		if err != nil {
			t.Fatal(err)
		}
		cache, r := kvcache.New(m), runner.New(m)
		logits, err := r.Forward(t.Context(), cache, ids, runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		response, err := r.Respond(t.Context(), cache, logits, runner.GenerateOptions{MaxNew: maxNew})
		if err != nil {
			t.Fatal(err)
		}
		tokens += len(ids) + max(0, len(response)-7)
		text, err := m.Tokenizer.Decode(response, true)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, map[string]any{"problem": p, "answer": text})
	}
	path := dataFile(t, data...)
	rows := measure(t, folder, "continuation", "full,snapkv", "4", func(j *runs.Job) {
		options("last=7")(j)
		j.Data, j.MaxNew, j.Raw = path, maxNew, true
		j.Fields, j.Metrics = []string{"prompt=Q: {problem}", "answer=answer"}, []string{"exact_match_strict"}
	})
	r := rowOf(t, rows, "full", "", "")
	if *r.Score != 1 || r.Samples != len(problems) || r.Metric != "exact_match_strict" {
		t.Errorf("the full cache scores %v of %d with %s, want its own answers", *r.Score, r.Samples, r.Metric)
	}
	if want := (tokens + 1) / 2; r.Tokens != want {
		t.Errorf("prompts of %d tokens, want %d, with the first part of the answer", r.Tokens, want)
	}
	rows = measure(t, "", "continuation", "full,oracle,streamingllm", "24", func(j *runs.Job) { j.Samples, j.Tokens = 4, 128 })
	for policy, want := range map[string]float64{"full": 1, "oracle": 1} {
		if r := rowOf(t, rows, policy, "", ""); *r.Score < want || r.Metric != evaluation.MetricExactAnswer {
			t.Errorf("built-in model: %s scores %v with %s, want %v", policy, *r.Score, r.Metric, want)
		}
	}
	for _, c := range []struct {
		change func(*runs.Job)
		want   string
	}{
		{options("last=0"), `option last: got "0"`},
		{options("from=memory"), `option from: got "memory", want model or reference`},
		{func(j *runs.Job) { j.Data, j.Metrics = path, []string{"taste"} }, `unknown metric "taste"`},
		{func(j *runs.Job) { j.Data = dataFile(t, map[string]any{"problem": "1+1"}) }, "answer"},
	} {
		if _, err := tryMeasure(t, folder, "continuation", "full", "16", c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

// TestAnswerRecallIsMeasured: the full cache keeps the whole answer, and what answers needles without
// keeping one is wrong; tasks that do not know where answers stand have none.
func TestAnswerRecallIsMeasured(t *testing.T) {
	rows := measure(t, "", "needle", "full,snapkv,streamingllm", "48", func(j *runs.Job) { j.Samples, j.Tokens = 16, 256 })
	full, snap, stream := rowOf(t, rows, "full", "", ""), rowOf(t, rows, "snapkv", "48", ""), rowOf(t, rows, "streamingllm", "48", "")
	if *full.AnswerRecall != 1 || *snap.AnswerRecall < 0.9 || *snap.Score < 0.9 || *stream.AnswerRecall > 0.5 || *stream.Score > *stream.AnswerRecall {
		t.Errorf("answer recall %v, %v and %v, scores %v, %v and %v", *full.AnswerRecall, *snap.AnswerRecall, *stream.AnswerRecall, *full.Score, *snap.Score, *stream.Score)
	}
	var out strings.Builder
	if err := report.WriteTable(&out, evaluation.Overall(rows), report.TableOptions{Markdown: true}); err != nil || !strings.Contains(out.String(), "| ans % |") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, r := range measure(t, "", "continuation", "full,snapkv", "16", func(j *runs.Job) { j.Samples, j.Tokens = 1, 128 }) {
		if r.AnswerRecall != nil {
			t.Errorf("%s of continuation: answer recall %v", r.Policy, *r.AnswerRecall)
		}
	}
}
