//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glimpse/internal/terminaltest"
)

// onTerminal starts evict on a terminal.
func onTerminal(t *testing.T, columns int, args ...string) *terminaltest.Program {
	t.Helper()
	return onTerminalWith(t, columns, nil, args...)
}

// onTerminalWith is onTerminal with more in the environment.
func onTerminalWith(t *testing.T, columns int, env []string, args ...string) *terminaltest.Program {
	t.Helper()
	c := exec.Command(os.Args[0], append([]string{"--threads", "2"}, args...)...)
	c.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	return terminaltest.Start(t, columns, c)
}

const (
	interrupt = "\x03"
	endOfFile = "\x04"
	up        = "\x1b[A"
	prompt    = "\x1b[?2004h> " // and not the end of a "<word> "
)

// TestChatOnTerminal: what a person sees of every command, of mistakes, and of a line that
// is edited.
func TestChatOnTerminal(t *testing.T) {
	for _, columns := range []int{80, 120} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			p := onTerminal(t, columns, "chat", "--example", "turns_section", "--seed", "3", "--policy", "full", "--budget", "64")
			p.Wait("/help lists the")
			p.Wait("right answer: ")
			p.Wait(prompt)
			for _, step := range []struct{ keys, want string }{
				{"<cupy>\x1b[D\x1b[D\x1b[D\x7fo\x05\r", "tokens at "}, // edited into <copy>
				{up + "\r", " tokens at "},
				{"hello\r", `"hello" is not one of the 480 words that the model knows; try bell`},
				{"/hlep\r", `"/help"?`}, // did you mean
				{"/bu\t32\r", "32 KV entries per KV head and layer from the next turn on; what was evicted"},
				{"/policy snapvk\r", `"snapkv"?`}, // did you mean
				{"/policy sna\t\r", "what was said is read again"},
				{"<copy>\r", " tokens at "},
				{"/stats now\r", "want nothing after it"},
				{"/stats\r", "of 4096 tokens of the context are used"},
				{"\x1b[200~" + strings.Repeat("map ", 4200) + "\x1b[201~\r", "/reset begins anew"},
				{"/reset\r", "What was said is forgotten."},
				{"/stats\r", "No turns yet."},
				{"/help\r", "Anything else is a message."},
				{"map" + interrupt, "Ctrl-C again, or Ctrl-D, leaves."},
			} {
				p.Type(step.keys)
				p.Wait(step.want)
				p.Wait(prompt)
			}
			if !strings.Contains(p.Screen(), "> [paste 1: 16800 characters]\n") {
				t.Error("a long paste is shown at its length")
			}
			p.Type(endOfFile)
			if code := p.Exit(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestChatInterrupted: wherever the first Ctrl-C falls, the chat goes on, and the second one
// in a row leaves.
func TestChatInterrupted(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		// A model that has forgotten the question goes on to the end of its context.
		p := onTerminal(t, 80, "chat", "--example", "turns_section", "--seed", "3", "--policy", "random", "--budget", "8", "--tokens", "128", "--max-new", "1000")
		p.Wait("/help lists")
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		p.Type(interrupt)
		p.Wait(prompt)
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		p.Type("<copy>\r")
		p.Wait("\n")
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		p.Type(interrupt)
		p.Type("/budget\r")
		p.Wait("8 KV entries per KV head and layer")
		p.Wait(prompt)
		p.Type(interrupt)
		p.Wait("leaves.")
		p.Wait(prompt)
		p.Type(interrupt)
		if code := p.Exit(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, p.Screen())
		}
	}
}

// TestChatWide: the cursor is where a wide character is, and what is typed goes there.
func TestChatWide(t *testing.T) {
	p := onTerminal(t, 80, "chat")
	p.Wait(prompt)
	column := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); p.Column() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the cursor is at column %d, want %d:\n%s", p.Column(), want, p.Screen())
			}
		}
	}
	p.Type("漢字")
	column(2 + 4)
	p.Type("\x1b[D")
	column(2 + 2)
	p.Type("é😀")
	column(2 + 2 + 1 + 2)
	p.Type("\x7f")
	column(2 + 2 + 1)
	if want := "> 漢é字"; !strings.HasSuffix(p.Screen(), want) {
		t.Errorf("%q is not the last line of\n%s", want, p.Screen())
	}
	p.Type("\r")
	p.Wait(`"漢é字" is not one of the 480 words`)
	p.Wait(prompt)
	p.Type(endOfFile)
	if code := p.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestChatHistory: a chat has the lines of those before it, also of one that was killed, but
// for pastes that are shown as their length.
func TestChatHistory(t *testing.T) {
	states := t.TempDir()
	env := []string{"XDG_STATE_HOME=" + states, "GLIMPSE_HISTORY="}
	first := onTerminalWith(t, 80, env, "chat")
	first.Wait(prompt)
	for _, keys := range []string{"/budget 32\r", " \r", "/stats\r", "/stats\r", "/policy \x1b[200~a\nb\x1b[201~\r"} {
		first.Type(keys)
		first.Wait(prompt)
	}
	first.Type("/reset") // is not entered
	first.Kill()
	path := filepath.Join(states, "glimpse", "chat_history")
	if data, err := os.ReadFile(path); err != nil || string(data) != "# Lines typed in chats of Glimpse\n/budget 32\n/stats\n" {
		t.Errorf("the file has %q, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	second := onTerminalWith(t, 80, env, "chat")
	second.Wait(prompt)
	second.Type(up + up + "\r")
	second.Wait("32 KV entries per KV head and layer")
	second.Wait(prompt)
	if want := "> /budget 32\n"; !strings.Contains(second.Screen(), want) {
		t.Errorf("no %q in\n%s", want, second.Screen())
	}
	second.Type(endOfFile)
	if code := second.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestChatWithoutHistory: a file that cannot be is no error, and told to who asks for details.
func TestChatWithoutHistory(t *testing.T) {
	for flag, want := range map[string]bool{"--verbose": true, "--verbose=false": false} {
		p := onTerminalWith(t, 80, []string{"GLIMPSE_HISTORY=" + filepath.Join(os.DevNull, "history")}, flag, "chat")
		p.Wait(prompt)
		p.Type("/stats\r")
		p.Wait("No turns yet.")
		p.Wait(prompt)
		p.Type(up + "\r")
		p.Wait("No turns yet.")
		p.Wait(prompt)
		p.Type(endOfFile)
		if code := p.Exit(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if got := strings.Contains(p.Screen(), "not a directory"); got != want {
			t.Errorf("%s: told is %v, want %v:\n%s", flag, got, want, p.Screen())
		}
	}
}
