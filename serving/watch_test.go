package serving_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"glimpse/eviction"
	"glimpse/model/runner"
	"glimpse/serving"
)

// heard is a log that tests read while it is written.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) count(text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.text.String(), text)
}

// health is what /health says.
func (s *served) health(t *testing.T) (out struct {
	Status      string
	Warnings    []string
	Calibration *struct {
		State                   string
		Mean, AtLeast, Promised float64
		Requests                int
	}
}) {
	t.Helper()
	r, err := http.Get(s.url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&out); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%d: %v", r.StatusCode, err)
	}
	return out
}

// TestWatch: the loss of requests of the server's own budget is that of a study by itself; requests with a budget of their own do not
// count; those that are kept whole have lost nothing. A breach is told once, and with full new requests keep everything.
func TestWatch(t *testing.T) {
	for _, name := range []string{eviction.LossNLL, eviction.LossAgreement} {
		for i, breach := range serving.Breaches() {
			if testing.Short() && (i == 0) == (name == eviction.LossNLL) {
				continue // one of either
			}
			t.Run(name+" "+breach, func(t *testing.T) {
				loss, log := eviction.Loss{Name: name, Clip: 1}, new(heard)
				s := serve(t, func(c *serving.Config) {
					c.VerifyShare, c.Budget, c.OnBreach, c.Log = 1, eviction.Pairs(20), breach, slog.New(slog.NewTextHandler(log, nil))
					c.Promise = &eviction.Promise{Loss: loss, Epsilon: 0.02, Confidence: 0.95}
				})
				policy := func(model string, i int) string {
					var got struct {
						Usage struct{ Eviction struct{ Policy string } }
					}
					p := openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(model), Prompt: ids(s.document(t, 150+5*(i%4), uint64(i))), MaxTokens: openai.Int(16), Temperature: openai.Float(0)}
					answer, err := s.Completions.New(t.Context(), p)
					if err != nil {
						t.Fatal(err)
					}
					if err := json.Unmarshal([]byte(answer.RawJSON()), &got); err != nil {
						t.Fatal(err)
					}
					return got.Usage.Eviction.Policy
				}
				seen, broken := `glimpse_calibration_requests{loss="`+name+`"}`, `glimpse_calibration_broken{loss="`+name+`"}`
				sum, n := 0.0, 0
				for ; n < 60 && s.metric(t, broken) == 0; n++ {
					policy("tiny@snapkv:8", n) // which asks for another budget
					policy("tiny", n)
					sum += s.loss(t, loss, s.document(t, 150+5*(n%4), uint64(n)), 20, 16)
					s.await(t, seen, float64(n+1))
				}
				near(t, "mean loss", s.metric(t, `glimpse_calibration_loss{loss="`+name+`"}`), sum/float64(n))
				if s.metric(t, broken) != 1 {
					t.Fatalf("after %d requests with a mean loss of %v the promise of 0.02 stands", n, sum/float64(n))
				}
				if bound := s.metric(t, `glimpse_calibration_loss_bound{loss="`+name+`"}`); !(bound > 0.0 && bound < sum/float64(n)) {
					t.Errorf("lower bound %v of the mean %v", bound, sum/float64(n))
				}
				h := s.health(t)
				if h.Status != "ok" || h.Calibration.State != "broken" || h.Calibration.Requests != n || len(h.Warnings) != 1 || !strings.Contains(h.Warnings[0], "the promise of the calibrated budget is broken") {
					t.Errorf("health %+v", h)
				}
				want := map[string]string{serving.BreachLog: "snapkv", serving.BreachFull: "full"}[breach]
				if got := policy("tiny", 0); got != want {
					t.Errorf("after the breach: policy %s, want %s", got, want)
				}
				if got := policy("tiny@snapkv:8", 0); got != "snapkv" {
					t.Errorf("a request with a budget of its own: policy %s", got)
				}
				s.await(t, `glimpse_idle_work_total{outcome="done",work="verify"}`, s.metric(t, `glimpse_idle_work_total{outcome="done",work="verify"}`))
				if told := log.count("the promise of the calibrated budget is broken"); told != 1 {
					t.Errorf("told %d times, want once", told)
				}
				t.Logf("broken after %d requests with a mean loss of %.3f", n, sum/float64(n))
			})
		}
	}
}

