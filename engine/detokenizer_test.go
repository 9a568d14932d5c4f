package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/modeltest"
	"glimpse/model/runner"
	"glimpse/model/tokenizer"
)

// Stop texts end an answer where they begin, however tokens divide them.
func TestStopTexts(t *testing.T) {
	tok, err := tokenizer.LoadDir(os.DirFS(filepath.Join(modeltest.Testdata(t), "golden", "llama3.1")))
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, text string
		stop       []string
		skip       bool
		want       string
		ended      bool
	}{
		{"none", "one two", nil, false, "one two", false},
		{"in the middle", "one\n\ntwo", []string{"\n\n"}, false, "one", true},
		{"the first of two", "one END two STOP", []string{"STOP", "END"}, false, "one ", true},
		{"at the beginning", "\none\ntwo", []string{"\n"}, false, "", true},
		{"at the beginning, skipped", "\n\none\ntwo", []string{"\n"}, true, "\n\none", true},
		{"nothing else, skipped", "\n\n", []string{"\n"}, true, "\n\n", false},
		{"two kinds, skipped", "ABAB one B", []string{"A", "B"}, true, "ABAB one ", true},
		{"an empty one", "one", []string{""}, true, "one", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ids, err := tok.Encode(c.text, false)
			if err != nil {
				t.Fatal(err)
			}
			l := &detokenizer{stream: tok.NewStream(true), stop: c.stop, skip: c.skip, stopped: -1}
			stopped, streamed := false, ""
			for _, id := range ids {
				err := l.pushToken(id)
				if streamed += l.more(false); !strings.HasPrefix(c.want, streamed) {
					t.Fatalf("%q was streamed, want the beginning of %q", streamed, c.want)
				}
				if errors.Is(err, runner.ErrStop) {
					stopped = true
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if streamed += l.more(true); streamed != c.want {
				t.Errorf("%q was streamed, want %q", streamed, c.want)
			}
			if text, ended := l.said(true), l.stopped >= 0; text != c.want || ended != c.ended || stopped != c.ended {
				t.Errorf("%q, ended %v, stopped %v; want %q, %v", text, ended, stopped, c.want, c.ended)
			}
		})
	}
}
