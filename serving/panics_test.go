package serving_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model/runner"
	"glimpse/serving"
)

// faulty is a policy that panics.
type faulty struct{ where string }

func init() {
	eviction.Policies.Add("faulty", eviction.Policy{
		Kind: "prefill + decode", Doc: "panics", Source: "the tests",
		Options: []eviction.Option{{Name: "where", Choices: func() []string { return []string{"plan", "prompt", "begin", "step", "end"} }, Doc: "when"}},
		New:     func(s eviction.Settings) (eviction.Method, error) { return faulty{s.OptionText("where")}, nil },
	})
}

func (f faulty) at(where string) {
	if f.where == where {
		panic("a fault in the " + where)
	}
}

func (f faulty) Plan(p eviction.Prompt) eviction.Plan {
	if len(p.Tokens) > 2 {
		f.at("plan")
	}
	plan := eviction.Plan{Score: func(s *eviction.Scores, _ *runner.Observation) {
		f.at("prompt")
		s.FromHost(func([][]float32) {})
	}}
	if f.where == "end" {
		plan.Sparse = func(*eviction.Session) eviction.SparseState { return f }
		return plan
	}
	plan.Decode = func(*eviction.Session) *eviction.Decoding {
		f.at("begin")
		return &eviction.Decoding{Step: func(*runner.Observation) (*kernels.Selection, error) {
			f.at("step")
			return nil, nil
		}}
	}
	return plan
}

func (f faulty) Select(*runner.SparseStep) (int64, error) { return 0, nil }
func (f faulty) Recordable() bool                         { return false }
func (f faulty) Bytes() int64                             { return 0 }
func (f faulty) Estimated() []int64 {
	f.at("end")
	return nil
}

// TestPanicsOfAnswers: what panics on the worker's goroutine, or beside it, while an answer is computed fails that answer alone,
// with 500, in a stream with an error; answers beside it and after it are as ever, and the log says where it was.
func TestPanicsOfAnswers(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Memory = 0 }) // nothing is counted on the goroutine of the request
	tokens := s.document(t, 150, 1)
	params := func(model string) openai.CompletionNewParams {
		return openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(model), Prompt: ids(tokens), MaxTokens: openai.Int(24), Temperature: openai.Float(0)}
	}
	want := s.alone(t, tokens, "snapkv", 64, 24)
	panicked := 0
	for _, where := range []string{"plan", "prompt", "begin", "step", "end"} {
		others := make(chan error)
		for range 2 {
			go func() {
				got, err := s.Completions.New(t.Context(), params("tiny"))
				if err == nil && got.Choices[0].Text != want {
					err = errors.New("another answer beside: " + got.Choices[0].Text)
				}
				others <- err
			}()
		}
		faulty := params("tiny@faulty(where=" + where + "):64")
		var refused *openai.Error
		if _, err := s.Completions.New(t.Context(), faulty); !errors.As(err, &refused) || refused.StatusCode != 500 || strings.Contains(refused.Message, "fault") {
			t.Errorf("%s: error %v, want status 500 that tells nothing of the server's inside", where, err)
		}
		stream := s.Completions.NewStreaming(t.Context(), faulty)
		for stream.Next() {
		}
		if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "the server failed at this request") {
			t.Errorf("%s: a stream ends with %v", where, err)
		}
		for range 2 {
			if err := <-others; err != nil {
				t.Errorf("%s: %v", where, err)
			}
		}
		panicked += 2
		if n := s.metric(t, "glimpse_handler_panics_total"); int(n) != panicked {
			t.Errorf("%s: %v panics are counted, want %d", where, n, panicked)
		}
	}
}
