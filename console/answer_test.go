package console

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestAnswer: the answer that streams is the session's own, and what is said of it are the
// cache's numbers.
func TestAnswer(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := (&PromptSource{Example: "needle", Tokens: 128, Seed: 3}).ReadExample(m)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		policy  string
		budget  int
		maxNew  int
		compare bool
		info    []string
	}{
		"full":  {policy: "full", budget: 128, maxNew: 16, info: []string{"the answer is right", "kept 128 of 128 KV entries", "(100.0%)"}},
		"few":   {policy: "streamingllm", budget: 8, maxNew: 16, compare: true, info: []string{"the answer is wrong", "kept 8 of 128 KV entries", "(6.2%)", ", plain prefill "}},
		"cut":   {policy: "full", budget: 128, maxNew: 1, info: []string{"the answer is wrong", "1 tokens at "}},
		"reads": {policy: "quest", budget: 64, maxNew: 4, info: []string{"attention reads ", " of them to choose"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := eviction.New(c.policy, 1, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var out, info bytes.Buffer
			o := Options{Budget: eviction.Pairs(c.budget), MaxNew: c.maxNew, Compare: c.compare}
			if err := Answer(t.Context(), &out, &info, m, engine.Policy{Configured: policy}, p, o); err != nil {
				t.Fatal(err)
			}
			rt := eviction.NewRuntime(m)
			s, err := rt.Prefill(t.Context(), policy, eviction.Prompt{Tokens: p.IDs, MaxNew: c.maxNew, Budget: c.budget})
			if err != nil {
				t.Fatal(err)
			}
			tokens, _, err := s.Generate(t.Context(), runner.GenerateOptions{MaxNew: c.maxNew})
			if err != nil {
				t.Fatal(err)
			}
			want, err := datasets.WordsText(tokens)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(out.String()); got != want {
				t.Errorf("answer %q, want %q", got, want)
			}
			for _, want := range append(c.info, "prompt of task needle, 128 tokens", "time to first token ") {
				if !strings.Contains(info.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, info.String())
				}
			}
			if !c.compare && strings.Contains(info.String(), "plain prefill") {
				t.Errorf("a prefill that was not asked for:\n%s", info.String())
			}
			line := "policy " + c.policy + ", budget "
			if c.policy == "full" { // which has none
				line = "policy full: kept "
			}
			if !strings.Contains(info.String(), line) {
				t.Errorf("it does not say %q", line)
			}
		})
	}
}

// TestAnswerWithoutTokenizer: without one, token ids are the answer; an output that takes
// no more is an error.
func TestAnswerWithoutTokenizer(t *testing.T) {
	folder, err := modeltest.Llama{}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	m := modeltest.OpenFolder(t, folder, "cpu")
	policy, err := eviction.New("snapkv", 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &Prompt{IDs: modeltest.Tokens(m, 1, 24)}
	o := Options{Budget: eviction.Pairs(12), MaxNew: 3}
	var out bytes.Buffer
	if err := Answer(t.Context(), &out, io.Discard, m, engine.Policy{Configured: policy}, p, o); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^(\d+ ){3}\n$`).MatchString(out.String()) {
		t.Errorf("answer %q, want three ids", out.String())
	}
	if err := Answer(t.Context(), closed{}, io.Discard, m, engine.Policy{Configured: policy}, p, o); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("an output that is closed: %v", err)
	}
}

// closed is an output that nobody reads.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestTrafficNote: per step, with what chooses the entries where something does.
func TestTrafficNote(t *testing.T) {
	for _, c := range []struct {
		traffic eviction.Traffic
		want    string
	}{
		{eviction.Traffic{}, ""},
		{eviction.Traffic{Steps: 2, Bytes: 4096}, "; attention reads 2.0 KiB per step"},
		{eviction.Traffic{Steps: 2, Bytes: 3072, Estimation: 1024}, "; attention reads 1.5 KiB per step, 0.5 of them to choose"},
	} {
		if got := trafficNote(c.traffic); got != c.want {
			t.Errorf("%+v: %q, want %q", c.traffic, got, c.want)
		}
	}
}

// TestAnswerOfWindows: the line about what was kept is of the layers that the budget applies to, and tells the others apart.
func TestAnswerOfWindows(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "gemma3").Folder), "cpu")
	tokens := modeltest.Tokens(m, 1, 60)
	for name, c := range map[string]struct {
		set  []string
		want string
	}{
		"windows":       {nil, `^policy snapkv, budget 8: kept 8 of 60 KV entries per KV head on average in \d+ layers? \(\d+ with a sliding window keep their own, \d+\), `},
		"told to evict": {[]string{"snapkv.windows=evict"}, `^policy snapkv, budget 8: kept 8 of 60 KV entries per KV head on average, `},
	} {
		set, err := eviction.ParseOverrides(c.set)
		if err != nil {
			t.Fatal(err)
		}
		policy, err := eviction.New("snapkv", 1, set, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out, info bytes.Buffer
		o := Options{Budget: eviction.Pairs(8), MaxNew: 2}
		if err := Answer(t.Context(), &out, &info, m, engine.Policy{Configured: policy}, &Prompt{IDs: tokens}, o); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile("(?m)" + c.want).MatchString(info.String()) {
			t.Errorf("%s: %s\nwant %s", name, info.String(), c.want)
		}
	}
}
