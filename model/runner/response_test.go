package runner_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// logSoftmax is the second implementation of log-probabilities.
func logSoftmax(x []float32, id int32) float64 {
	z := 0.0
	for _, v := range x {
		z += math.Exp(float64(v) - float64(x[id]))
	}
	return -math.Log(z)
}

// TestForcedResponses: log-probabilities of given tokens against a new prefill of everything
// before each of them; the cache is that of a prefill of all but the last.
func TestForcedResponses(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Seed: 3}.Open(t, device)
		prompt, response := modeltest.Tokens(m, 1, 20), modeltest.Tokens(m, 5, 24)
		response[7] = m.Config.EOS[0] // which ends nothing
		r, cache, logits := start(t, m, prompt)
		var got, want []float64
		opt := runner.GenerateOptions{MaxNew: 3, Stop: []int32{response[2]}, Forced: response, OnLogProb: func(_ int32, p float64, _ []runner.LogProb) { got = append(got, p) }}
		tokens, ended, err := r.Continue(background, cache, runner.HostLogits(logits), opt)
		if err != nil || ended || !slices.Equal(tokens, response) {
			t.Fatalf("%s: %v, ended %v, %v", device, tokens, ended, err)
		}
		all := slices.Clone(prompt)
		for _, id := range response {
			_, _, l := start(t, m, all)
			want = append(want, logSoftmax(l, id))
			all = append(all, id)
		}
		compare.Close(t, device+": log-probabilities", got, want, 2e-3)
		if want := int32(len(all) - 1); cache.Next() != want {
			t.Errorf("%s: the cache ends at %d, want %d: the last token is not run", device, cache.Next(), want)
		}
	}
}

// TestLogProbsOfAGeneration: those of drawn tokens are those of the same tokens when they are
// forced, to the bit, and do not depend on how they were drawn.
func TestLogProbsOfAGeneration(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Seed: 3}.Open(t, device)
		prompt := modeltest.Tokens(m, 1, 20)
		var drawn, forced []float64
		r, cache, logits := start(t, m, prompt)
		sampling := model.Sampling{Temperature: 2, TopK: 5, Seed: 1, Processors: model.Processors{RepetitionPenalty: 1.5}}
		tokens, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{
			MaxNew: 12, IgnoreEnd: true, Sampling: sampling, Prompt: prompt,
			OnLogProb: func(id int32, p float64, _ []runner.LogProb) { drawn = append(drawn, p) },
		})
		if err != nil {
			t.Fatal(err)
		}
		r, cache, logits = start(t, m, prompt)
		if _, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{Forced: tokens, OnLogProb: func(_ int32, p float64, _ []runner.LogProb) { forced = append(forced, p) }}); err != nil {
			t.Fatal(err)
		}
		if len(drawn) != 12 || !slices.Equal(drawn, forced) {
			t.Errorf("%s: drawn %v, forced %v", device, drawn, forced)
		}
	}
}

// TestLogProbIsOfFloat64: probabilities far below the least float32.
func TestLogProbIsOfFloat64(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		id     int32
		want   float64
	}{
		{[]float32{0}, 0, 0},
		{[]float32{1, 1, 1, 1}, 2, -math.Log(4)},
		{[]float32{0, -30}, 0, -math.Log1p(math.Exp(-30))},
		{[]float32{1000, 0}, 1, -1000},
		{[]float32{math.MaxFloat32, -math.MaxFloat32}, 1, -2 * math.MaxFloat32},
	} {
		got, _, err := runner.HostLogits(c.logits).LogProbs(c.id, 0)
		if err != nil || math.Abs(got-c.want) > 1e-15*max(1, math.Abs(c.want)) {
			t.Errorf("%v: token %d: %v, %v, want %v", c.logits, c.id, got, err, c.want)
		}
	}
	for _, id := range []int32{-1, 2} {
		if _, _, err := runner.HostLogits([]float32{1, 2}).LogProbs(id, 0); err == nil {
			t.Errorf("token %d of 2: want an error", id)
		}
	}
}

