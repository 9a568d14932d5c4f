package console

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestShowPrefill: a long prompt shows how far it has come, a short one and a decoding step nothing, and
// one that was interrupted does not disturb the next.
func TestShowPrefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		begin := ShowPrefill(&out)
		pass := func(tokens, parts, until int, each time.Duration) {
			done := begin(tokens)
			for range until {
				time.Sleep(each)
				done(tokens / parts)
			}
		}
		pass(1024, 4, 4, 100*time.Millisecond)
		pass(1024, 4, 2, 100*time.Millisecond) // interrupted
		if out.Len() > 0 {
			t.Errorf("a prompt of 0.4 s shows %q", out.String())
		}
		pass(1024, 4, 4, 3*time.Second)
		if want := " 256/1024 prompt tokens   25%  85.3 prompt tokens/s  9s left\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
	var out bytes.Buffer
	c, _ := talk(t, "full", 8, &out)
	if c.request(nil).Progress == nil {
		t.Error("a conversation does not show its prompts' progress")
	}
}
