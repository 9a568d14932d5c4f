package eviction_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/yamlconfig"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestBudget: what a text means, for prompts of several lengths, and that it is written
// as it is read.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		text, canonical string
		of              map[int]int // tokens to pairs
	}{
		{"128", "128", map[int]int{1: 128, 4096: 128}},
		{" 32 ", "32", map[int]int{512: 32}},
		{"1", "1", map[int]int{512: 1}}, // a whole number is pairs
		{"1.0", "100%", map[int]int{1: 1, 512: 512}},
		{"100%", "100%", map[int]int{1: 1, 512: 512}},
		{"1%", "1%", map[int]int{512: 5, 99: 1}},
		{"0.2", "20%", map[int]int{1: 1, 9: 1, 10: 2, 512: 102}},
		{".2", "20%", map[int]int{512: 102}},
		{"10 %", "10%", map[int]int{512: 51, 519: 51, 520: 52}},
		{"12.5%", "12.5%", map[int]int{16: 2, 15: 1}},
		{"7%", "7%", map[int]int{100: 7, 1000: 70}}, // 0.07·100 is below 7 in floating point
		{"0.29", "29%", map[int]int{100: 29}},
		{"0.0001%", "0.0001%", map[int]int{1_000_000: 1, 2_000_000: 2, 5: 1}},
		{"0.000001", "0.0001%", map[int]int{2_000_000: 2}},
	} {
		b, err := eviction.ParseBudget(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got := b.String(); got != c.canonical {
			t.Errorf("%q: written as %q, want %q", c.text, got, c.canonical)
		}
		for tokens, want := range c.of {
			if got := b.Of(tokens); got != want {
				t.Errorf("%q of %d tokens: %d pairs, want %d", c.text, tokens, got, want)
			}
		}
		if again, err := eviction.ParseBudget(b.String()); err != nil || again != b {
			t.Errorf("%q: %q is read as %v, %v", c.text, b, again, err)
		}
		raw, err := json.Marshal([]eviction.Budget{b})
		if err != nil {
			t.Fatal(err)
		}
		var back []eviction.Budget
		if err := json.Unmarshal(raw, &back); err != nil || !slices.Equal(back, []eviction.Budget{b}) {
			t.Errorf("%q: JSON %s is read as %v, %v", c.text, raw, back, err)
		}
	}
	for text, want := range map[string]string{
		"": `got ""`, "many": `got "many"`, "12x": `got "12x"`, "1e3": `got "1e3"`, "99999999999999999999": "want at most 2147483647 entries",
		"9223372036854775807": "budget: got 9223372036854775807, want at most 2147483647 entries", "4611686018427387904": "got 4611686018427387904, want at most", "2147483648": "want at most 2147483647",
		"0": "budget: got 0, want at least 1", "-3": "budget: got -3",
		"0%": "above 0 and at most 100%", "0.0": "above 0", "100.0001%": "at most 100%", "1.5": "a number of entries has no point", "32.0": "has no point",
		"-10%": "want a share", "%": "want a share", ".": "want a share", "1.2.3": "want a share", "0.0000001": "to at most a millionth", "0.00001%": "to at most a millionth",
		"1e-1%": "want a share", "99999999999999999999%": "want a share",
	} {
		if b, err := eviction.ParseBudget(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, error %v, want it to say %q", text, b, err, want)
		}
	}
}

func TestBudgets(t *testing.T) {
	got, err := eviction.ParseBudgets("128, 10%,0.2")
	if err != nil || len(got) != 3 || got[0] != eviction.Pairs(128) || got[1].Of(100) != 10 || got[2].Share() != 0.2 || got[0].Share() != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	for list, want := range map[string]string{"32,32": "32 twice", "20%,0.2": "20% twice", "32,": `got ""`, "": `got ""`} {
		if _, err := eviction.ParseBudgets(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want it to say %q", list, err, want)
		}
	}
	var fromYAML struct {
		Budgets []eviction.Budget `json:"budgets"`
	}
	if err := yamlconfig.Decode("x.yaml", []byte("budgets: [128, 10%, 0.2]"), nil, &fromYAML); err != nil || !slices.Equal(fromYAML.Budgets, got) {
		t.Errorf("YAML: %v, %v, want %v", fromYAML.Budgets, err, got)
	}
	if err := yamlconfig.Decode("x.yaml", []byte("budgets: [128, 1.5]"), nil, &fromYAML); err == nil || !strings.Contains(err.Error(), "x.yaml:1: budgets.1: budget: got \"1.5\"") {
		t.Errorf("YAML: error %v, want it to name the place", err)
	}
	raw, err := json.Marshal(got)
	if want := `[128,"10%","20%"]`; err != nil || string(raw) != want {
		t.Errorf("JSON: %s, %v, want %s", raw, err, want)
	}
	var numbers []eviction.Budget
	if err := json.Unmarshal([]byte(`[128, 0.1, "0.2"]`), &numbers); err != nil || !slices.Equal(numbers, got) {
		t.Errorf("JSON: %v, %v, want %v", numbers, err, got)
	}
}

