package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"glimpse/internal/terminaltest"
)

// TestColours: an error begins in red on a terminal that has colours, and nowhere else.
func TestColours(t *testing.T) {
	const red = "\x1b[1;31mevict:\x1b[0m "
	said := func(stderr *os.File, env ...string) *exec.Cmd {
		c := exec.Command(os.Args[0], "nosuch")
		c.Env = append(append(os.Environ(), asProgram+"=1", "GODEBUG="), env...) // about which the runtime may say something first
		c.Stderr = stderr
		return c
	}
	for env, want := range map[string]bool{"TERM=xterm NO_COLOR=": true, "TERM=xterm NO_COLOR=1": false, "TERM=dumb NO_COLOR=": false, "TERM= NO_COLOR=": false} {
		master, tty := terminaltest.Open(t, 80)
		c := said(tty, strings.Fields(env)...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		tty.Close()
		out, _ := io.ReadAll(master) // ends with an error on Linux when nobody has the terminal
		c.Wait()
		if got := strings.Contains(string(out), red); got != want || !strings.Contains(string(out), `unknown command "nosuch"`) {
			t.Errorf("%s: red is %v, want %v: %q", env, got, want, out)
		}
	}
	piped := said(nil, "TERM=xterm", "NO_COLOR=")
	var out strings.Builder
	piped.Stderr = &out
	if err := piped.Run(); err == nil || strings.Contains(out.String(), "\x1b") || !strings.HasPrefix(out.String(), "evict: ") {
		t.Errorf("into a pipe: %v, %q", err, out.String())
	}
}
