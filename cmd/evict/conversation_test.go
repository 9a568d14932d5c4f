package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/model/modeltest"
)

// converse runs the chat with lines on standard input.
func converse(t *testing.T, input string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRoot()
	root.SilenceErrors, root.SilenceUsage = true, true
	var out, log bytes.Buffer
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs(append([]string{"chat"}, args...))
	err = root.ExecuteContext(context.Background())
	return out.String(), log.String(), err
}

// TestChatAnswersASecondTurn: with everything kept both answers are right, and so
// they are where rocketkv-mt reads a fraction; every turn tells what it cost.
func TestChatAnswersASecondTurn(t *testing.T) {
	stream, err := datasets.NewStream([]string{"turns_section"}, datasets.Test, 512, 3)
	if err != nil {
		t.Fatal(err)
	}
	e, err := stream.At(0)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, answer := range [][]int32{e.Answer, e.Turns[0].Answer} {
		text, err := datasets.Text(answer)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, text)
	}
	type turn struct {
		Turn, Position int
		Answer         string
		Ended          bool
		Prompt         int     `json:"prompt_tokens"`
		Tokens         int     `json:"answer_tokens"`
		Pairs          float64 `json:"pairs"`
		Held           int64   `json:"held_bytes"`
		Full           int64   `json:"full_bytes"`
		Read           float64 `json:"traffic_bytes_per_step"`
	}
	const pair = 8 * 2 * 32 * 4 * 2 // bytes in 8 layers of 2 KV heads
	for _, policy := range []string{"full", "rocketkv-mt", "streamingllm"} {
		out, _, err := converse(t, "\n<copy>\n/exit\nnever read\n", "--example", "turns_section", "--seed", "3", "--policy", policy, "--budget", "64", "--json", "--max-new", "20")
		if err != nil {
			t.Fatalf("%s: %v", policy, err)
		}
		var turns []turn
		for line := range strings.Lines(out) {
			var x turn
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatalf("%s: %q: %v", policy, line, err)
			}
			turns = append(turns, x)
		}
		if len(turns) != 2 {
			t.Fatalf("%s: %d turns:\n%s", policy, len(turns), out)
		}
		position := 0
		for i, x := range turns {
			position += x.Prompt + x.Tokens
			if x.Ended && x.Position != position || x.Turn != i+1 || x.Full != int64(x.Position)*pair {
				t.Errorf("%s: turn %d: %+v, position %d", policy, i+1, x, position)
			}
			switch policy {
			case "full":
				if x.Answer != want[i] || !x.Ended || x.Pairs != float64(x.Position) || x.Held < x.Full {
					t.Errorf("turn %d: %+v, want the answer %q", i+1, x, want[i])
				}
			case "rocketkv-mt":
				if x.Pairs != float64(x.Position) || x.Read > 64*pair || x.Read == 0 {
					t.Errorf("turn %d: %+v", i+1, x)
				}
			case "streamingllm":
				if x.Pairs != 64 || x.Held > 80*pair || i == 1 && x.Answer == want[i] {
					t.Errorf("turn %d: %+v, want 64 pairs and not the answer", i+1, x)
				}
			}
		}
		if turns[1].Prompt != 7 {
			t.Errorf("%s: second prompt of %d tokens, want 7", policy, turns[1].Prompt)
		}
	}
	out, log, err := converse(t, "<copy>\n", "--example", "turns_section", "--seed", "3", "--policy", "full")
	if err != nil || !strings.Contains(out, want[0]+"\n") || !strings.Contains(out, want[1]+"\n") {
		t.Errorf("%v: says %q, want %q", err, out, want)
	}
	if strings.Count(log, "[turn ") != 2 || !strings.Contains(log, "pairs per KV head of") {
		t.Errorf("statistics:\n%s", log)
	}
}

func TestChatErrors(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"unknown policy": {"", []string{"--policy", "snapvk"}, `unknown policy "snapvk"`},
		"budget":         {"", []string{"--budget", "0"}, "budget: got 0"},
		"no answer":      {"", []string{"--max-new", "0"}, "--max-new: got 0"},
		"other words":    {"<ask> hello\n", []string{"--policy", "full"}, `"hello"`},
		"too long":       {strings.Repeat("map ", 4200) + "\n", []string{"--policy", "full"}, "longer than the model's context"},
		"unknown task":   {"", []string{"--policy", "full", "--example", "chian"}, "want one of: "},
	} {
		if _, _, err := converse(t, c.input, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want it to say %q", name, err, c.want)
		}
	}
	if out, _, err := converse(t, "", "--policy", "full"); err != nil || out != "" {
		t.Errorf("nothing said: %q, %v", out, err)
	}
}

// TestChatThatCannotGoOn: a template that writes answers otherwise than it had them
// begun contradicts what is in the cache.
func TestChatThatCannotGoOn(t *testing.T) {
	folder := spoken(t, modeltest.GoldenNamed(t, "qwen3"), 1)
	args := []string{"--model", folder, "--policy", "full", "--max-new", "3", "--json"}
	out, _, err := converse(t, "the river\n", args...)
	if err != nil || strings.Count(out, "\n") != 1 {
		t.Errorf("one turn: %q, %v", out, err)
	}
	if _, _, err := converse(t, "the river\nwas higher\n", args...); err == nil || !strings.Contains(err.Error(), "rewrites what was said before") {
		t.Errorf("two turns: %v", err)
	}
}

// TestChatBudgetShare: a share is of the conversation so far, and every turn tells what
// it came to.
func TestChatBudgetShare(t *testing.T) {
	args := []string{"--example", "turns_section", "--seed", "3", "--policy", "snapkv", "--budget", "12.5%", "--max-new", "20"}
	out, _, err := converse(t, "<copy>\n", append(args, "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	pairs, position := []string{}, 0
	for line := range strings.Lines(out) {
		var x struct {
			Budget       int
			Share        float64 `json:"budget_share"`
			Pairs        float64
			PromptTokens int `json:"prompt_tokens"`
			AnswerTokens int `json:"answer_tokens"`
			Position     int
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		position += x.PromptTokens
		if want := position / 8; x.Budget != want || x.Share != 0.125 || x.Pairs > float64(want+x.AnswerTokens) {
			t.Errorf("%+v, want a budget of %d", x, want)
		}
		position = x.Position
		pairs = append(pairs, fmt.Sprintf("%d (12.5%%)", x.Budget))
	}
	if len(pairs) != 2 || pairs[0] == pairs[1] {
		t.Fatalf("budgets %v, want two that differ:\n%s", pairs, out)
	}
	_, log, err := converse(t, "<copy>\n", args...)
	if err != nil || !strings.Contains(log, "snapkv at "+pairs[0]) || !strings.Contains(log, "snapkv at "+pairs[1]) {
		t.Errorf("%v; said:\n%s\nwant %v", err, log, pairs)
	}
	if out, _, err = converse(t, "", append(args, "--json", "--budget", "64")...); err != nil || strings.Contains(out, "budget_share") || !strings.Contains(out, `"budget":64`) {
		t.Errorf("64 pairs: %v, %s", err, out)
	}
}