// TestShareOfAConversation: a share is of the conversation up to the end of a turn's
// prompt, with what was evicted of it and the answers in between, and what it comes to is
// all that a turn knows of it.
func TestShareOfAConversation(t *testing.T) {
	quarter, err := eviction.ParseBudget("25%")
	if err != nil {
		t.Fatal(err)
	}
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		prompts := [][]int32{modeltest.Tokens(m, 6, 64), modeltest.Tokens(m, 7, 28), modeltest.Tokens(m, 8, 20)}
		pairs := []int{16, 25, 32} // a quarter of 64, of 64+9+28 and of that +9+20
		talk := func(budget func(turn int) eviction.Budget) (said [][]int32, kept [][][]int32) {
			rt := eviction.NewRuntime(m)
			s, err := rt.NewSession(p, budget(0))
			if err != nil {
				t.Fatal(err)
			}
			for turn, prompt := range prompts {
				s.Budget = budget(turn)
				if err := s.Turn(background, eviction.Prompt{Tokens: prompt, MaxNew: 9}); err != nil {
					t.Fatal(err)
				}
				if s.Prompt.Budget != pairs[turn] {
					t.Errorf("turn %d: budget of %d pairs, want %d", turn, s.Prompt.Budget, pairs[turn])
				}
				kept = append(kept, s.Kept()...)
				tokens, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 9, IgnoreEnd: true})
				if err != nil {
					t.Fatal(err)
				}
				said = append(said, tokens)
			}
			return said, kept
		}
		said, kept := talk(func(int) eviction.Budget { return quarter })
		want, wantKept := talk(func(turn int) eviction.Budget { return eviction.Pairs(pairs[turn]) })
		same := func(a, b []int32) bool { return slices.Equal(a, b) }
		if !slices.EqualFunc(said, want, same) || !slices.EqualFunc(kept, wantKept, func(a, b [][]int32) bool { return slices.EqualFunc(a, b, same) }) {
			t.Errorf("with a share %v, with its numbers %v", said, want)
		}
	})
	if _, err := (&eviction.Runtime{}).NewSession(nil, eviction.Budget{}); err == nil || !strings.Contains(err.Error(), "budget: got 0") {
		t.Errorf("no budget: %v", err)
	}
}

// TestBudgetsAsAFlag: a list is written as it is read, also from one text of a configuration.
func TestBudgetsAsAFlag(t *testing.T) {
	b := eviction.Budgets{eviction.Pairs(7)}
	if err := b.Set("64,10%"); err != nil || b.String() != "64,10%" || len(b) != 2 {
		t.Errorf("%v, %v", b, err)
	}
	if err := b.Set("64,64"); err == nil || !strings.Contains(err.Error(), "64 twice") {
		t.Errorf("a double: %v", err)
	}
	var fromYAML struct {
		Budgets eviction.Budgets `json:"budgets"`
	}
	for _, text := range []string{"budgets: 64,10%", "budgets: [64, 0.1]"} {
		if err := yamlconfig.Decode("x.yaml", []byte(text), nil, &fromYAML); err != nil || fromYAML.Budgets.String() != "64,10%" {
			t.Errorf("%s: %v, %v", text, fromYAML.Budgets, err)
		}
	}
}

// TestWholeBelow: a short prompt keeps everything, a longer one its budget, and the text is the budget's.
func TestWholeBelow(t *testing.T) {
	share, err := eviction.ParseBudget("10%")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		budget   eviction.Budget
		tokens   int
		want     int
		describe string
	}{
		{share.WholeBelow(256), 255, 255, "255 (all of a short prompt)"},
		{share.WholeBelow(256), 256, 25, "25 (10%)"},
		{eviction.Pairs(64).WholeBelow(256), 100, 100, "100 (all of a short prompt)"},
		{eviction.Pairs(64).WholeBelow(256), 300, 64, "64"},
		{share.WholeBelow(0), 5, 1, "1 (10%)"},
	} {
		if got := c.budget.Of(c.tokens); got != c.want || c.budget.Describe(c.tokens) != c.describe {
			t.Errorf("%v of %d tokens: %d, %q, want %d, %q", c.budget, c.tokens, got, c.budget.Describe(c.tokens), c.want, c.describe)
		}
	}
	if text := share.WholeBelow(256).String(); text != "10%" {
		t.Errorf("text %q, want 10%%", text)
	}
}
