package serving_test

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
	"glimpse/serving"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) < 1e-9) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// agreement is the share of an answer's words, its end among them, before the first difference to another.
func agreement(got, want []string) float64 {
	same := 0
	for same < len(got) && same < len(want) && got[same] == want[same] {
		same++
	}
	return float64(same) / float64(len(got))
}

// TestVerify: greedy answers are compared with what the full cache says, and no others.
func TestVerify(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.VerifyShare, c.Budget = 1, eviction.Pairs(24) })
	const most = 24
	said := func(text string) []string {
		words := strings.Fields(text)
		if len(words) < most {
			words = append(words, "\x00") // the end
		}
		return words
	}
	sum, whole := 0.0, 0
	for i := range 8 {
		tokens := s.document(t, 200+20*i, uint64(i))
		p := openai.CompletionNewParams{Model: "tiny", Prompt: ids(tokens), MaxTokens: openai.Int(most), Temperature: openai.Float(0)}
		got, err := s.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		share := agreement(said(got.Choices[0].Text), said(s.alone(t, tokens, "full", 1, most)))
		if sum += share; share == 1 {
			whole++
		}
		p.Temperature = openai.Float(0.9)
		if _, err := s.Completions.New(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Model, p.Temperature = "tiny@snapkv:2000", openai.Float(0) // which keeps everything
		if _, err := s.Completions.New(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if whole == 8 || sum == 0 {
		t.Fatalf("%d of 8 answers are those of the full cache: want some that are not", whole)
	}
	s.await(t, `glimpse_idle_work_total{outcome="done",work="verify"}`, 8)
	s.await(t, `glimpse_verified_agreement_count{budget="24",policy="snapkv"}`, 8)
	near(t, "agreement", s.metric(t, `glimpse_verified_agreement_sum{budget="24",policy="snapkv"}`), sum)
}

// TestVerifyExact: where the entries that are left out of each step change nothing, answers agree to their ends, with the
// penalties, the constraint and the length that were asked for.
func TestVerifyExact(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.VerifyShare = 1 })
	for i, more := range []map[string]any{nil, {"presence_penalty": 1.5}, {"structured_outputs": map[string]any{"regex": "( never| karl| lamp)+"}}, {"ignore_eos": true}} {
		var opt []option.RequestOption
		for key, value := range more {
			opt = append(opt, option.WithJSONSet(key, value))
		}
		p := openai.CompletionNewParams{Model: "tiny@exact-topk:150", Prompt: ids(s.document(t, 160, uint64(i))), MaxTokens: openai.Int(16), Temperature: openai.Float(0)}
		if _, err := s.Completions.New(t.Context(), p, opt...); err != nil {
			t.Fatalf("%v: %v", more, err)
		}
		s.await(t, `glimpse_verified_agreement_count{budget="150",policy="exact-topk"}`, float64(i+1))
		near(t, fmt.Sprint(more), s.metric(t, `glimpse_verified_agreement_sum{budget="150",policy="exact-topk"}`), float64(i+1))
	}
}

// TestVerifyYields: requests that come give up the work, which is done after them, and are answered as by themselves.
func TestVerifyYields(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.VerifyShare, c.Shadow, c.ShadowShare = 1, "judgeq/shipped", 1 })
	tokens := s.document(t, 1000, 1)
	want := s.alone(t, tokens, "snapkv", 64, 8)
	interrupted := func() float64 {
		return s.metric(t, `glimpse_idle_work_total{outcome="interrupted",work="verify"}`) + s.metric(t, `glimpse_idle_work_total{outcome="interrupted",work="shadow"}`)
	}
	asked := 0
	for end := time.Now().Add(time.Minute); interrupted() < 3; asked++ {
		if time.Now().After(end) {
			t.Fatal("nothing was interrupted")
		}
		got, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny", Prompt: ids(tokens), MaxTokens: openai.Int(8), Temperature: openai.Float(0)})
		if err != nil || got.Choices[0].Text != want {
			t.Fatalf("%v, want %q: %v", got, want, err)
		}
	}
	for _, work := range []string{"verify", "shadow"} {
		s.await(t, `glimpse_idle_work_total{outcome="done",work="`+work+`"}`, float64(asked))
	}
}

// TestShadow: both hit rates are those that a study by itself finds.
func TestShadow(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Policy, c.Shadow, c.ShadowShare = "lookaheadkv", "judgeq/shipped", 1 })
	var policies []*eviction.Configured
	for _, name := range []string{"lookaheadkv", "judgeq", "oracle"} {
		p, err := s.model.PolicyWith(name, "")
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p.Configured)
	}
	var want [2]float64
	for i := range 3 {
		tokens := s.document(t, 300+50*i, uint64(i))
		response := s.answer(t, tokens, openai.CompletionNewParams{MaxTokens: openai.Int(12), Temperature: openai.Float(0.7)})
		study, err := eviction.NewRuntime(s.model.Model).Study(t.Context(), policies, eviction.Prompt{Tokens: tokens, Response: response}, []int{64}, runner.GenerateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for p := range want {
			want[p] += eviction.HitRate(study.Choices[p].Kept, study.Choices[2].Kept)
		}
	}
	if want[0] == want[1] || want[0] >= 3 {
		t.Fatalf("hit rates %v, want some that differ", want)
	}
	s.await(t, `glimpse_idle_work_total{outcome="done",work="shadow"}`, 3)
	for p, name := range []string{"lookaheadkv/shipped", "judgeq/shipped"} {
		near(t, name, s.metric(t, `glimpse_shadow_hit_rate_sum{adapter="`+name+`"}`), want[p])
	}
}

