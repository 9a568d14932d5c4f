package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
		text, err := datasets.WordsText(answer)
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
			if x.Ended && x.Position != position || x.Turn != i+1 || x.Full < int64(x.Position)*pair || x.Full > int64(x.Position+16)*pair {
				t.Errorf("%s: turn %d: %+v, position %d", policy, i+1, x, position)
			}
			switch policy {
			case "full":
				if x.Answer != want[i] || !x.Ended || x.Pairs != float64(x.Position) || x.Held != x.Full {
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
	if strings.Count(log, "[turn ") != 2 || !strings.Contains(log, "KV entries per KV head on average") {
		t.Errorf("statistics:\n%s", log)
	}
}

// TestHeldOfTheWhole: what is held of the cache is never said to be more than the whole, and what a
// sparse policy keeps beside it is said by itself.
func TestHeldOfTheWhole(t *testing.T) {
	share := regexp.MustCompile(`([0-9.]+) of ([0-9.]+) KiB`)
	for policy, beside := range map[string]bool{"full": false, "snapkv": false, "quest": true, "rocketkv-mt": true, "snapkv:quest": true} {
		args := []string{"--example", "turns_section", "--policy", policy, "--budget", "64", "--max-new", "20"}
		_, chat, err := converse(t, "<copy>\n/stats\n", args...)
		if err != nil {
			t.Fatal(err)
		}
		_, run, err := execute(t, append([]string{"run"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for log, lines := range map[string]int{chat: 2, run: 1} {
			shares := share.FindAllStringSubmatch(log, -1)
			if len(shares) != lines || strings.Count(log, "KiB beside the cache to choose by") != lines*strings.Count(fmt.Sprint(beside), "true") {
				t.Errorf("%s: says\n%s", policy, log)
			}
			for _, m := range shares {
				held, err := strconv.ParseFloat(m[1], 64)
				whole, err2 := strconv.ParseFloat(m[2], 64)
				if err := errors.Join(err, err2); err != nil || held > whole || (policy == "full") != (held == whole) && policy != "quest" && policy != "rocketkv-mt" {
					t.Errorf("%s: holds %s, %v", policy, m[0], err)
				}
			}
		}
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

// TestChatOfRewrittenHistory: where the template writes what was said before in another way
// than the model has run it, every turn is answered as the whole conversation is that the
// template then writes, whether the cache still has the beginning or was evicted.
func TestChatOfRewrittenHistory(t *testing.T) {
	folder := spoken(t, modeltest.GoldenNamed(t, "qwen3"), 1)
	const user, end = "{% if m.role == 'user' %}user: {{ m.content }}<|end|>", "{% endif %}{% endfor %}"
	begin := func(text string) string { return "{% if add_generation_prompt %}" + text + "{% endif %}" }
	for name, c := range map[string]struct {
		template string
		write    func(said []string) string // messages of the user and the model in turn
	}{
		"answers begin otherwise than in the history": {
			"<|bos|>{% for m in messages %}" + user + "{% else %}assistant: {{ m.content }}<|end|>" + end + begin("me:<>"),
			func(said []string) string { return "<|bos|>" + wrapped(said, "user: ", "assistant: ") + "me:<>" },
		},
		"the history has no answers": { // as all of them are thoughts
			"<|bos|>{% for m in messages %}" + user + end + begin("me:"),
			func(said []string) string {
				var users []string
				for i := 0; i < len(said); i += 2 {
					users = append(users, said[i])
				}
				return "<|bos|>" + wrapped(users, "user: ", "user: ") + "me:"
			},
		},
		"the beginning counts the messages": {
			"<|bos|>{{ messages|length }}{% for m in messages %}" + user + "{% else %}me:{{ m.content }}<|end|>" + end + begin("me:"),
			func(said []string) string {
				return fmt.Sprint("<|bos|>", len(said), wrapped(said, "user: ", "me:"), "me:")
			},
		},
		"nothing is rewritten": {
			"<|bos|>{% for m in messages %}" + user + "{% else %}me:{{ m.content }}<|end|>" + end + begin("me:"),
			nil,
		},
	} {
		config, err := json.Marshal(map[string]string{"bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": c.template})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "tokenizer_config.json"), config, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, policy := range []string{"full", "snapkv", "h2o"} {
			args := []string{"--model", folder, "--policy", policy, "--budget", "24", "--max-new", "6"}
			users := []string{"the river", "was higher", "e"}
			out, log, err := converse(t, strings.Join(users, "\n")+"\n", append(args, "--json")...)
			if err != nil || strings.Count(out, "\n") != len(users) {
				t.Errorf("%s, %s: %v\n%s", name, policy, err, out)
				continue
			}
			if got := strings.Count(log, "rewrites what was said before"); got != 1 && c.write != nil || got > 0 && c.write == nil {
				t.Errorf("%s, %s: said %d times\n%s", name, policy, got, log)
			}
			if c.write == nil {
				continue
			}
			var said []string
			for i, line := range slices.Collect(strings.Lines(out)) {
				var turn struct{ Answer string }
				if err := json.Unmarshal([]byte(line), &turn); err != nil {
					t.Fatal(err)
				}
				said = append(said, users[i])
				whole, _, err := execute(t, append([]string{"run", "--raw", c.write(said), "--json"}, args...)...)
				if err != nil {
					t.Fatal(err)
				}
				var want struct{ Answer string }
				if err := json.Unmarshal([]byte(whole), &want); err != nil {
					t.Fatal(err)
				}
				if turn != want {
					t.Errorf("%s, %s: turn %d: %q, the whole conversation gives %q", name, policy, i+1, turn.Answer, want.Answer)
				}
				said = append(said, turn.Answer)
			}
		}
	}
}

// wrapped are messages of two roles in turn, as the template of the folder ends each.
func wrapped(said []string, user, assistant string) string {
	var b strings.Builder
	for i, text := range said {
		b.WriteString([]string{user, assistant}[i%2] + text + "<|end|>")
	}
	return b.String()
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
