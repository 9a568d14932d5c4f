package eviction_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
)

func init() {
	// The first m and the last N − m tokens of the prompt, again, at the positions of
	// the response (DapQ, arXiv:2603.11564, eq. 4): the sum of their attention (eq. 5), divided by N.
	// The tokens that are drawn are taken from the policy, and tested below.
	naivePolicies["dapq"] = func(c *naiveCase) naivePlan {
		n := min(c.int("rows"), c.n())
		first := min(c.int("first"), n)
		var pseudo []int32
		switch content := c.text("content"); content {
		case "ends":
			for j, id := range c.tokens {
				if j < first {
					pseudo = append(pseudo, id)
				}
			}
			pseudo = slices.Concat(pseudo, c.tokens[c.n()-n+first:])
		default:
			pseudo = pseudoTokens(content, n, c.tokens, c.c)
		}
		p := c.run(c.full, c.embed(pseudo), max(0, c.n()+c.int("offset")), nil)
		scores := c.grouped(func(l, h int) []float64 { return rows(p.attention[l][h]).mean(0, n, c.n()) })
		for l := range scores {
			for h, s := range scores[l] {
				scores[l][h] = pooled(s, c.int("kernel"))
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget)}
	}
}

// pseudoTokens are the pseudo-queries that dapq runs.
func pseudoTokens(content string, n int, tokens []int32, c *model.Config) []int32 {
	overrides, err := eviction.ParseOverrides([]string{"dapq.content=" + content})
	if err != nil {
		panic(err)
	}
	overrides["dapq"]["rows"] = float64(n)
	p, err := eviction.New("dapq", policySeed, overrides, nil)
	if err != nil {
		panic(err)
	}
	return p.Method.Plan(eviction.Prompt{Tokens: tokens, Entries: len(tokens), Config: c}).Capture.Probes[0].(model.TokenRows)
}

// TestPseudoQueryContents: DapQ, arXiv:2603.11564, §6.1, figure 6.
func TestPseudoQueryContents(t *testing.T) {
	m := modeltest.Llama{Vocab: 4000}.Open(t, "cpu")
	tokens := make([]int32, 200) // every token tells its place
	for j := range tokens {
		tokens[j] = int32(1000 + j)
	}
	random := pseudoTokens("random", 32, tokens, &m.Config)
	seen := make(map[int32]bool)
	for _, id := range random {
		if !slices.Contains(tokens, id) {
			t.Errorf("random: token %d is not of the prompt", id)
		}
		seen[id] = true
	}
	if len(random) != 32 || len(seen) < 20 || slices.IsSorted(random) {
		t.Errorf("random: %v", random)
	}
	span := pseudoTokens("span", 32, tokens, &m.Config)
	for i, id := range span {
		if id != span[0]+int32(i) {
			t.Fatalf("span: %v is not one", span)
		}
	}
	if len(span) != 32 || span[0] < 1000 || span[31] > 1199 {
		t.Errorf("span: %v", span)
	}
	fixed := pseudoTokens("fixed", 32, tokens, &m.Config)
	for i, id := range fixed {
		if id != fixed[i%7] || id < 0 || int(id) >= m.Config.Vocab {
			t.Fatalf("fixed: %v does not repeat itself", fixed)
		}
	}
	if other := pseudoTokens("fixed", 32, tokens[100:], &m.Config); !slices.Equal(fixed, other) {
		t.Errorf("fixed: %v and for another prompt %v", fixed, other)
	}
	if got := pseudoTokens("span", 32, tokens[:5], &m.Config); !slices.Equal(got, tokens[:5]) {
		t.Errorf("span of a short prompt: %v", got)
	}
	outside := 0
	for _, id := range pseudoTokens("vocabulary", 32, tokens, &m.Config) {
		if id < 0 || int(id) >= m.Config.Vocab {
			t.Errorf("vocabulary: token %d", id)
		}
		if !slices.Contains(tokens, id) {
			outside++
		}
	}
	if outside < 20 {
		t.Errorf("vocabulary: %d of 32 tokens are not of the prompt", outside)
	}
}

// TestNonsense: the fixed content is in the model's own tokens where it has them.
func TestNonsense(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "qwen3").Folder), "cpu")
	p, err := eviction.ParseOverrides([]string{"dapq.content=fixed", "dapq.rows=40"})
	if err != nil {
		t.Fatal(err)
	}
	dapq, err := eviction.New("dapq", policySeed, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := dapq.Method.Plan(eviction.Prompt{Tokens: make([]int32, 50), Entries: 50, Config: &m.Config, Tokenizer: m.Tokenizer}).Capture.Probes[0].(model.TokenRows)
	text, err := m.Tokenizer.Decode(ids, true)
	if whole := strings.Repeat("Sorry, I don't know. ", 40); err != nil || len(ids) != 40 || !strings.HasPrefix(whole, text) {
		t.Errorf("%d tokens that say %q, %v", len(ids), text, err)
	}
	s, err := eviction.NewRuntime(m).Prefill(background, dapq, eviction.Prompt{Tokens: modeltest.Tokens(m, 3, 60), Budget: 20})
	if err != nil {
		t.Fatal(err)
	}
	if s.Prompt.Tokenizer != m.Tokenizer {
		t.Error("the prompt does not know the model's tokenizer")
	}
	builtin, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer builtin.Close()
	if a, b := eviction.Nonsense(&builtin.Config, builtin.Tokenizer, 40), eviction.Nonsense(&builtin.Config, nil, 40); !slices.Equal(a, b) {
		t.Errorf("words that the built-in model does not know are %v, want %v", a, b)
	}
}