// TestShadowOfAFolder: an adapter in a folder shadows without being one that requests find, and one that is not there is an error.
func TestShadowOfAFolder(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Shadow, c.ShadowShare = "new=../adapters/reference/lookaheadkv", 1 })
	if slices.ContainsFunc(s.model.Adapters(), func(a engine.AdapterInfo) bool { return a.Name == "new" }) {
		t.Error("requests find the shadow")
	}
	s.answer(t, s.document(t, 300, 1), openai.CompletionNewParams{MaxTokens: openai.Int(8)})
	s.await(t, `glimpse_shadow_hit_rate_count{adapter="lookaheadkv/new"}`, 1)
}

// TestIdleWorkTakesRoom: sessions that wait for another turn leave the memory that idle work takes.
func TestIdleWorkTakesRoom(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Prefix, c.Memory, c.VerifyShare = 0, 20<<20, 1 })
	const talks = 16
	for i := range talks {
		if _, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, []string{s.message(t, 300, uint64(i))}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	s.await(t, `glimpse_idle_work_total{outcome="done",work="verify"}`, talks)
	waiting, letGo := s.metric(t, "glimpse_conversation_sessions"), s.metric(t, "glimpse_conversation_evictions")
	if waiting == 0 || letGo == 0 || waiting+letGo != talks {
		t.Errorf("of %d sessions %v wait and %v were let go of, want some of each", talks, waiting, letGo)
	}
}

// TestIdleWorkInLittleMemory: work that fits the memory is done, and what needs more than there is, as the full cache of a prompt
// that was evicted layer by layer does, is not.
func TestIdleWorkInLittleMemory(t *testing.T) {
	const tokens = 3000
	for _, c := range []struct {
		memory  int64
		outcome string
	}{{28 << 20, "done"}, {16 << 20, "too_long"}} {
		t.Run(c.outcome, func(t *testing.T) {
			s := serve(t, func(cfg *serving.Config) {
				cfg.Prefix, cfg.Memory, cfg.Rows, cfg.VerifyShare, cfg.Shadow, cfg.ShadowShare = 0, c.memory, 1, 1, "judgeq/shipped", 1
			})
			p := openai.CompletionNewParams{Model: "tiny", Prompt: ids(s.document(t, tokens, 1)), MaxTokens: openai.Int(8), Temperature: openai.Float(0)}
			if _, err := s.Completions.New(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for _, work := range []string{"verify", "shadow"} {
				s.await(t, `glimpse_idle_work_total{outcome="`+c.outcome+`",work="`+work+`"}`, 1)
			}
		})
	}
}

// TestShadowNames: which adapter a name means beside the policy that answers, and what is said where that is none or several.
func TestShadowNames(t *testing.T) {
	other := t.TempDir()
	if err := os.CopyFS(other, modeltest.WithFiles(t, map[string]any{"tokenizer.json": modeltest.ByteTokenizer("<|end|>")})); err != nil {
		t.Fatal(err)
	}
	own := "../adapters/reference/lookaheadkv"
	for _, c := range []struct {
		name, model, policy, shadow string
		want                        string   // of the error; "": none
		adapters                    []string // of the server; none: the shipped ones
	}{
		{name: "a shipped one beside another adapter", policy: "lookaheadkv", shadow: "judgeq/shipped", adapters: []string{own}},
		{"the other shipped one", "", "lookaheadkv", "shipped", "", nil},
		{"the other shipped one, options", "", "lookaheadkv(kernel=3)", "shipped", "", nil},
		{"two shipped ones", "", "snapkv", "shipped", "--shadow shipped: got the adapters judgeq/shipped, lookaheadkv/shipped of this name, want one of them", nil},
		{"none shipped", other, "snapkv", "shipped", "--shadow shipped: adapter \"shipped\": the registry has none for the weights of model", nil},
		{"no folder", "", "snapkv", "no/such", "--shadow no/such: no folder, and no adapter of the server, which has judgeq/shipped, lookaheadkv/shipped: ", nil},
		{"no folder, no adapters", other, "snapkv", "no/such", "--shadow no/such: no folder, and no adapter of the server, which has none: ", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := engine.Open(t.Context(), &engine.Options{Model: c.model, Device: "cpu", CacheDType: "auto", Policies: "snapkv", Adapters: c.adapters}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			s, err := serving.New(m, serving.Config{
				Name: "m", Policy: c.policy, Budget: eviction.Pairs(64), Choice: model.SamplingChoice{From: model.SamplingOfModel}, MaxNew: 8, Rows: 1, Queue: 1, MaxBody: 1 << 20,
				Log: slog.New(slog.DiscardHandler), Shadow: c.shadow, ShadowShare: 1,
			})
			if err == nil {
				defer s.Close()
			} else {
				defer m.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
