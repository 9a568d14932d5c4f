package serving_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"glimpse/model/kvcache"
	"glimpse/model/runner"
	"glimpse/serving"
)

// scored is a choice of /v1/completions with its log probabilities.
type scored struct {
	Text         string  `json:"text"`
	FinishReason *string `json:"finish_reason"`
	LogProbs     *struct {
		Tokens        []string             `json:"tokens"`
		TokenLogProbs []*float64           `json:"token_logprobs"`
		TopLogProbs   []map[string]float64 `json:"top_logprobs"`
		TextOffset    []int                `json:"text_offset"`
	} `json:"logprobs"`
}

// score asks for a completion.
func (s *served) score(t *testing.T, body map[string]any) (all []scored, usage map[string]any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := s.post(t, "/v1/completions", string(raw))
	if status != http.StatusOK {
		t.Fatalf("%.200s: %d %v", raw, status, answer)
	}
	if raw, err = json.Marshal(answer["choices"]); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	usage, _ = answer["usage"].(map[string]any)
	return all, usage
}

// given is what the model gives to the tokens of a prompt but the first, and to the likeliest token in the place of each: every
// prefix is a prompt of its own, with the full cache.
func (s *served) given(t *testing.T, tokens []int32) (logProbs, best []float64) {
	t.Helper()
	for i := 1; i < len(tokens); i++ {
		logits, err := runner.New(s.model.Model).Prefill(t.Context(), kvcache.New(s.model.Model), tokens[:i], runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p, top, err := runner.HostLogits(logits).LogProbs(tokens[i], 1)
		if err != nil {
			t.Fatal(err)
		}
		logProbs, best = append(logProbs, p), append(best, top[0].LogProb)
	}
	return logProbs, best
}

// TestPromptLogProbs: with echo and logprobs the prompt's own tokens are told of, as lm-eval's loglikelihood asks for them: what the
// full cache gives, although the server evicts and shares prefixes.
func TestPromptLogProbs(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Budget.Set("16") })
	one, other := s.document(t, 150, 1), s.document(t, 40, 2)
	text := func(tokens []int32) string {
		out, err := s.model.Tokenizer.Decode(tokens, false)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, c := range map[string]struct {
		prompt  any
		most    int
		prompts [][]int32
	}{
		"a text":           {text(one), 0, [][]int32{one}},
		"texts":            {[]string{text(one), text(other)}, 0, [][]int32{one, other}},
		"token ids":        {one, 0, [][]int32{one}},
		"lists of ids":     {[][]int32{one, other, one}, 1, [][]int32{one, other, one}},
		"one token":        {[]int32{one[0]}, 0, [][]int32{one[:1]}},
		"with an answer":   {other, 7, [][]int32{other}},
		"the default of n": {other, -1, [][]int32{other}},
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{"prompt": c.prompt, "max_tokens": c.most, "temperature": 0, "echo": true, "logprobs": 2, "min_tokens": max(0, c.most)}
			if c.most < 0 {
				c.most = 16
				delete(body, "max_tokens")
				body["min_tokens"] = 16
			}
			all, usage := s.score(t, body)
			if len(all) != len(c.prompts) {
				t.Fatalf("got %d choices", len(all))
			}
			prompts := 0
			for i, choice := range all {
				tokens := c.prompts[i]
				prompts += len(tokens)
				l := choice.LogProbs
				if n := len(tokens) + c.most; len(l.Tokens) != n || len(l.TokenLogProbs) != n || len(l.TopLogProbs) != n || len(l.TextOffset) != n {
					t.Fatalf("choice %d: %d tokens, want %d", i, len(l.Tokens), n)
				}
				if !strings.HasPrefix(choice.Text, text(tokens)) || joined(l.Tokens) != joined([]string{choice.Text}) {
					t.Errorf("choice %d: text %q of tokens %q", i, choice.Text, l.Tokens)
				}
				if l.TokenLogProbs[0] != nil || l.TopLogProbs[0] != nil {
					t.Errorf("choice %d: the first token has %v", i, *l.TokenLogProbs[0])
				}
				want, best := s.given(t, tokens)
				for j := range want {
					got, top := *l.TokenLogProbs[j+1], slices.Max(slices.Collect(maps.Values(l.TopLogProbs[j+1])))
					if math.Abs(got-want[j]) > 2e-3 || math.Abs(top-best[j]) > 2e-3 {
						t.Fatalf("choice %d, token %d: %v of at most %v, want %v of %v", i, j+1, got, top, want[j], best[j])
					}
					if got == top != (want[j] == best[j]) && math.Abs(want[j]-best[j]) > 2e-3 {
						t.Errorf("choice %d, token %d: greedy %v, want %v", i, j+1, got == top, want[j] == best[j])
					}
				}
				for j, at := range l.TextOffset {
					if rest := string([]rune(choice.Text)[at:]); !strings.HasPrefix(rest, l.Tokens[j]) && (j != 0 && j != len(tokens) || " "+rest[:len(l.Tokens[j])-1] != l.Tokens[j]) {
						t.Fatalf("choice %d: token %d, %q, at %d of %q", i, j, l.Tokens[j], at, choice.Text)
					}
				}
				if *choice.FinishReason != "length" {
					t.Errorf("choice %d: ended by %s", i, *choice.FinishReason)
				}
			}
			if usage["prompt_tokens"] != float64(prompts) || usage["completion_tokens"] != float64(c.most*len(c.prompts)) {
				t.Errorf("usage %v", usage)
			}
			body["stream"] = true
			if streamed := s.streamed(t, body); !reflect.DeepEqual(streamed, all) {
				t.Errorf("a stream says %v, want %v", streamed, all)
			}
		})
	}
}