// TestForcedResponsesAreChecked: before anything runs.
func TestForcedResponsesAreChecked(t *testing.T) {
	m := modeltest.Llama{MaxPositions: 24}.Open(t, "cpu")
	for _, c := range []struct {
		name   string
		forced []int32
		fails  bool
		is     error
	}{
		{"nothing", []int32{}, false, nil},
		{"as much as fits", make([]int32, 5), false, nil},
		{"too much", make([]int32, 6), true, model.ErrContext},
		{"a foreign id", []int32{1, 2, 40}, true, nil},
		{"a negative id", []int32{1, -1}, true, nil},
	} {
		r, cache, logits := start(t, m, modeltest.Tokens(m, 1, 20))
		told := 0
		out, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{Forced: c.forced, OnLogProb: func(int32, float64, []runner.LogProb) { told++ }})
		if (err != nil) != c.fails || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
		if want := len(c.forced); err == nil && (len(out) != want || told != want) || err != nil && (len(out) > 0 || told > 0 || cache.Next() != 20) {
			t.Errorf("%s: %d tokens, told of %d, cache at %d", c.name, len(out), told, cache.Next())
		}
	}
}

// TestLogProbsThatAreNotFinite: no probability of NaN.
func TestLogProbsThatAreNotFinite(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Seed: 3}.Open(t, device)
		r, cache, logits := start(t, m, modeltest.Tokens(m, 1, 20))
		m.Backend.Fill(cache.View(1)[0].K.Rows(1, 2), math.NaN())
		var got []float64
		_, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{Forced: []int32{1, 2, 3}, OnLogProb: func(_ int32, p float64, _ []runner.LogProb) { got = append(got, p) }})
		if !errors.Is(err, model.ErrNonFinite) || len(got) != 1 {
			t.Errorf("%s: %v, %v, want the first token's and an error", device, got, err)
		}
	}
}

// TestStopTokens: further end tokens, which IgnoreEnd does not touch, and ErrStop.
func TestStopTokens(t *testing.T) {
	m := modeltest.Llama{Seed: 3}.Open(t, "reference64")
	prompt := modeltest.Tokens(m, 1, 20)
	generate := func(opt runner.GenerateOptions) ([]int32, bool, *kvcache.Cache, error) {
		r, cache, logits := start(t, m, prompt)
		opt.MaxNew = 12
		out, ended, err := r.Continue(background, cache, runner.HostLogits(logits), opt)
		return out, ended, cache, err
	}
	plain, _, _, err := generate(runner.GenerateOptions{IgnoreEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	cut := slices.IndexFunc(plain, func(id int32) bool { return id != plain[0] })
	if cut < 0 {
		t.Fatal("the response is one token repeated: the test needs another model")
	}
	for _, ignore := range []bool{false, true} {
		got, ended, cache, err := generate(runner.GenerateOptions{Stop: []int32{39, plain[cut]}, IgnoreEnd: ignore})
		if err != nil || !ended || !slices.Equal(got, plain[:cut]) || int(cache.Next()) != len(prompt)+cut {
			t.Errorf("IgnoreEnd %v: got %v, ended %v, cache at %d, %v, want %v and the end", ignore, got, ended, cache.Next(), err, plain[:cut])
		}
	}
	n := 0
	got, ended, cache, err := generate(runner.GenerateOptions{IgnoreEnd: true, OnToken: func(int32) error {
		if n++; n == 4 {
			return fmt.Errorf("a stop string: %w", runner.ErrStop)
		}
		return nil
	}})
	if err != nil || ended || !slices.Equal(got, plain[:4]) || int(cache.Next()) != len(prompt)+3 {
		t.Errorf("ErrStop: got %v, ended %v, cache at %d, %v, want the first 4 of %v", got, ended, cache.Next(), err, plain)
	}
	if !slices.Equal(m.Config.EOS, []int32{1}) {
		t.Errorf("the model's end tokens are now %v", m.Config.EOS)
	}
}