// loss is what snapkv loses on a prompt, by a study and a session of the test's own.
func (s *served) loss(t *testing.T, l eviction.Loss, prompt []int32, budget, maxNew int) float64 {
	t.Helper()
	p, err := s.model.PolicyWith("snapkv", "")
	if err != nil {
		t.Fatal(err)
	}
	rt := eviction.NewRuntime(s.model.Model)
	study, err := rt.Study(t.Context(), []*eviction.Configured{p.Configured}, eviction.Prompt{Tokens: prompt}, []int{budget}, runner.GenerateOptions{MaxNew: maxNew})
	if err != nil {
		t.Fatal(err)
	}
	said := s.alone(t, prompt, "snapkv", budget, maxNew)
	if l.Name == eviction.LossAgreement {
		got, err := s.model.Tokenizer.Encode(said, false)
		if err != nil {
			t.Fatal(err)
		}
		return 1 - eviction.TokenF1(got, study.Response)
	}
	mean := func(policy string) float64 {
		named, err := s.model.PolicyWith(policy, "")
		if err != nil {
			t.Fatal(err)
		}
		session, err := rt.Prefill(t.Context(), named.Configured, eviction.Prompt{Tokens: prompt, Budget: budget, MaxNew: maxNew})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		logProbs, err := session.Force(t.Context(), study.Response)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range logProbs {
			sum -= x / float64(len(logProbs))
		}
		return sum
	}
	return min(1, max(-1, (mean("snapkv")-mean("full"))/l.Clip))
}

// TestWatchKept: requests that keep their whole prompts lose nothing, sampled ones are not looked at, and a loss that cannot be watched
// has no metrics.
func TestWatchKept(t *testing.T) {
	promise := &eviction.Promise{Loss: eviction.Loss{Name: eviction.LossNLL, Clip: 1}, Epsilon: 0.02, Confidence: 0.95}
	s := serve(t, func(c *serving.Config) {
		c.VerifyShare, c.Budget, c.Promise = 1, eviction.Pairs(4000), promise
	})
	for i := range 5 {
		s.answer(t, s.document(t, 150, uint64(i)), openai.CompletionNewParams{MaxTokens: openai.Int(4), Temperature: openai.Float(0)})
		s.answer(t, s.document(t, 150, uint64(i)), openai.CompletionNewParams{MaxTokens: openai.Int(4), Temperature: openai.Float(0.9)})
		s.answer(t, s.document(t, 150, uint64(i)), openai.CompletionNewParams{MaxTokens: openai.Int(4), Temperature: openai.Float(0)}, option.WithHeader("X-Glimpse-Record", "off"))
	}
	s.await(t, `glimpse_calibration_requests{loss="nll"}`, 5)
	if h := s.health(t); h.Calibration.State != "kept" || h.Calibration.Mean != 0 || len(h.Warnings) != 0 {
		t.Errorf("health %+v", h)
	}
	for _, change := range []func(c *serving.Config){
		func(c *serving.Config) {
			c.VerifyShare, c.Promise = 1, &eviction.Promise{Loss: eviction.Loss{Name: eviction.LossAccuracy}, Epsilon: 0.02, Confidence: 0.95}
		},
		func(c *serving.Config) { c.Promise = promise },
		func(c *serving.Config) { c.VerifyShare = 1 },
	} {
		if h := serve(t, change).health(t); h.Calibration != nil {
			t.Errorf("nothing is watched, and health says %+v", h.Calibration)
		}
	}
}