// joined is the text of tokens without the spaces, which the built-in model's tokenizer writes between them, and not before the first.
func joined(tokens []string) string {
	return strings.ReplaceAll(strings.Join(tokens, ""), " ", "")
}

// streamed puts the parts of a stream of completions together.
func (s *served) streamed(t *testing.T, body map[string]any) (all []scored) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range s.events(t, "/v1/completions", string(raw)) {
		if data == "[DONE]" {
			return all
		}
		var part struct {
			Choices []struct {
				scored
				Index int `json:"index"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &part); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		for _, c := range part.Choices {
			for len(all) <= c.Index {
				all = append(all, scored{})
			}
			to := &all[c.Index]
			to.Text += c.Text
			to.FinishReason = c.FinishReason
			if to.LogProbs == nil {
				to.LogProbs = c.LogProbs
			} else if l := c.LogProbs; l != nil {
				to.LogProbs.Tokens, to.LogProbs.TokenLogProbs = append(to.LogProbs.Tokens, l.Tokens...), append(to.LogProbs.TokenLogProbs, l.TokenLogProbs...)
				to.LogProbs.TopLogProbs, to.LogProbs.TextOffset = append(to.LogProbs.TopLogProbs, l.TopLogProbs...), append(to.LogProbs.TextOffset, l.TextOffset...)
			}
		}
	}
	t.Fatal("the stream has no end")
	return nil
}

// events are the data of a stream's events.
func (s *served) events(t *testing.T, path, body string) (all []string) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for _, event := range strings.Split(strings.TrimSuffix(readAll(t, r.Body), "\n\n"), "\n\n") {
		_, data, _ := strings.Cut("\n"+event, "\ndata: ")
		all = append(all, data)
	}
	return all
}

func readAll(t *testing.T, from io.Reader) string {
	t.Helper()
	raw, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestEndTokenLogProb: the end token of an answer is told of behind the others, as lm-eval counts on, and is no part of the text.
func TestEndTokenLogProb(t *testing.T) {
	s := serve(t, nil)
	prompt := s.document(t, 60, 1)
	answer := s.alone(t, prompt, "snapkv", 64, 64)
	all, _ := s.score(t, map[string]any{"prompt": prompt, "max_tokens": 64, "temperature": 0, "logprobs": 0})
	l := all[0].LogProbs
	n := len(l.Tokens) - 1
	if *all[0].FinishReason != "stop" || all[0].Text != answer || joined(l.Tokens[:n]) != joined([]string{answer}) || l.TextOffset[n] != len([]rune(answer)) {
		t.Errorf("answer %q: tokens %q at %v, want those of the text and the end token", answer, l.Tokens, l.TextOffset)
	}
	if end := s.model.Tokenizer.Piece(s.model.Config.EOS[0]); l.Tokens[n] != end {
		t.Errorf("the last token is %q, want %q", l.Tokens[n], end)
	}
	// A prompt whose answer ends at once.
	ids, err := s.model.Tokenizer.Encode(answer, false)
	if err != nil {
		t.Fatal(err)
	}
	whole := slices.Concat(prompt, ids)
	all, _ = s.score(t, map[string]any{"prompt": whole, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": true})
	if got := len(all[0].LogProbs.Tokens); got != len(whole)+1 {
		t.Errorf("%d tokens, want the prompt's %d and the end token", got, len(whole))
	}
}

// TestUsageOfStreams: with include_usage every part has the field, null before the last; without no part has it.
func TestUsageOfStreams(t *testing.T) {
	s := serve(t, nil)
	for _, endpoint := range []struct{ path, body string }{
		{"/v1/completions", `"prompt":"never karl"`}, {"/v1/chat/completions", `"messages":[{"role":"user","content":"never karl"}]`},
	} {
		for _, wanted := range []bool{true, false} {
			events := s.events(t, endpoint.path, fmt.Sprintf(`{%s,"max_tokens":3,"stream":true,"stream_options":{"include_usage":%v}}`, endpoint.body, wanted))
			parts := events[:len(events)-1]
			for i, data := range parts {
				var part map[string]any
				if err := json.Unmarshal([]byte(data), &part); err != nil {
					t.Fatal(err)
				}
				usage, has := part["usage"]
				if has != wanted || (usage != nil) != (wanted && i == len(parts)-1) {
					t.Errorf("%s, include_usage %v, part %d of %d: %s", endpoint.path, wanted, i, len(parts), data)
				}
			}
		}
	}
}

// TestTokenizerInfo: what lm-eval asks before it lets the server tokenize.
func TestTokenizerInfo(t *testing.T) {
	s := serve(t, nil)
	r, err := http.Get(s.url + "/tokenizer_info")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var info map[string]any
	if err := json.NewDecoder(r.Body).Decode(&info); err != nil {
		t.Fatal(err)
	}
	c := s.model.Tokenizer.Config()
	if info["eos_token"] != c.EOS || info["chat_template"] != c.ChatTemplate || info["unk_token"] == "" {
		t.Errorf("got %v, want those of %+v", info, c)
	}
}

// TestEchoStops: stop texts of the prompt end nothing.
func TestEchoStops(t *testing.T) {
	s := serve(t, nil)
	prompt := s.document(t, 60, 1)
	text, err := s.model.Tokenizer.Decode(prompt, false)
	if err != nil {
		t.Fatal(err)
	}
	answer := s.alone(t, prompt, "snapkv", 64, 64)
	all, _ := s.score(t, map[string]any{"prompt": text, "max_tokens": 64, "temperature": 0, "echo": true, "stop": text[10:14]})
	if all[0].Text != text+answer {
		t.Errorf("got %q, want the prompt and %q", all[0].Text, answer)
	}
}
